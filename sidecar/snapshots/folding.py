"""The states of many partitions at many offsets, from one pass over their segments: over gaps in what was read, and over damage."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain
from typing import Final, TypeVar

import numpy as np

from producer_state.digest import HAS_OPERATIONS, SegmentDigest, apply, merge
from producer_state.facts import Int64Column
from producer_state.holes import SegmentUnreadable, answer, markers_of, questions_of
from producer_state.snapshot import Rows
from producer_state.table import ProducerTable
from producer_state.wire import ProducerStateError
from sidecar.engine_ports import TaskEngine, grouped
from sidecar.model import TopicPartition
from sidecar.reporting.progress import ProgressCounter, Watcher
from sidecar.snapshots.gaps import describe_gap, has_gap
from sidecar.snapshots.jobs import Ended, Event, Misplaced, PartitionJob, StateAt, Stopped
from sidecar.snapshots.starts import Start, StartKind, open_below, with_rows, without_batch
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
    ((result,),) = engine.run(digest_group, [(task,)])
    counter.done(task.source.size_bytes, f"{topic_partition} {task.base_offset}")
    return result


ReadBelow = Callable[[SegmentTask], DigestedSegment]


class PartitionFold:
    """Takes the digests of a job's tasks in order, and gives its events; see `PartitionJob`."""

    def __init__(self, job: PartitionJob, read_below: ReadBelow) -> None:
        """Args: read_below: digests one of the job's `older` segments."""
        self._job = job
        self._read_below = read_below
        self._starts = {start.offset: start for start in job.starts}
        self._state: StateAt | None = None
        self._window: _Window | None = None
        self._last_forgotten = max(job.forgotten, default=-1)
        self._known: StateAt | None = None
        self._damaged: set[int] = set()
        self._unused: dict[int, DigestedSegment] = {}
        self._remedy = ""
        self._read_bytes = 0

    def take(self, task: SegmentTask, result: DigestedSegment) -> Iterator[Event]:
        self._remedy = task.source.remedy
        self._read_bytes += task.source.size_bytes
        if self._position != task.base_offset:
            yield from self._flush()
            if self._state is not None and self._state.transactions_known:
                self._known = self._state
            self._state = None
        yield from self._begin(self._starts.get(task.base_offset))
        if self._position is None:
            if self._job.older and task.base_offset < max(self._starts):
                self._unused[task.base_offset] = result
            return
        yield from (Misplaced(*found) for found in result.misplaced)
        for piece in result.pieces:
            if not self._job.compacted and has_gap(piece):
                yield from self._stop(describe_gap(self._job.topic_partition, task, piece), task)
                return
            try:
                yield from self._follow(piece)
            except ProducerStateError as error:
                yield from self._stop(f"{task.source.name}: {error}; {self._remedy}", task)
                return
        if result.problem:
            yield from self._stop(result.problem, task)

    def finish(self) -> Iterator[Event]:
        yield from self._flush()
        yield Ended(self._read_bytes)

    @property
    def _position(self) -> int | None:
        """The offset that the replay has reached, None if it has not begun."""
        if self._window is not None:
            return self._window.end_offset
        return None if self._state is None else self._state.table.end_offset

    def _begin(self, start: Start | None) -> Iterator[Event]:
        if start is None:
            return
        if self._position is not None:
            # What is exact already gains nothing. A trusted snapshot has more than a state that is not.
            inexact = self._window is not None or (self._state is not None and not self._state.exact)
            if start.kind is not StartKind.SNAPSHOT or not inexact:
                return
            yield from self._flush()
            if self._state is not None and self._state.exact:
                return
        if start.kind is StartKind.WINDOW:
            if any(offset > start.offset for offset in self._job.trusted):
                self._window = _Window(start)
            else:
                self._state = _knowing_nothing(start)
            return
        table = self._job.table_at(start.offset)
        if table is None:
            # The snapshot is gone. Without it, nothing is known above but what the replay from below knows.
            if self._position is None:
                reason = (
                    f"{start.offset}.snapshot: the replay should begin from it, but it was deleted or cannot be read"
                )
                yield Stopped(start.offset, reason, self._next_boundary(start.offset + 1))
            return
        self._state = StateAt(table, start.log_time_ms, start)
        if start.kind is StartKind.LOG_START and start.offset in self._job.boundaries:
            yield self._state

    def _follow(self, piece: SegmentDigest, unresolved: Collection[int] = ()) -> Iterator[Event]:
        """Args: unresolved: offsets at which it is unknown which transactions are open."""
        if self._window is not None:
            self._window.digests.append(piece)
            if piece.coverage.end_offset in self._job.trusted:
                yield from self._flush()
            return
        if self._state is None:
            return
        state = _after(self._state, piece)
        end_offset = state.table.end_offset
        shown = replace(state, transactions_known=False) if end_offset in unresolved else state
        if end_offset in self._job.forgotten:
            kept = state.table.in_transaction() if self._job.keeps_undecided else ProducerTable.blank(end_offset)
            shown = StateAt(kept, state.log_time_ms, state.start, dropped=True)
        if end_offset == self._last_forgotten:
            state = shown
        if self._is_wanted(end_offset, state):
            yield shown
        if end_offset in self._job.begins_anew:
            state = StateAt(state.table.in_transaction(), state.log_time_ms, state.start, dropped=True)
        self._state = state

    def _is_wanted(self, offset: int, state: StateAt) -> bool:
        return offset in self._job.boundaries and self._reaches(state.start, offset)

    def _reaches(self, start: Start, boundary: int) -> bool:
        """Whether a replay from there has seen whom a broker knows at the boundary."""
        return start.kind is not StartKind.WINDOW or start.offset <= self._job.windows.get(boundary, start.offset)

    def _stop(self, reason: str, task: SegmentTask) -> Iterator[Event]:
        yield from self._flush()
        offset = self._position if self._position is not None else task.base_offset
        self._damaged.add(task.base_offset)
        yield Stopped(offset, reason, self._next_boundary(task.end_offset))
        self._state = self._window = None

    def _next_boundary(self, end_offset: int | None) -> int | None:
        """The first boundary of which a replay that begins at or above an offset gives the state."""
        starts = [start for start in self._job.starts if end_offset is not None and start.offset >= end_offset]
        return next(
            (
                boundary
                for boundary in sorted(self._job.boundaries)
                if any(start.offset < boundary and self._reaches(start, boundary) for start in starts)
            ),
            None,
        )

    def _flush(self) -> Iterator[Event]:
        """End a window replay: find out what its start could not know, and go on from there as from any other state."""
        window, self._window = self._window, None
        if window is None:
            return
        try:
            self._state, unresolved = self._resolved(window)
            for digest in window.digests:
                yield from self._follow(digest, unresolved)
        except ProducerStateError as error:
            # Its own batches contradict one another; a broker would refuse this log.
            offset = window.start.offset if self._state is None else self._state.table.end_offset
            self._state = None
            yield Stopped(offset, f"{error}; {self._remedy}", self._next_boundary(window.end_offset))
            return
        if window.end_offset in unresolved:
            self._state = replace(self._state, transactions_known=False)

    def _read_unless_read(self, task: SegmentTask) -> DigestedSegment:
        if (result := self._unused.pop(task.base_offset, None)) is not None:
            return result
        self._read_bytes += task.source.size_bytes
        return self._read_below(task)

    def _resolved(self, window: _Window) -> tuple[StateAt, Collection[int]]:
        """The state at a window's start with what older segments tell, and the boundaries at which something is still unknown.

        The trusted snapshot at the window's end names the transactions that are open there. What was open at a boundary
        below is open there too, or has a marker between. It names the last marker's coordinator epoch as well, for no marker
        comes after a transaction's beginning.
        """
        start = window.start
        witness = self._job.table_at(window.end_offset) if window.end_offset in self._job.trusted else None
        ends = [digest.coverage.end_offset for digest in window.digests]
        wanted = [offset for offset in ends if offset in self._job.boundaries and self._reaches(start, offset)]
        if witness is None or not wanted:
            return _knowing_nothing(start), ()
        undecided = witness.in_transaction().rows
        older, late = open_below(witness, start.offset)
        questions = questions_of(window.digests, start.offset, wanted, older["producer_id"].tolist())
        below = _Below(self._job, start.offset, self._damaged, self._read_unless_read)
        known = self._known
        found = answer(below, questions, start.offset, None if known is None else known.table)
        state = StateAt(found.table, start.log_time_ms, start, cleaned=not found.uncleaned)
        if known is not None and below.lowest_read <= known.table.end_offset:
            state = replace(state, cleaned=state.cleaned or known.cleaned)
        if below.reached_log_start and not self._job.beginning_known:
            state = replace(state, start=replace(start, beginning_known=False))
        state = replace(state, table=_with_coordinators(state.table, undecided, window))
        if found.unreadable_below is None:
            return state, ()
        state = replace(state, table=with_rows(state.table, older))
        asked_ends = {*wanted, window.end_offset}
        resolved = (
            end for end in asked_ends if self._is_resolved(window, end, found.unreadable_below, undecided, late)
        )
        return state, asked_ends.difference(resolved)

    def _is_resolved(
        self, window: _Window, boundary: int, below: SegmentDigest, undecided: Rows, late: Int64Column
    ) -> bool:
        """Whether all of a boundary is known of whom a broker knows there, though nothing below `below` can be read.

        Args:
            undecided: the transactions that are open at the window's end.
            late: producers whose last batch below the window is not known.
        """
        begin = max(window.start.offset, self._job.windows.get(boundary, -1))
        before = [digest for digest in window.digests if digest.coverage.end_offset <= begin]
        after = window.digests[len(before) :]
        open_there = undecided["producer_id"][undecided["current_txn_first_offset"] < boundary]
        asked = questions_of(after, begin, [boundary], ()).but(open_there)
        rows = [digest.rows for digest in window.digests if digest.coverage.end_offset <= boundary]
        heard = [each["producer_id"][each["flags"] & HAS_OPERATIONS != 0] for each in rows]
        return asked.answered_by(reduce(merge, before, below)) and bool(np.isin(late, np.concatenate(heard)).all())


