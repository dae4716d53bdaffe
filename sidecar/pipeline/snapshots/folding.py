"""The states of many partitions at many offsets, from one pass over their segments."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, islice
from typing import Final, TypeAlias

from producer_state.digest import SegmentDigest, apply, merge
from producer_state.table import Expiration, ProducerTable
from producer_state.wire import ProducerStateError
from sidecar.engine_ports import TaskEngine
from sidecar.model import TopicPartition
from sidecar.pipeline.snapshots.gaps import describe_gap, has_gap
from sidecar.pipeline.snapshots.splitting import parts_of
from sidecar.pipeline.snapshots.tasks import DigestedSegment, SegmentTask, digest_group, digest_segment, unpacked

GROUP_BYTES: Final = 16 * 1024 * 1024
GROUP_TASKS: Final = 64
"""Small segments go to a worker many at a time: up to this much, and this many."""


@dataclass(frozen=True, slots=True)
class PartitionJob:
    """Fold the tasks, which are adjacent, onto `start`, the state at the first one's base; report at the boundaries.

    `compacted`: offsets may be missing anywhere. Else nothing can be told above the first that is.
    `forgotten`: boundaries at which nobody is known, on purpose, nor above the last one who was before; but for those in a
    transaction, if `keeps_undecided`. `begins_anew`: ends of segments above which only those go on who are in a transaction.
    """

    topic_partition: TopicPartition
    start: ProducerTable
    tasks: tuple[SegmentTask, ...]
    boundaries: frozenset[int]
    compacted: bool = False
    forgotten: frozenset[int] = frozenset()
    keeps_undecided: bool = False
    begins_anew: frozenset[int] = frozenset()

    @property
    def from_snapshot(self) -> bool:
        """Whether the start is a broker's snapshot; else nothing is known there."""
        return len(self.start) > 0

    @property
    def size_bytes(self) -> int:
        """Bytes to read."""
        return sum(task.size_bytes for task in self.tasks)


@dataclass(frozen=True, slots=True)
class StateAt:
    """State at a boundary, expired producers included, and the largest batch timestamp read so far (-1: none).

    `exact`: no cleaner has been where it was read.
    """

    table: ProducerTable
    exact: bool
    log_time_ms: int


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A boundary at which no batch ends."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """No state above `offset` can be told."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more comes of this partition."""


Event: TypeAlias = StateAt | Misplaced | Stopped | Ended
Digested: TypeAlias = Callable[[PartitionJob, SegmentTask], None]


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Which producers a snapshot leaves out.

    `as_of_ms` None: those that were idle for the expiration time when the newest batch below the boundary was written, or
    at `now_ms` if that is earlier; with margins. No loader's clock will be behind that, and the bytes do not depend on
    when they are written. Else: those expired at that very moment.
    """

    now_ms: int
    producer_id_expiration_ms: int | None
    as_of_ms: int | None = None

    def snapshot_table(self, state: StateAt) -> ProducerTable:
        """The producers that the snapshot at this state names."""
        return state.table.unexpired(self.expiration(state.log_time_ms))

    def expiration(self, log_time_ms: int) -> Expiration:
        """See the class."""
        if self.as_of_ms is not None:
            return Expiration(self.as_of_ms, self.producer_id_expiration_ms)
        return Expiration.with_margins(min(log_time_ms, self.now_ms), self.producer_id_expiration_ms)


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
            digests = ((task, _joined(task, list(islice(results, len(next(sizes)))))) for task in job.tasks)
            for event in _fold_one(job, digests, digested):
                yield index, event
            for _ in digests:  # What a stopped partition left unread must not be taken for the next one's.
                continue


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


def _fold_one(
    job: PartitionJob, digests: Iterable[tuple[SegmentTask, DigestedSegment]], digested: Digested | None
) -> Iterator[Event]:
    state = StateAt(job.start, exact=True, log_time_ms=-1)
    last_forgotten = max(job.forgotten, default=-1)
    if state.table.end_offset in job.boundaries:
        yield state
    for task, result in digests:
        if digested is not None:
            digested(job, task)
        yield from (Misplaced(*found) for found in result.misplaced)
        for piece in result.pieces:
            if not job.compacted and has_gap(piece):
                yield Stopped(state.table.end_offset, describe_gap(job.topic_partition, task, piece))
                yield Ended()
                return
            try:
                state = _after(state, piece)
            except ProducerStateError as error:
                yield Stopped(state.table.end_offset, f"{task.source.name}: {error}")
                yield Ended()
                return
            end_offset = state.table.end_offset
            shown = state
            if end_offset in job.forgotten:
                kept = state.table.in_transaction() if job.keeps_undecided else ProducerTable.blank(end_offset)
                shown = StateAt(kept, exact=True, log_time_ms=state.log_time_ms)
            if end_offset == last_forgotten:
                state = shown
            if end_offset in job.boundaries:
                yield shown
            if end_offset in job.begins_anew:
                state = replace(state, table=state.table.in_transaction(), exact=True)
        if result.problem:
            yield Stopped(state.table.end_offset, result.problem)
            break
    yield Ended()


def _after(state: StateAt, piece: SegmentDigest) -> StateAt:
    log_time_ms = max(state.log_time_ms, piece.coverage.max_timestamp_ms)
    return StateAt(apply(state.table, piece), state.exact and piece.exact, log_time_ms)
