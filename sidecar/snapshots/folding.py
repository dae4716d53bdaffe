"""The states of many partitions at many offsets, from one pass over their segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Final, TypeVar

from sidecar.engine_ports import TaskEngine, grouped
from sidecar.model import TopicPartition
from sidecar.reporting.progress import ProgressCounter, Watcher
from sidecar.snapshots.jobs import Event, PartitionJob
from sidecar.snapshots.partition_fold import PartitionFold
from sidecar.snapshots.tasks import DigestedSegment, SegmentTask, digest_group

GROUP_BYTES: Final = 16 * 1024 * 1024
GROUP_TASKS: Final = 64
"""Small segments go to a worker many at a time: up to this much, and this many."""


Owner = TypeVar("Owner")


def fold(
    work: Sequence[tuple[Owner, PartitionJob]], engine: TaskEngine, watcher: Watcher | None
) -> Iterator[tuple[Owner, Event]]:
    """The events of each job with its owner, ascending by offset, job after job; the last one of each is `Ended`.

    Memory: one state, and the digests that the engine holds ready. One partition's damage stops only that partition.
    The watcher's totals grow where a window replay finds that it needs more than was planned.
    """
    tasks = [task for _, job in work for task in job.tasks]
    counter = ProgressCounter(watcher, len(tasks), sum(task.source.size_bytes for task in tasks))
    groups = list(grouped(tasks, lambda task: task.source.size_bytes, GROUP_BYTES, GROUP_TASKS))
    # closing: when the consumer gives up, the engine's processes end now and not when the garbage collector runs.
    with closing(engine.run(digest_group, groups)) as answers:
        results = chain.from_iterable(answers)
        for owner, job in work:
            folding = PartitionFold(job, partial(_read_below, engine, counter, job.topic_partition))
            # Also what a stopped partition does not need is taken: it must not be taken for the next one's.
            for task in job.tasks:
                result = next(results)
                counter.done(task.source.size_bytes, f"{job.topic_partition} {task.base_offset}")
                for event in folding.take(task, result):
                    yield owner, event
            for event in folding.finish():
                yield owner, event


def _read_below(
    engine: TaskEngine, counter: ProgressCounter, topic_partition: TopicPartition, task: SegmentTask
) -> DigestedSegment:
    """One segment below a window, read by the same engine."""
    ((result,),) = engine.run(digest_group, [(task,)])
    counter.done(task.source.size_bytes, f"{topic_partition} {task.base_offset}")
    return result
