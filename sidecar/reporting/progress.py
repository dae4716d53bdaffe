"""How far a command is: counted segment by segment, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """After each segment, and once before the first. `latest`: the segment, in words."""

    segments_done: int
    segments_total: int
    bytes_done: int
    bytes_total: int
    latest: str = ""


Watcher = Callable[[Progress], None]


class ProgressCounter:
    """Tells a watcher of each segment. The totals grow where more is done than was planned."""

    def __init__(self, watcher: Watcher | None, segments_total: int, bytes_total: int) -> None:
        self._watcher = watcher
        self._segments, self._bytes = 0, 0
        self._segments_total, self._bytes_total = segments_total, bytes_total
        self._tell("")

    def done(self, size_bytes: int, latest: str) -> None:
        """One more segment of so many bytes."""
        self._segments += 1
        self._bytes += size_bytes
        self._segments_total = max(self._segments_total, self._segments)
        self._bytes_total = max(self._bytes_total, self._bytes)
        self._tell(latest)

    def _tell(self, latest: str) -> None:
        if self._watcher is not None:
            self._watcher(Progress(self._segments, self._segments_total, self._bytes, self._bytes_total, latest))
