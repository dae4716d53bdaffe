"""Producer snapshots of whole partitions: rebuilt from their segments, compared with the broker's, and put where they lack.

One task digests one segment; an engine, local or Spark, runs the tasks of all partitions; the
digests are folded in offset order here. The rules themselves are `producer_state`'s.
"""

from enum import StrEnum


class Replay(StrEnum):
    """How much of a log is read. WINDOW: what the wanted snapshots need. FULL: everything, to prove those that exist."""

    WINDOW = "window"
    FULL = "full"
