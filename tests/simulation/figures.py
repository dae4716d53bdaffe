"""What schedules did, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Figures:
    """Of one schedule or of many. `errors`: what processes reported, by class.

    `trace`: of one schedule, hash of all that happened.
    """

    steps: Counter[str] = field(default_factory=Counter)
    faults: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    segments: int = 0
    compacted: int = 0
    trace: str = ""

    def add(self, other: Figures) -> None:
        """Take in those of another schedule."""
        self.steps += other.steps
        self.faults += other.faults
        self.errors += other.errors
        self.commits += other.commits
        self.segments += other.segments
        self.compacted += other.compacted
