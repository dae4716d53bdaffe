"""How long a driver waits for executors, and what it says when a cluster gives none."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.config import SparkSettings
from sidecar.spark.embedded import wait_for_executors
from sidecar.spark.java import SparkUnavailable
from tests.fakes.manual_clock import ManualClock


class Context:
    """A context of Spark that its master ends after some questions, if ever, as one that no master has answered for a minute."""

    def __init__(self, executors: int, ends_after: int | None = None) -> None:
        self._executors = executors
        self._left = ends_after
        self._jsc = SimpleNamespace(sc=lambda: self)

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return {"spark.executor.instances": "2"}

    def isStopped(self) -> bool:  # noqa: N802
        if self._left is not None:
            self._left -= 1
        return self._left == -1

    def getExecutorMemoryStatus(self) -> Any:  # noqa: N802
        assert self._left != -1, "Cannot call methods on a stopped SparkContext"
        return SimpleNamespace(size=lambda: 1 + self._executors)


def waited_s(context: Context) -> float:
    clock = ManualClock(0)
    settings = SparkSettings(master="spark://nowhere:7077", executors_wait_s=10)
    wait_for_executors(context, settings, clock, threading.Event())
    return clock.monotonic_s()


def test_all_executors_are_there_at_once() -> None:
    assert waited_s(Context(2)) == waited_s(Context(3)) < waited_s(Context(1))


@pytest.mark.parametrize("questions", [0, 1, 5])
def test_a_master_that_does_not_answer_ends_the_wait(questions: int) -> None:
    with pytest.raises(SparkUnavailable, match="spark://nowhere:7077 did not answer, or ended this application"):
        waited_s(Context(0, questions))


def test_no_executor_ends_the_wait_at_its_bound() -> None:
    with pytest.raises(SparkUnavailable, match="gave no executor in 10 s"):
        waited_s(Context(0))
