"""How far a command is: counted segment by segment, for whoever shows it."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock


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
    """Reports each segment to a watcher. The totals grow where more is done than was planned. Thread-safe."""

    def __init__(self, watcher: Watcher | None, segments_total: int, bytes_total: int) -> None:
        self._watcher = watcher
        self._lock = Lock()
        self._segments, self._bytes = 0, 0
        self._segments_total, self._bytes_total = segments_total, bytes_total
        self.moved(0)

    def done(self, size_bytes: int, latest: str) -> None:
        """One more segment, and so many bytes of it."""
        self.moved(size_bytes, segments=1, latest=latest)

    def moved(self, size_bytes: int, *, segments: int = 0, latest: str = "") -> None:
        """So many bytes more, of a segment that goes on unless one more is done."""
        with self._lock:
            self._segments += segments
            self._bytes += size_bytes
            self._segments_total = max(self._segments_total, self._segments)
            self._bytes_total = max(self._bytes_total, self._bytes)
            if self._watcher is not None:
                self._watcher(Progress(self._segments, self._segments_total, self._bytes, self._bytes_total, latest))
