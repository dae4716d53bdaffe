"""What is written where offsets inside of what is restored are lost: the state behind them, and abort markers among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from producer_state.table import ProducerTable
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.logformat.names import Suffix, file_name
from sidecar.model import ArchivedSegment, PartName
from sidecar.restore.gaps.gap_transactions import UnsettledTransaction, ended_in_hole, require_room
from sidecar.restore.gaps.synthetic_batches import place_markers, place_snapshot
from sidecar.restore.plan import PartitionPlan
from sidecar.restore.segments.fetching import PartitionRestore, RestoredSegment
from sidecar.restore.segments.segment_check import fetch_parts
from sidecar.restore.staging import translating


def bridge_holes(
    work: PartitionRestore, restored: Sequence[RestoredSegment], epochs: LeaderEpochs
) -> tuple[UnsettledTransaction, ...]:
    """Write it, for every hole between two segments. Returns the transactions that are hidden, ascending by their markers.

    A broker's own tiering asks for the snapshot at each segment's base, and stops for ever where there is none.
    Raises PartitionError, StagingFull, StoreError.
    """
    unsettled: list[UnsettledTransaction] = []
    for number, (lower, upper) in enumerate(pairwise(found.segment for found in work.plan.segments)):
        if lower.end_offset < upper.base_offset:
            unsettled += _bridge(work, lower, upper, restored[number + 1 :], epochs)
    return tuple(unsettled)


def bridged_offsets(plan: PartitionPlan) -> Iterator[int]:
    """Where the lost ranges end, ascending; also one at the log's end."""
    ends = [(found.segment.end_offset, found.segment.base_offset) for found in plan.segments]
    for (lower_end_offset, _), (_, upper_base_offset) in pairwise(ends):
        if lower_end_offset < upper_base_offset:
            yield upper_base_offset
    if plan.lost_to_offset > plan.segments[-1].segment.end_offset:
        yield plan.lost_to_offset


def _bridge(
    work: PartitionRestore,
    lower: ArchivedSegment,
    upper: ArchivedSegment,
    restored_above: Sequence[RestoredSegment],
    epochs: LeaderEpochs,
) -> Iterator[UnsettledTransaction]:
    root = work.plan.state.lineage.root
    table = ProducerTable.from_snapshot(
        lower.end_offset, fetch_parts(work.store, root, lower)[PartName.PRODUCER_SNAPSHOT]
    )
    above = fetch_parts(work.store, root, upper)
    ended = ended_in_hole(table, above[PartName.PRODUCER_SNAPSHOT], _indexes(work, above, restored_above))
    require_room(work.plan.topic_partition, len(ended), lower.end_offset, upper.base_offset)
    for offset, entry in enumerate(ended, lower.end_offset):
        yield UnsettledTransaction(entry.producer_id, entry.current_txn_first_offset or 0, offset)
    if ended:
        table = place_markers(work, table, ended, epochs)
    place_snapshot(work, ProducerTable(upper.base_offset, table.rows))


def _indexes(
    work: PartitionRestore, above: Mapping[PartName, bytes], restored_above: Sequence[RestoredSegment]
) -> Iterator[bytes]:
    """Those of the transactions that end above a hole: of the archived segment behind it, and as restored."""
    if PartName.TRANSACTION_INDEX in above:
        yield above[PartName.TRANSACTION_INDEX]
    for found in restored_above:
        path = work.staged.directory / file_name(found.base_offset, Suffix.TRANSACTION_INDEX)
        if path.exists():
            with translating(path):
                yield path.read_bytes()
