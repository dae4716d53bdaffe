"""The states of many partitions at many offsets, from one pass over their segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Final

from sidecar.engine_ports import TaskEngine, grouped
from sidecar.model import TopicPartition
from sidecar.reporting.progress import ProgressCounter, Watcher
from sidecar.snapshots.jobs import Event, PartitionJob
from sidecar.snapshots.partition_fold import PartitionFold
from sidecar.snapshots.tasks import DigestedSegment, SegmentTask, digest_group

GROUP_BYTES: Final = 16 * 1024 * 1024
GROUP_TASKS: Final = 64
"""Small segments go to a worker many at a time: up to this much, and this many."""


class Counting:
    """Reports the progress of the jobs to a watcher. A window replay may find that it needs more than was planned."""

    def __init__(self, jobs: Sequence[PartitionJob], watcher: Watcher | None) -> None:
        self._counter = ProgressCounter(
            watcher, sum(len(job.tasks) for job in jobs), sum(job.size_bytes for job in jobs)
        )
        self._read_bytes: Counter[TopicPartition] = Counter()

    def digested(self, job: PartitionJob, task: SegmentTask) -> None:
        """The digest of a task has arrived."""
        self._read_bytes[job.topic_partition] += task.size_bytes
        self._counter.done(task.size_bytes, f"{job.topic_partition} {task.base_offset}")

    def read_bytes(self, job: PartitionJob) -> int:
        return self._read_bytes[job.topic_partition]


def fold(jobs: Sequence[PartitionJob], engine: TaskEngine, counting: Counting) -> Iterator[tuple[int, Event]]:
    """The events of each job with its index, ascending by offset, job after job; the last one of each is `Ended`.

    Memory: one state, and the digests that the engine holds ready. One partition's damage stops only that partition.
    """
    tasks = chain.from_iterable(job.tasks for job in jobs)
    groups = list(grouped(tasks, lambda task: task.size_bytes, GROUP_BYTES, GROUP_TASKS))
    # closing: when the consumer gives up, the engine's processes end now and not when the garbage collector runs.
    with closing(engine.run(digest_group, groups)) as answers:
        results = chain.from_iterable(answers)
        for index, job in enumerate(jobs):
            folding = PartitionFold(job, partial(_read_below, engine, counting, job))
            # Also what a stopped partition does not need is taken: it must not be taken for the next one's.
            for task in job.tasks:
                result = next(results)
                counting.digested(job, task)
                for event in folding.take(task, result):
                    yield index, event
            for event in folding.finish():
                yield index, event


def _read_below(engine: TaskEngine, counting: Counting, job: PartitionJob, task: SegmentTask) -> DigestedSegment:
    """One segment below a window, read by the same engine."""
    ((result,),) = engine.run(digest_group, [(task,)])
    counting.digested(job, task)
    return result
