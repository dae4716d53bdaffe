"""Missing producer snapshots, created in the directories of a stopped broker: planned, replayed, proven, put in place."""
