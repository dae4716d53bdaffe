"""What must be read of a partition to know its producers at given offsets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from producer_state.snapshot import CorruptSnapshot, read_rows
from producer_state.table import ProducerTable
from sidecar.errors import SegmentChanged
from sidecar.model import TopicPartition
from sidecar.pipeline.snapshots.folding import PartitionJob
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

    def tasks(self, start_offset: int, last_offset: int, cuts: Sequence[int]) -> tuple[SegmentTask, ...]:
        """One per segment that holds offsets in [start_offset, last_offset), adjacent, with the cuts inside of it.

        Raises SegmentChanged if segments have vanished.
        """
        ...


def plan_job(log: PartitionLog, boundaries: Collection[int]) -> PartitionJob:
    """The job that gives the states at these offsets, each above the log's start.

    It begins at the log's start, with the snapshot there: producers whose batches are gone stand nowhere else.

    Raises SegmentChanged if segments vanished while they were listed, PartitionError if a snapshot cannot be read.
    """
    first = log.first_offset
    start = _state_at_start(log, first)
    tasks = log.tasks(first, max(boundaries, default=first), sorted(boundaries))
    forgotten = frozenset(end for end in boundaries if end <= log.dropped_below and _is_left_out(log, end))
    return PartitionJob(
        log.topic_partition,
        start,
        tasks,
        frozenset(boundaries),
        log.compacted,
        forgotten,
        log.keeps_undecided,
        log.begins_anew,
    )


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
