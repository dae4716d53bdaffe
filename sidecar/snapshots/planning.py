"""What must be read of a partition to know its producers at given offsets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from producer_state.exactness import knows_below
from producer_state.snapshot import CorruptSnapshot, read_rows
from producer_state.table import ProducerTable
from producer_state.window import newest_timestamps, window_starts
from sidecar.errors import SegmentChanged
from sidecar.snapshots import Replay
from sidecar.snapshots.jobs import Forgetting, PartitionJob
from sidecar.snapshots.starts import Start, StartKind, TrustedSnapshots, open_below

if TYPE_CHECKING:
    from sidecar.snapshots.resolve_paths import PartitionLog


def plan_full(log: PartitionLog, boundaries: Collection[int]) -> PartitionJob:
    """The job that gives the states at these offsets, each above the log's start, from one replay of the whole log.

    It begins at the log's start, with the snapshot there: producers whose batches are gone stand nowhere else.

    Raises SegmentChanged if segments vanished while they were listed, PartitionError if a snapshot cannot be read.
    """
    first = log.first_offset
    tasks = log.tasks(max(boundaries, default=first), sorted(boundaries))
    forgotten = frozenset(end for end in boundaries if end <= log.dropped_below and _is_left_out(log, end))
    table = _state_at_start(log)
    return PartitionJob(
        log.topic_partition,
        (Start.at_log_start(table),),
        tasks,
        frozenset(boundaries),
        log.compacted,
        forgotten,
        log.keeps_undecided,
        log.begins_anew,
        table_at=lambda _: table,
    )


def plan_job(
    log: PartitionLog,
    wanted: Collection[int],
    replay: Replay,
    forgetting: Forgetting,
    judged: Collection[int] = (),
    suspected: Collection[int] = (),
) -> PartitionJob:
    """The job that gives the states at the wanted offsets, each above the log's start, and at `judged` ones on the way.

    With Replay.WINDOW, what each of the wanted needs is read, each segment once: from the newest trusted snapshot below it or
    from where its window begins, whichever is later. Open transactions never expire: where no trusted snapshot names
    them, neither in the window nor above it, the newest below the window is where the replay begins, or the log's start.
    `suspected` are `judged`, and their windows are read in any case, without a search for open transactions.

    The whole log is read all the same where no producer ever expires, and where a restore has left producers out.

    Where the state below the log start is unknown, the next trusted snapshot names the transactions that are open since then.

    Raises the errors of `plan_full`.
    """
    if log.dropped_below or log.begins_anew:
        return plan_full(log, {*wanted, *judged, *suspected})
    if replay is Replay.FULL or forgetting.producer_id_expiration_ms is None:
        return _knowing_older_transactions(log, plan_full(log, {*wanted, *judged, *suspected}), forgetting)
    if not wanted and not suspected:
        return PartitionJob(log.topic_partition, (), (), frozenset(), log.compacted)
    return _plan_window(log, frozenset(wanted), forgetting, judged, sorted({*wanted, *suspected}))


def _plan_window(
    log: PartitionLog,
    wanted: frozenset[int],
    forgetting: Forgetting,
    judged: Collection[int],
    reached: Sequence[int],
) -> PartitionJob:
    first = log.first_offset
    table_at_start = _state_at_start(log)
    windows = _windows(
        log, (*reached, *judged), forgetting, int(table_at_start.rows["last_timestamp_ms"].max(initial=-1))
    )
    snapshots = TrustedSnapshots(log, windows)
    at_log_start = Start.at_log_start(table_at_start)
    if not at_log_start.beginning_known:
        table_at_start = _open_since_start(snapshots, first)
    newest_below = newest_timestamps(log.spans())
    starts: dict[int, Start] = {}
    trusted: set[int] = set()
    ranges: list[tuple[int, int]] = []
    for offset in reached:
        window, until = windows[offset], offset
        snapshot, above = snapshots.newest(window, offset), None
        if snapshot is None and window > first:
            above = snapshots.next(offset)
            if above is None and offset in wanted:
                snapshot, window = snapshots.newest(first, offset), first
        if snapshot is None and window == first:
            start = at_log_start
            if not start.beginning_known:
                # The next snapshot names the transactions that only deleted segments named, and the replay shows if it is right.
                until = max(until, snapshots.next(offset) or offset)
        else:
            witness = snapshot if snapshot is not None else above
            known = at_log_start.beginning_known
            if witness is not None:
                trusted.add(witness)
                until = max(until, witness)
                recorded = log.recorded_exact(witness)
                known = knows_below(recorded=recorded, beginning_known=known, compacted=log.compacted)
            kind = StartKind.WINDOW if snapshot is None else StartKind.SNAPSHOT
            begin = window if snapshot is None else snapshot
            known = known and (begin not in starts or starts[begin].beginning_known)
            start = Start(begin, kind, known, snapshot is not None, newest_below(begin))
        starts[start.offset] = start
        ranges.append((start.offset, until))
    read = _Ranges(ranges)
    boundaries = frozenset(reached).union(offset for offset in judged if read.holds(offset - 1))
    older = log.tasks(read.highest, sorted({*boundaries, *trusted}))
    tasks = tuple(task for task in older if read.holds(task.base_offset))
    return PartitionJob(
        log.topic_partition,
        tuple(starts[offset] for offset in sorted(starts)),
        tasks,
        boundaries,
        log.compacted,
        windows=windows,
        older=older,
        trusted=frozenset(trusted),
        beginning_known=at_log_start.beginning_known,
        table_at=lambda offset: table_at_start if offset == first else snapshots.table(offset),
    )


def _windows(log: PartitionLog, offsets: Collection[int], forgetting: Forgetting, known_ms: int = -1) -> dict[int, int]:
    """Where the windows of these offsets, of all bases and of all snapshots begin.

    A producer that comes back after its window is a new one. It must be one for a broker of that time, too, and not only now:
    brokers expire by the time of the log.

    Args:
        known_ms: the newest timestamp in the snapshot at the log's start. Where it has not expired, the window begins there.
    """
    spans = log.spans()
    above = {offset for offset in (*log.bases, *log.snapshot_offsets, *offsets) if offset > log.first_offset}
    windows = dict.fromkeys(above, max(above, default=0))
    newest_below = newest_timestamps(spans)
    for each in {forgetting, replace(forgetting, as_of_ms=None)}:
        for offset, begin in window_starts(spans, above, each.expiration).items():
            is_known = each.expiration(newest_below(offset)).keeps(known_ms)
            windows[offset] = min(windows[offset], log.first_offset if is_known else begin)
    return windows


def _knowing_older_transactions(log: PartitionLog, job: PartitionJob, forgetting: Forgetting) -> PartitionJob:
    if all(start.beginning_known for start in job.starts):
        return job
    first = log.first_offset
    snapshots = TrustedSnapshots(log, _windows(log, (), forgetting))
    table = _open_since_start(snapshots, first)
    return replace(job, table_at=lambda _: table)


def _open_since_start(snapshots: TrustedSnapshots, first: int) -> ProducerTable:
    """What the next trusted snapshot proves about a log start where the state below it is unknown."""
    witness = None if (offset := snapshots.next(first)) is None else snapshots.table(offset)
    return ProducerTable.blank(first) if witness is None else ProducerTable(first, open_below(witness, first)[0])


class _Ranges:
    """Offsets `[start, end)` that are read."""

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        ascending = sorted(ranges)
        self._starts = [start for start, _ in ascending]
        self._ends = list(accumulate((end for _, end in ascending), max))
        self.highest = self._ends[-1]

    def holds(self, offset: int) -> bool:
        index = bisect_right(self._starts, offset) - 1
        return index >= 0 and offset < self._ends[index]


def _is_left_out(log: PartitionLog, offset: int) -> bool:
    """Whether the snapshot there may be empty. One that does in spite of the restore is compared as ever."""
    if log.keeps_undecided or offset not in log.snapshot_offsets:
        return True
    try:
        return len(read_rows(log.snapshot(offset)[0])) == 0
    except (CorruptSnapshot, SegmentChanged):
        return True


def _state_at_start(log: PartitionLog) -> ProducerTable:
    """What the snapshot at the log's start says, nothing known where there is none that can be read."""
    offset = log.first_offset
    if offset == 0 or offset not in log.snapshot_offsets:
        return ProducerTable.blank(offset)
    try:
        return ProducerTable.from_snapshot(offset, log.snapshot(offset)[0])
    except (CorruptSnapshot, SegmentChanged):
        return ProducerTable.blank(offset)
