"""The states of many partitions at many offsets, from one pass over their segments."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial, reduce
from itertools import chain, islice
from typing import Final, TypeAlias

from producer_state.digest import merge
from producer_state.wire import ProducerStateError
from sidecar.engine_ports import TaskEngine
from sidecar.pipeline.snapshots.jobs import Event, PartitionJob
from sidecar.pipeline.snapshots.partition_fold import PartitionFold
from sidecar.pipeline.snapshots.splitting import parts_of
from sidecar.pipeline.snapshots.tasks import DigestedSegment, SegmentTask, digest_group, digest_segment, unpacked

GROUP_BYTES: Final = 16 * 1024 * 1024
GROUP_TASKS: Final = 64
"""Small segments go to a worker many at a time: up to this much, and this many."""


Digested: TypeAlias = Callable[[PartitionJob, SegmentTask], None]


def fold(
    jobs: Sequence[PartitionJob], engine: TaskEngine, digested: Digested | None = None
) -> Iterator[tuple[int, Event]]:
    """The events of each job with its index, ascending by offset, job after job; the last one of each is `Ended`.

    Memory: one state, and the digests that the engine holds ready. One partition's damage stops only that partition.

    Args:
        digested: told of each task whose digest has arrived.
    """
    parts = [parts_of(task) for job in jobs for task in job.tasks]
    groups = list(_grouped(chain.from_iterable(parts)))
    # closing: when the consumer gives up, the engine's processes end now and not when the collector comes round.
    with closing(_closable(engine.run(digest_group, groups))) as answers:
        results = chain.from_iterable(unpacked(answer) for answer in answers)
        sizes = iter(parts)
        for index, job in enumerate(jobs):
            folding = PartitionFold(job, partial(_read_below, engine, digested, job))
            # Also what a stopped partition does not need is taken: it must not be taken for the next one's.
            for task in job.tasks:
                result = _joined(task, list(islice(results, len(next(sizes)))))
                if digested is not None:
                    digested(job, task)
                for event in folding.take(task, result):
                    yield index, event
            for event in folding.finish():
                yield index, event


def _read_below(engine: TaskEngine, digested: Digested | None, job: PartitionJob, task: SegmentTask) -> DigestedSegment:
    """One segment below a window, read by the same engine."""
    parts = parts_of(task)
    results = [each for answer in engine.run(digest_group, [parts]) for each in unpacked(answer)]
    if digested is not None:
        digested(job, task)
    return _joined(task, results)


def _closable(answers: Iterator[bytes]) -> Generator[bytes, None, None]:
    yield from answers


def _grouped(tasks: Iterable[SegmentTask]) -> Iterator[tuple[SegmentTask, ...]]:
    group: list[SegmentTask] = []
    size_bytes = 0
    for task in tasks:
        if group and (size_bytes + task.size_bytes > GROUP_BYTES or len(group) == GROUP_TASKS):
            yield tuple(group)
            group, size_bytes = [], 0
        group.append(task)
        size_bytes += task.size_bytes
    if group:
        yield tuple(group)


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
