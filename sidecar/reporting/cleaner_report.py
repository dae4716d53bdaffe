"""The state of the broker's own cleaner: for `/status`, the metrics and the log."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StalledPartition:
    """A partition that the broker's cleaner should have cleaned long ago."""

    topic: str
    partition: int
    first_dirty_offset: int
    dirty_bytes: int
    dirty_ratio: float
    stalled_s: int

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition}: {self.dirty_bytes} dirty bytes ({self.dirty_ratio:.0%}), first dirty offset "
            f"{self.first_dirty_offset} for {self.stalled_s} s"
        )


@dataclass(frozen=True, slots=True)
class CleanerReport:
    """One look. `problems`: files that could not be read."""

    partitions: int
    dirty_bytes: int
    max_dirty_ratio: float
    beyond_max_lag: int
    stalled: tuple[StalledPartition, ...]
    problems: tuple[str, ...] = ()

    @property
    def max_stalled_s(self) -> int:
        """For how long the one that has stalled longest has; 0 if none has."""
        return max((found.stalled_s for found in self.stalled), default=0)

    @property
    def line(self) -> str:
        """For people."""
        if self.stalled:
            more = f" and {len(self.stalled) - 1} more" if len(self.stalled) > 1 else ""
            return (
                f"the broker's cleaner stands still: {self.stalled[0]}{more}; look for 'uncleanable' in log-cleaner.log"
            )
        return f"the broker's cleaner: {self.partitions} partitions, {self.dirty_bytes} dirty bytes, none stalled"

    def as_json(self) -> dict[str, Any]:
        """For `/status`."""
        return {**asdict(self), "line": self.line}
