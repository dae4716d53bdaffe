"""Waiting for what other threads do, by the machine's own clock."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.clock import SystemClock


def within(seconds: float, holds: Callable[[], bool]) -> Callable[[], bool]:
    """The same condition, which fails the test when it has not come to hold for so long."""
    clock = SystemClock()
    end_s = clock.monotonic_s() + seconds

    def checked() -> bool:
        if holds():
            return True
        assert clock.monotonic_s() < end_s, "it has not come to that"
        return False

    return checked
