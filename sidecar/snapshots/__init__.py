"""Producer snapshots of whole partitions: rebuilt from their segments, compared with the broker's, and put where they lack.

One task digests one segment (or a part of a large one); an engine, local or Spark, runs the tasks of all partitions; the
digests are folded in offset order here. The rules themselves are `producer_state`'s.
"""
