"""The only place that asks the machine for the time; everything else is handed a `Clock`."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock, monotonic clock and sleep."""

    def now_ms(self) -> int:
        """Wall clock in milliseconds since the epoch."""

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back."""

    def sleep_s(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000  # noqa: TID251 - this module is the exception

    def monotonic_s(self) -> float:
        return time.monotonic()  # noqa: TID251 - as above

    def sleep_s(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: TID251 - as above


class HasClock(Protocol):
    @property
    def clock(self) -> Clock: ...
