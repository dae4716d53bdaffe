"""Virtual time, and the clock that each process reads it by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BEGIN_MS: Final = 1_700_000_000_000


@dataclass(slots=True)
class VirtualTime:
    """The one time of a schedule. The store's clock and the brokers' clocks show it as it is. Implements `sidecar.clock.Clock`."""

    elapsed_ms: int = 0

    def now_ms(self) -> int:
        """See `Clock`."""
        return BEGIN_MS + self.elapsed_ms

    def monotonic_s(self) -> float:
        """See `Clock`."""
        return self.elapsed_ms / 1000

    def sleep_s(self, seconds: float) -> None:
        """See `Clock`. Time passes for everybody."""
        self.advance_ms(round(seconds * 1000))

    def advance_ms(self, milliseconds: int) -> None:
        """Time passes."""
        self.elapsed_ms += milliseconds


@dataclass(slots=True)
class SimClock:
    """A process's clock. `skew_ms`: how far its wall clock is ahead. A jump of the clock changes it."""

    time: VirtualTime
    skew_ms: int = 0

    def now_ms(self) -> int:
        """See `Clock`."""
        return BEGIN_MS + self.time.elapsed_ms + self.skew_ms

    def monotonic_s(self) -> float:
        """See `Clock`. Jumps do not show here."""
        return self.time.elapsed_ms / 1000

    def sleep_s(self, seconds: float) -> None:
        """See `Clock`."""
        self.time.sleep_s(seconds)
