"""Runs tasks on Spark: each answer is one row, and rows come back in the order of their tasks."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final

from sidecar.engine_ports import Answer, Task
from sidecar.io_share import AsOneOf, Moving, shared_with
from sidecar.randomness import SystemRandomness
from sidecar.spark.embedded import EmbeddedSpark
from sidecar.spark.failures import SparkFailed, failures
from sidecar.spark.sealing import sealed

__all__ = ["JobGroup", "SparkEngine", "SparkFailed", "cancelled_at_the_end"]

_STRETCH_TASKS: Final = 64
"""Answers are fetched a stretch at a time: the driver never holds more than one and the next. Each costs a small job."""

_TASKS_PER_CORE: Final = 8
"""Spark tasks per core: more cost some 10 ms each, fewer balance badly."""


_GROUP: Final = "spark.jobGroup.id"
_POOL: Final = "spark.scheduler.pool"
"""The local property behind setJobGroup, which cannot put back what was there before."""


class SparkEngine:
    """A `TaskEngine` on a Spark context."""

    def __init__(self, spark: EmbeddedSpark, *, moving: tuple[Moving, ...] = (Moving.READS,)) -> None:
        """Args: moving: which limits the tasks share with this process."""
        self._spark = spark
        self._moving = moving

    def run(self, function: Callable[[Task], Answer], tasks: Sequence[Task]) -> Iterator[Answer]:
        """See `TaskEngine`. One job computes all answers; they wait in Spark's local directory until they are asked for.

        Raises SparkUnavailable, SparkFailed.
        """
        if not tasks:
            return
        # Failures outermost: a JVM that was killed also fails the calls that tidy up.
        with (
            self._spark.context() as context,
            failures(self._spark.death),
            cancelled_at_the_end(context) as group,
            shared_with(context.defaultParallelism, *self._moving),
        ):
            slices = min(len(tasks), _TASKS_PER_CORE * context.defaultParallelism)
            stretches = max(1, len(tasks) // _STRETCH_TASKS)
            with group:
                answers = (
                    context.parallelize([(number, sealed(task)) for number, task in enumerate(tasks)], slices)
                    .map(sealed(AsOneOf(partial(_answer, function), context.defaultParallelism + 1)))
                    .partitionBy(stretches, partial(_stretch, len(tasks), stretches))
                    .mapPartitions(_in_order, preservesPartitioning=True)
                )
                fetched = answers.toLocalIterator(prefetchPartitions=True)
            yield from map(pickle.loads, fetched)


class JobGroup:
    """A context manager, to be entered as often as need be: jobs that this thread starts in it belong to the group.

    They have the thread's scheduler pool: within one pool, a job waits for all tasks of the jobs before it.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self._name = f"tiered-sidecar-{SystemRandomness().random_bytes(16).hex()}"
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> None:
        for name, value in ((_GROUP, self._name), (_POOL, threading.current_thread().name)):
            self._before[name] = self._context.getLocalProperty(name)
            self._context.setLocalProperty(name, value)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for name, value in self._before.items():
            self._context.setLocalProperty(name, value)

    def cancel(self) -> None:
        """End the group's jobs; others use the same context."""
        from py4j.protocol import Py4JError

        # A JVM that was killed runs no jobs, and whoever waits for them has been told.
        with suppress(Py4JError, OSError, AttributeError):
            self._context.cancelJobGroup(self._name)


@contextmanager
def cancelled_at_the_end(context: Any) -> Iterator[JobGroup]:
    """A new group of jobs; those that still run afterwards are cancelled."""
    group = JobGroup(context)
    try:
        yield group
    finally:
        group.cancel()


def _answer(function: Callable[[Any], Any], numbered: tuple[int, Any]) -> tuple[int, bytes]:
    number, task = numbered
    return number, pickle.dumps(function(task), pickle.HIGHEST_PROTOCOL)


def _stretch(tasks: int, stretches: int, number: int) -> int:
    return number * stretches // tasks


def _in_order(rows: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    for _, answer in sorted(rows):
        yield answer
