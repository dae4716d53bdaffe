"""Runs tasks and stages on Spark: rows of (number, value), no schema, no data frame."""

from __future__ import annotations

import pickle
import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sidecar.engine_ports import TO_DRIVER, Answer, Row, StagedRun, Stages, Task, ThirdStage
from sidecar.errors import RowsLost, SidecarError
from sidecar.exchange import packed, unpacked
from sidecar.io_share import Moving, as_one_of, shared_with
from sidecar.randomness import SystemRandomness
from sidecar.spark.embedded import EmbeddedSpark
from sidecar.spark.failures import SparkFailed, failures
from sidecar.spark.sealing import keep_keys_here

_STRETCH_TASKS: Final = 64
"""Answers are fetched a stretch at a time: the driver never holds more than one and the next. Each costs a small job."""

_TASKS_PER_CORE: Final = 8
"""Spark tasks per core: more cost some 10 ms each, fewer balance badly."""

_GROUP: Final = "spark.jobGroup.id"
"""The local property behind setJobGroup, which cannot put back what was there before."""
_POOL: Final = "spark.scheduler.pool"


@dataclass(frozen=True)
class SparkEngine:
    """A `StageEngine` on a Spark context. What waits between the stages lies in Spark's local directory.

    `moving`: which limits all tasks share with this process.
    """

    spark: EmbeddedSpark
    moving: tuple[Moving, ...] = (Moving.READS,)

    def __post_init__(self) -> None:
        keep_keys_here()

    def run(
        self, function: Callable[[Task], Answer], tasks: Sequence[Task], *, uploads: bool = False
    ) -> Generator[Answer]:
        """See `TaskEngine`. One job computes all answers; they wait in Spark's local directory until they are asked for.

        Raises SparkUnavailable, SparkFailed.
        """
        if not tasks:
            return
        # Failures outermost: a JVM that was killed also fails the calls that tidy up.
        with (
            self.spark.context() as context,
            failures(self.spark.death),
            cancelled_at_the_end(context) as group,
            shared_with(context.defaultParallelism, *self.moving, *_also(uploads)),
        ):
            slices = min(len(tasks), _TASKS_PER_CORE * context.defaultParallelism)
            stretches = max(1, len(tasks) // _STRETCH_TASKS)
            with group():
                answers = (
                    context.parallelize([(number, task) for number, task in enumerate(tasks)], slices)
                    .map(partial(as_one_of, context.defaultParallelism + 1, _answer, function))
                    .partitionBy(stretches, partial(_stretch, len(tasks), stretches))
                    .mapPartitions(_in_order, preservesPartitioning=True)
                )
                fetched = answers.toLocalIterator(prefetchPartitions=True)
            yield from map(_checked, fetched)

    def prepare(self) -> None:
        """Begin to start the JVM and its workers while the caller does something else. Errors are raised at first use."""
        threading.Thread(target=self._start_workers, name="spark-start", daemon=True).start()

    def _start_workers(self) -> None:
        with suppress(SidecarError), self.spark.context() as context, failures(self.spark.death):
            context.parallelize(range(context.defaultParallelism), context.defaultParallelism).foreach(_nothing)

    @property
    def cores(self) -> int:
        """See StageEngine. Raises SparkUnavailable."""
        with self.spark.context() as context:
            return int(context.defaultParallelism)

    @contextmanager
    def staged(self, stages: Stages, tasks: Sequence[Any]) -> Iterator[StagedRun]:
        """See StageEngine. Raises SparkUnavailable, SparkFailed."""
        with self.spark.context() as context, cancelled_at_the_end(context) as group:
            with failures(self.spark.death), group(), shared_with(context.defaultParallelism, *self.moving):
                shares = context.defaultParallelism + 1
                rows = (
                    context.parallelize(tasks, max(len(tasks), 1))
                    .flatMap(partial(as_one_of, shares, stages.first))
                    # Explicit numbers of partitions: the default of 200 costs seconds.
                    .partitionBy(stages.second_tasks, stages.second_task_of)
                    .mapPartitions(partial(as_one_of, shares, _second, stages.second), preservesPartitioning=True)
                    # One partition more than third tasks: the driver fetches it alone, the others wait as shuffle files.
                    .partitionBy(stages.third_tasks + 1, stages.third_task_of)
                )
                answers = list(context.runJob(rows, _values, [stages.third_tasks]))
            # Shuffle files are Spark's own, in its directories: nothing waits in ours.
            yield StagedRun(answers, partial(self._third, context, group, rows))

    def _third(
        self, context: Any, group: Group, rows: Any, function: ThirdStage, plans: Sequence[Any], uploads: bool
    ) -> list[Any]:
        """The first stages do not run again: Spark finds their shuffle files. Raises SparkFailed."""
        moving = (*self.moving, *_also(uploads))
        with failures(self.spark.death), group(), shared_with(context.defaultParallelism, *moving):
            pickled = [pickle.dumps(plan, pickle.HIGHEST_PROTOCOL) for plan in plans]
            work = partial(as_one_of, context.defaultParallelism + 1, _third, function, pickled)
            answers = rows.mapPartitionsWithIndex(work)
            return list(context.runJob(answers, iter, list(range(len(plans)))))


Group = Callable[[], AbstractContextManager[None]]
"""Jobs that this thread starts in such a context belong to the group."""


@contextmanager
def cancelled_at_the_end(context: Any) -> Iterator[Group]:
    """A new group of jobs; those that still run afterwards are cancelled: others use the same context.

    They have the thread's scheduler pool: within one pool, a job waits for all tasks of the jobs before it.
    """
    from py4j.protocol import Py4JError

    group = f"tiered-sidecar-{SystemRandomness().random_bytes(16).hex()}"

    @contextmanager
    def jobs() -> Iterator[None]:
        before = {name: context.getLocalProperty(name) for name in (_GROUP, _POOL)}
        context.setLocalProperty(_GROUP, group)
        context.setLocalProperty(_POOL, threading.current_thread().name)
        try:
            yield
        finally:
            for name, value in before.items():
                context.setLocalProperty(name, value)

    try:
        yield jobs
    finally:
        # A JVM that was killed runs no jobs, and all that wait for them have the error.
        with suppress(Py4JError, OSError, AttributeError):
            context.cancelJobGroup(group)


def _answer(function: Callable[[Any], Any], numbered: tuple[int, Any]) -> tuple[int, bytes]:
    number, task = numbered
    return number, packed(TO_DRIVER, function(task))


def _checked(answer: bytes) -> Any:
    """Raises SparkFailed for an answer that was damaged on its way."""
    try:
        return unpacked(TO_DRIVER, answer)
    except RowsLost as error:
        raise SparkFailed("a worker's answer was damaged on its way to the driver: run the command again") from error


def _stretch(tasks: int, stretches: int, number: int) -> int:
    return number * stretches // tasks


def _in_order(rows: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    for _, answer in sorted(rows):
        yield answer


def _also(uploads: bool) -> tuple[Moving, ...]:
    return (Moving.UPLOADS,) if uploads else ()


def _nothing(_number: int) -> None:
    """A task that only has a worker started for it."""


def _values(rows: Iterable[Row]) -> Iterator[Any]:
    return (value for _, value in rows)


def _second(function: Callable[[int, Sequence[Any]], Iterator[Row]], rows: Iterable[Row]) -> Iterator[Row]:
    buckets: defaultdict[int, list[Any]] = defaultdict(list)
    for number, value in rows:
        if number == TO_DRIVER:
            yield number, value
        else:
            buckets[number].append(value)
    for bucket in sorted(buckets):
        yield from function(bucket, buckets.pop(bucket))


def _third(function: ThirdStage, plans: Sequence[bytes], task: int, rows: Iterable[Row]) -> Iterator[Any]:
    """Plans are pickled one by one: each task gets all of them, and uses its own."""
    return function(rows, pickle.loads(plans[task]))  # noqa: S301  made by the driver
