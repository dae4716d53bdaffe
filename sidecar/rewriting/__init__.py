"""Segments rewritten by compaction: the three stages as tasks, the files that come of them, and a whole directory.

Nothing of the source is ever written to. The engine that runs the stages comes in as a value: this process, or Spark.
"""
