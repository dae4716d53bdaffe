"""Compaction of a partition's directory: what may be compacted, the three stages as tasks, and the directory that comes of it.

Nothing of the source is ever written to. The engine that runs the stages comes in as a value: this process, or Spark.
"""
