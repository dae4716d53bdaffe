"""Signals while `backfill` works: each is passed on before anything that may wait."""

from __future__ import annotations

import signal
from threading import Event
from types import FrameType

import pytest

from sidecar.runner.backfill import _drained_by_signals
from sidecar.threads import handling


def test_a_signal_during_the_one_before_is_passed_on_without_waiting_for_a_lock() -> None:
    """A handler runs between any two instructions: the stop flag's lock may be taken, and it is not reentrant."""
    passed_on: list[int] = []

    class Interrupted(Event):
        def set(self) -> None:
            waited_for.append(len(passed_on))
            if len(waited_for) == 1:
                signal.raise_signal(signal.SIGTERM)
            super().set()

    def end(number: int, _frame: FrameType | None) -> None:
        passed_on.append(number)
        raise SystemExit(128 + number)

    waited_for: list[int] = []
    stop = Interrupted()
    before = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(SystemExit), _drained_by_signals(stop):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert waited_for == [1, 2]
    assert stop.is_set()


def test_a_handler_that_is_not_pythons_stays_as_it_is() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with handling({signal.SIGTERM: None}):
        assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGTERM) is before
