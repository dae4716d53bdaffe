"""How much of a log a reconstruction reads; apart from `jobs`, which loads numpy, for the command line."""

from __future__ import annotations

from enum import StrEnum


class Replay(StrEnum):
    """How much of a log is read. WINDOW: what the wanted snapshots need. FULL: everything, to prove those that exist."""

    WINDOW = "window"
    FULL = "full"
