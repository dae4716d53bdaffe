"""What must be read of a partition to know its producers at given offsets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from producer_state.snapshot import CorruptSnapshot
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
    def bases(self) -> tuple[int, ...]:
        """Bases of all segments above the first, and the end of the last rolled one: where tiering asks for a snapshot."""
        ...

    @property
    def snapshot_offsets(self) -> Collection[int]:
        """Where there are snapshots."""
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


def plan_job(log: PartitionLog, boundaries: Collection[int], *, builds_on: Collection[int] = ()) -> PartitionJob:
    """The job that gives the states at these offsets, each above the log's start.

    Args:
        builds_on: offsets of snapshots from which the replay may begin. The one at the log's start is taken in any case:
            producers whose batches are gone stand nowhere else.

    Raises SegmentChanged if segments vanished while they were listed, PartitionError if a snapshot cannot be read.
    """
    first = log.first_offset
    lowest, highest = min(boundaries, default=first), max(boundaries, default=first)
    start = ProducerTable.blank(first)
    for offset in sorted({first, *log.bases} & {first, *builds_on}, reverse=True):
        found = _state_to_build_on(log, offset) if offset <= lowest else None
        if found is not None:
            start = found
            break
    tasks = log.tasks(start.end_offset, highest, sorted(boundaries))
    return PartitionJob(log.topic_partition, start, tasks, frozenset(boundaries))


def _state_to_build_on(log: PartitionLog, offset: int) -> ProducerTable | None:
    """What a snapshot says, None where it says nothing that replay from below would not find.

    An empty one is never taken: it is what a broker writes that finds none, and where it is true nothing is lost.
    """
    if offset == 0 or offset not in log.snapshot_offsets:
        return None
    try:
        table = ProducerTable.from_snapshot(offset, log.snapshot(offset)[0])
    except (CorruptSnapshot, SegmentChanged):
        return None
    return table if len(table) else None
