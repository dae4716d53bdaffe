"""What must be read of a partition to know its producers at given offsets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Protocol

from producer_state.partition_log import Segment
from producer_state.snapshot import CorruptSnapshot, read_rows
from producer_state.table import ProducerTable
from producer_state.window import newest_timestamps, window_starts
from sidecar.errors import SegmentChanged
from sidecar.model import TopicPartition
from sidecar.pipeline.snapshots.jobs import Forgetting, PartitionJob
from sidecar.pipeline.snapshots.replay_mode import Replay
from sidecar.pipeline.snapshots.starts import Start, StartKind, TrustedSnapshots
from sidecar.pipeline.snapshots.tasks import SegmentTask


class PartitionLog(Protocol):
    """A partition's segments and snapshots, wherever they lie."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Which one."""
        ...

    @property
    def place(self) -> str:
        """For people: a directory, or a place in an archive."""
        ...

    @property
    def first_offset(self) -> int:
        """Base of the first segment. Raises PartitionError where there is none."""
        ...

    @property
    def log_start_offset(self) -> int:
        """What a broker replays from; DeleteRecords may have moved it above `first_offset`. Raises PartitionError."""
        ...

    @property
    def compacted(self) -> bool:
        """Whether a log cleaner is said to have been at it, or nobody can tell: offsets may be missing then."""
        ...

    @property
    def bases(self) -> tuple[int, ...]:
        """Bases of all segments above the first, and the end of the last rolled one: where tiering asks for a snapshot."""
        ...

    @property
    def snapshot_offsets(self) -> Collection[int]:
        """Where there are snapshots."""
        ...

    @property
    def dropped_below(self) -> int:
        """Up to which offset producers were left out by a restore; 0 where none were. See `dropped_producers`."""
        ...

    @property
    def keeps_undecided(self) -> bool:
        """Whether those were kept who were in the middle of a transaction."""
        ...

    @property
    def begins_anew(self) -> frozenset[int]:
        """Ends of segments above which nobody from below is known, though snapshots there name them; but for those undecided."""
        ...

    def snapshot(self, offset: int) -> tuple[bytes, int]:
        """A snapshot's bytes, and a time (ms) not before it was written and not later than now.

        Raises SegmentChanged if it is gone, PartitionError if it cannot be read.
        """
        ...

    def spans(self) -> Sequence[Segment]:
        """All segments with their newest timestamps, ascending and adjacent; the active one last, if there is one.

        The active one's newest timestamp is not known, and its end is any offset at or above its base.
        """
        ...

    def tasks(self, start_offset: int, last_offset: int, cuts: Sequence[int]) -> tuple[SegmentTask, ...]:
        """One per segment that holds offsets in [start_offset, last_offset), adjacent, with the cuts inside of it.

        Raises SegmentChanged if segments have vanished.
        """
        ...


def plan_full(log: PartitionLog, boundaries: Collection[int]) -> PartitionJob:
    """The job that gives the states at these offsets, each above the log's start, from one replay of the whole log.

    It begins at the log's start, with the snapshot there: producers whose batches are gone stand nowhere else.

    Raises SegmentChanged if segments vanished while they were listed, PartitionError if a snapshot cannot be read.
    """
    first = log.first_offset
    tasks = log.tasks(first, max(boundaries, default=first), sorted(boundaries))
    forgotten = frozenset(end for end in boundaries if end <= log.dropped_below and _is_left_out(log, end))
    return PartitionJob(
        log.topic_partition,
        (Start.at_log_start(_state_at_start(log, first)),),
        tasks,
        frozenset(boundaries),
        log.compacted,
        forgotten,
        log.keeps_undecided,
        log.begins_anew,
    )


def plan_job(
    log: PartitionLog,
    wanted: Collection[int],
    replay: Replay,
    forgetting: Forgetting,
    judged: Collection[int] = (),
) -> PartitionJob:
    """The job that gives the states at the wanted offsets, each above the log's start, and at `judged` ones on the way.

    With Replay.WINDOW, what each of the wanted needs is read, each segment once: from the newest trusted snapshot below it or
    from where its window begins, whichever is later. The whole log is read all the same where nobody ever expires, and
    where a restore has left producers out.

    Raises the errors of `plan_full`.
    """
    never_expires = forgetting.producer_id_expiration_ms is None
    if replay is Replay.FULL or never_expires or log.dropped_below or log.begins_anew:
        return plan_full(log, {*wanted, *judged})
    if not wanted:
        return PartitionJob(log.topic_partition, (), (), frozenset(), log.compacted)
    return _plan_window(log, sorted(wanted), forgetting, judged)


def _plan_window(
    log: PartitionLog, wanted: Sequence[int], forgetting: Forgetting, judged: Collection[int]
) -> PartitionJob:
    first = log.first_offset
    spans = log.spans()
    at_ends = {offset for offset in (*log.bases, *log.snapshot_offsets, *wanted, *judged) if offset > first}
    windows = window_starts(spans, at_ends, forgetting.expiration)
    snapshots = TrustedSnapshots(log, first, log.bases, windows)
    at_log_start = Start.at_log_start(_state_at_start(log, first))
    newest_below = newest_timestamps(spans)
    starts: dict[int, Start] = {}
    trusted: dict[int, ProducerTable] = {}
    ranges: list[tuple[int, int]] = []
    for offset in wanted:
        until = offset
        table = snapshots.newest(windows[offset], offset)
        if table is not None:
            start = Start(table, StartKind.SNAPSHOT, True, newest_below(table.end_offset))
        elif windows[offset] == first:
            start = at_log_start
        else:
            blank = ProducerTable.blank(windows[offset])
            start = Start(blank, StartKind.WINDOW, at_log_start.beginning_known, newest_below(blank.end_offset))
            above = snapshots.next(offset)
            if above is not None:
                trusted[above.end_offset] = above
                until = above.end_offset
        starts[start.offset] = start
        ranges.append((start.offset, until))
        if table is not None:
            trusted[table.end_offset] = table
    read = _Ranges(ranges)
    boundaries = frozenset(wanted).union(offset for offset in judged if read.holds(offset - 1))
    older = log.tasks(first, read.highest, sorted({*boundaries, *trusted}))
    tasks = tuple(task for task in older if read.holds(task.base_offset))
    return PartitionJob(
        log.topic_partition,
        tuple(starts[offset] for offset in sorted(starts)),
        tasks,
        boundaries,
        log.compacted,
        windows=windows,
        older=older,
        trusted=trusted,
    )


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
    """Whether the snapshot there may know nobody. One that does in spite of the restore is compared as ever."""
    if log.keeps_undecided or offset not in log.snapshot_offsets:
        return True
    try:
        return len(read_rows(log.snapshot(offset)[0])) == 0
    except (CorruptSnapshot, SegmentChanged):
        return True


def _state_at_start(log: PartitionLog, offset: int) -> ProducerTable:
    """What the snapshot at the log's start says, nothing known where there is none that can be read."""
    if offset == 0 or offset not in log.snapshot_offsets:
        return ProducerTable.blank(offset)
    try:
        return ProducerTable.from_snapshot(offset, log.snapshot(offset)[0])
    except (CorruptSnapshot, SegmentChanged):
        return ProducerTable.blank(offset)
