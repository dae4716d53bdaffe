"""The last hour in samples: how many bytes were archived, and how many were waiting."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sidecar.clock import Clock

WINDOW_S = 3600.0
SAMPLE_EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A moment. `age_s`: how long ago it was. `archived_bytes`: since the start; `pending_bytes`: waiting at that time."""

    age_s: float
    archived_bytes: int
    pending_bytes: int


class History:
    """A ring of samples. Not for use by two threads at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._archived_bytes = 0
        # One more than fills the window: a rate needs the sample before.
        self._ring: deque[tuple[float, int, int]] = deque(maxlen=int(WINDOW_S / SAMPLE_EVERY_S) + 1)

    def archived(self, size_bytes: int) -> None:
        """So many bytes more are in the archive."""
        self._archived_bytes += size_bytes

    def is_due(self) -> bool:
        """Whether it is time for another sample."""
        return not self._ring or self._clock.monotonic_s() - self._ring[-1][0] >= SAMPLE_EVERY_S

    def tick(self, pending_bytes: int) -> None:
        """Take a sample; so much is waiting now."""
        self._ring.append((self._clock.monotonic_s(), self._archived_bytes, pending_bytes))

    def samples(self, pending_bytes: int) -> tuple[Sample, ...]:
        """Those of the last hour, ascending in time, and one of this moment."""
        now_s = self._clock.monotonic_s()
        kept = [(now_s - at_s, archived, pending) for at_s, archived, pending in self._ring]
        return (
            *(Sample(*entry) for entry in kept if entry[0] <= WINDOW_S + SAMPLE_EVERY_S),
            Sample(0.0, self._archived_bytes, pending_bytes),
        )
