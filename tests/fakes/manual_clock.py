"""A clock that tests move."""

from __future__ import annotations


class ManualClock:
    """A clock that moves only when a test moves it, or when something sleeps on it."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_s = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def sleep_s(self, seconds: float) -> None:
        """Move both clocks forward without waiting."""
        self.advance_ms(round(seconds * 1000))

    def advance_ms(self, milliseconds: int) -> None:
        """Move both clocks forward."""
        self._now_ms += milliseconds
        self._monotonic_s += milliseconds / 1000
