"""Work that waits is done by many threads, work that computes by few."""

from __future__ import annotations

import threading

import pytest

from sidecar.clock import ManualClock
from sidecar.runner.plan_pace import LOOKED_AT, at_pace, threads_for


@pytest.mark.parametrize(
    ("took_s", "computed_s", "threads"),
    [(0.010, 0.009, 2), (0.100, 0.010, 8), (0.035, 0.010, 4), (1.0, 0.0, 8), (0.0, 0.0, 2)],
)
def test_as_many_threads_as_keep_one_of_them_computing(took_s: float, computed_s: float, threads: int) -> None:
    assert threads_for(took_s, computed_s, 8) == threads


@pytest.mark.parametrize("count", [0, 1, LOOKED_AT, LOOKED_AT + 1, 40])
def test_every_item_is_worked_on_once_and_results_keep_their_order(count: int) -> None:
    assert list(at_pace(ManualClock(0), lambda item: item * 2, range(count), 8)) == [2 * item for item in range(count)]


def test_what_waits_for_each_other_waits_in_threads() -> None:
    clock, together = ManualClock(0), threading.Barrier(4)

    def wait(item: int) -> int:
        if item < LOOKED_AT:
            clock.advance_ms(60_000)
        else:
            together.wait(120)
        return item

    assert list(at_pace(clock, wait, range(LOOKED_AT + 4), 8)) == list(range(LOOKED_AT + 4))