@dataclass(slots=True)
class _Window:
    start: Start
    digests: list[SegmentDigest] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.digests[-1].coverage.end_offset if self.digests else self.start.offset


class _Below:
    """The log below a window as a `producer_state.holes.LogBelow`. Each segment is read once, and only if it is asked for."""

    def __init__(self, job: PartitionJob, end_offset: int, damaged: Collection[int], read_below: ReadBelow) -> None:
        self._job = job
        self._unread = [task for task in job.older if task.base_offset < end_offset]
        self._log_start = min((task.base_offset for task in self._unread), default=end_offset)
        self._damaged = damaged
        self._read_below = read_below
        self.lowest_read = end_offset

    @property
    def reached_log_start(self) -> bool:
        return self.lowest_read == self._log_start

    def table(self, offset: int) -> ProducerTable | None:
        is_known = offset in self._job.trusted or offset == self._log_start
        return self._job.table_at(offset) if is_known else None

    def next_digest(self) -> SegmentDigest | None:
        if not self._unread:
            return None
        task = self._unread.pop()
        self.lowest_read = task.base_offset
        if task.base_offset in self._damaged:
            raise SegmentUnreadable
        result = self._read_below(replace(task, cuts=()))
        if result.problem or not result.pieces:
            raise SegmentUnreadable(result.problem)
        whole = reduce(merge, result.pieces)
        if has_gap(whole) and not self._job.compacted:
            raise SegmentUnreadable(f"{task.source.name}: offsets are missing")
        return whole


def _knowing_nothing(start: Start) -> StateAt:
    """Where it is unknown which transactions are open."""
    return StateAt(ProducerTable.blank(start.offset), start.log_time_ms, start, transactions_known=False)


def _with_coordinators(table: ProducerTable, undecided: Rows, window: _Window) -> ProducerTable:
    """With the coordinators that the snapshot at a window's end names, of those whose last marker lies below the window.

    Args:
        undecided: the transactions that are open at the window's end.
    """
    known = table.rows["producer_id"][table.rows["coordinator_epoch"] >= 0]
    marked = np.array(sorted(markers_of(window.digests)), np.int64)
    begun = undecided[undecided["current_txn_first_offset"] >= window.start.offset]
    silent = without_batch(begun[~np.isin(begun["producer_id"], np.union1d(known, marked))])
    silent["current_txn_first_offset"] = -1
    return with_rows(table, silent)


def _after(state: StateAt, piece: SegmentDigest) -> StateAt:
    return replace(
        state,
        table=apply(state.table, piece),
        log_time_ms=max(state.log_time_ms, piece.coverage.max_timestamp_ms),
        cleaned=state.cleaned or not piece.exact,
    )
