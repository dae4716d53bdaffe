"""The producers at the end of a segment that is cut there, from all that the archive has of it.

What lies below a cut at its beginning counts, too: a marker there has ended a transaction that began earlier.
"""

from __future__ import annotations

from collections.abc import Mapping

from producer_state.replay import replay
from producer_state.table import ProducerTable
from producer_state.wire import ProducerStateError
from sidecar.errors import PartitionError
from sidecar.logformat.columns import BatchColumns
from sidecar.model import ArchivedSegment, ObjectKey, PartName
from sidecar.ports import ObjectStore
from sidecar.restore.gaps.gap_transactions import carried_over, ended_in_hole
from sidecar.restore.plan import PartitionPlan, SegmentPlan
from sidecar.restore.segments.segment_check import fetch_parts
from sidecar.restore.staging import StagedPartition, translating


class ProducersAtEnd:
    """A fold over the batches of a segment, from its archived base to where it is cut.

    `table`: the state so far. `replays`: False where the segment is not cut at its end, so that the archived snapshot tells;
    then nothing is done.
    """

    def __init__(
        self,
        store: ObjectStore,
        partition: PartitionPlan,
        plan: SegmentPlan,
        key: ObjectKey,
        parts: Mapping[PartName, bytes],
    ) -> None:
        """Args: key: the segment's, for messages. parts: the segment's, all of them. Raises CorruptFile, StoreError."""
        self._key = key
        self.replays = plan.is_cut_at_end
        self.table = ProducerTable.blank(plan.segment.base_offset)
        if self.replays and partition.before is not None:
            self.table = _state_at(store, partition, partition.before, plan.segment.base_offset, parts)

    def add(self, columns: BatchColumns) -> None:
        """The next batches, none of them behind the cut. Raises PartitionError."""
        if not self.replays or not len(columns):
            return
        try:
            self.table, _ = replay(self.table, columns.facts())
        except ProducerStateError as error:
            raise PartitionError(f"{self._key}: {error}") from error


def _state_at(
    store: ObjectStore,
    partition: PartitionPlan,
    before: ArchivedSegment,
    base_offset: int,
    parts: Mapping[PartName, bytes],
) -> ProducerTable:
    """The state at a segment's base: that at the end of the one below, carried over what is lost in between."""
    archived = fetch_parts(store, partition.state.lineage.root, before)[PartName.PRODUCER_SNAPSHOT]
    table = ProducerTable.from_snapshot(before.end_offset, archived)
    if before.end_offset == base_offset:
        return table
    indexes = [parts[PartName.TRANSACTION_INDEX]] if PartName.TRANSACTION_INDEX in parts else []
    return carried_over(table, ended_in_hole(table, parts[PartName.PRODUCER_SNAPSHOT], indexes), base_offset)


def kept_producers(staged: StagedPartition, plan: SegmentPlan, end_offset: int) -> ProducerTable:
    """The state that was kept while the segment was fetched, by this run or an earlier one. Raises PartitionError."""
    path = staged.directory / plan.producers_name
    try:
        with translating(path):
            return ProducerTable.from_snapshot(end_offset, path.read_bytes())
    except ProducerStateError as error:
        raise PartitionError(f"{path}: {error}; remove it, and run the same command again") from error
