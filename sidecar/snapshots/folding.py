"""The states of many partitions at many offsets, from one pass over their segments.

Large segments are split at batches that their offset index names, so that one segment keeps several cores busy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial, reduce
from itertools import chain, islice
from pathlib import Path
from typing import Final

import numpy as np

from producer_state.digest import merge
from producer_state.wire import ProducerStateError
from sidecar.engine_ports import TaskEngine, grouped
from sidecar.logformat.files import read_regular
from sidecar.model import TopicPartition
from sidecar.reporting.progress import ProgressCounter, Watcher
from sidecar.snapshots.jobs import Event, PartitionJob
from sidecar.snapshots.partition_fold import PartitionFold
from sidecar.snapshots.tasks import DigestedSegment, SegmentTask, digest_group, digest_segment

GROUP_BYTES: Final = 16 * 1024 * 1024
GROUP_TASKS: Final = 64
"""Small segments go to a worker many at a time: up to this much, and this many."""
PART_BYTES: Final = 128 * 1024 * 1024
"""Segments of twice this size and more are split. Handing out a smaller part costs two busy cores more than it evens out."""
_ENTRY = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])


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
    parts = [parts_of(task) for job in jobs for task in job.tasks]
    groups = list(grouped(chain.from_iterable(parts), lambda task: task.size_bytes, GROUP_BYTES, GROUP_TASKS))
    # closing: when the consumer gives up, the engine's processes end now and not when the garbage collector runs.
    with closing(engine.run(digest_group, groups)) as answers:
        results = chain.from_iterable(answers)
        sizes = iter(parts)
        for index, job in enumerate(jobs):
            folding = PartitionFold(job, partial(_read_below, engine, counting, job))
            # Also what a stopped partition does not need is taken: it must not be taken for the next one's.
            for task in job.tasks:
                result = _joined(task, list(islice(results, len(next(sizes)))))
                counting.digested(job, task)
                for event in folding.take(task, result):
                    yield index, event
            for event in folding.finish():
                yield index, event


def _read_below(engine: TaskEngine, counting: Counting, job: PartitionJob, task: SegmentTask) -> DigestedSegment:
    """One segment below a window, read by the same engine."""
    (results,) = engine.run(digest_group, [parts_of(task)])
    counting.digested(job, task)
    return _joined(task, results)


def _joined(task: SegmentTask, results: list[DigestedSegment]) -> DigestedSegment:
    """The digest of a segment from those of its parts."""
    if len(results) == 1:
        return results[0]
    try:
        if not any(result.problem for result in results):
            pieces = [piece for result in results for piece in result.pieces]
            return DigestedSegment((reduce(merge, pieces),))
    except (ProducerStateError, ValueError):
        return digest_segment(task)
    # A damaged batch, or an index that does not point at batches: only a walk from the start can tell, and say where.
    return digest_segment(task)


def parts_of(task: SegmentTask, part_bytes: int = PART_BYTES) -> tuple[SegmentTask, ...]:
    """The task, or parts of it of about `part_bytes` each.

    The index may be wrong: each part is checked to end where the next begins, and if one does not the segment is read whole.
    """
    index = task.source.offset_index
    if index is None or task.cuts or task.end_offset is None or task.size_bytes < 2 * part_bytes:
        return (task,)
    starts = [0, *_positions(index, task.size_bytes, part_bytes)]
    ends: Sequence[int | None] = [*starts[1:], None]
    return tuple(replace(task, start_position=start, end_position=end) for start, end in zip(starts, ends, strict=True))


def _positions(index: Path, size_bytes: int, part_bytes: int) -> list[int]:
    """Positions of batches at or above each multiple of `part_bytes`, as far as the index knows any."""
    try:
        data = read_regular(index)
    except OSError:
        return []
    positions = np.frombuffer(data, _ENTRY, count=len(data) // _ENTRY.itemsize)["position"].astype(np.int64)
    positions = positions[: int(np.argmax(positions)) + 1] if len(positions) else positions
    at = np.searchsorted(positions, np.arange(part_bytes, size_bytes - part_bytes // 2, part_bytes))
    found = np.unique(positions[at[at < len(positions)]])
    return [int(position) for position in found if 0 < position < size_bytes]
