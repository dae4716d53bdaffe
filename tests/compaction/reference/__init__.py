"""Compaction in plain Python, written from the rules: slow, and what the engine's bytes are compared with.

`clean` runs one round as Kafka's cleaner does, partial map and all; over a whole range with an unlimited map it is what the
engine does. Source: Cleaner.doClean, Cleaner.cleanInto, MemoryRecords.filterTo.
"""
