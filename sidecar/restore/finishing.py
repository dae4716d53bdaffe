"""What a partition's directory needs besides its segments: the state at the log's end, epochs, and an active segment."""

from __future__ import annotations

from dataclasses import dataclass

from producer_state.table import ProducerTable
from sidecar.errors import PartitionError
from sidecar.logformat.leader_epochs import LeaderEpochs, epochs_of, read_leader_epochs
from sidecar.logformat.names import LEADER_EPOCH_CHECKPOINT, Suffix, file_name
from sidecar.model import ArchivedSegment, LeaderEpoch, PartName
from sidecar.ports import ObjectStore
from sidecar.restore.gaps.gap_fill import bridge_holes, bridged_offsets
from sidecar.restore.gaps.gap_transactions import UnsettledTransaction
from sidecar.restore.gaps.producers_at_end import kept_producers
from sidecar.restore.gaps.synthetic_batches import (
    place_active_segment,
    place_leading_batch,
    place_markers,
    place_snapshot,
)
from sidecar.restore.plan import PartitionPlan
from sidecar.restore.request import OpenTransactionMode
from sidecar.restore.segments.fetching import PartitionRestore, RestoredSegment
from sidecar.restore.segments.flattening import FLAT_EPOCH
from sidecar.restore.segments.segment_check import fetch_parts
from sidecar.segment import dropped_producers


@dataclass(frozen=True, slots=True)
class FinishedLog:
    """A partition's log as it was restored. `open_transactions`: first offsets of those that were open at its end.

    `start_offset`, `end_offset`: of the log, the latter exclusive. `first_base_offset`: of its first file. `compacted`: offsets
    are missing as compaction leaves it. `added_from_offset`: from there up to the end nothing is archived: markers, or an empty
    batch. `unsettled_transactions`: ended by markers where offsets are lost.
    """

    first_base_offset: int
    start_offset: int
    end_offset: int
    open_transactions: tuple[int, ...]
    aborted: bool
    compacted: bool
    added_from_offset: int
    unsettled_transactions: tuple[UnsettledTransaction, ...] = ()

    @property
    def is_led_over(self) -> bool:
        """Whether its active segment has an empty batch, because the last one below ends too early."""
        return not self.aborted and self.added_from_offset < self.end_offset


def finish_partition(
    work: PartitionRestore, restored: tuple[RestoredSegment, ...], open_mode: OpenTransactionMode
) -> FinishedLog:
    """Write what is missing, after the last segment. Raises PartitionError, CorruptFile, StoreError, StagingFull."""
    last_plan = work.plan.segments[-1]
    parts = fetch_parts(work.store, work.plan.state.lineage.root, last_plan.segment)
    # What is lost behind the last segment was given out: the broker goes on above it, with the producers known below.
    end_offset = max(restored[-1].end_offset, work.plan.lost_to_offset)
    known = _state_at_end(work, restored[-1], parts[PartName.PRODUCER_SNAPSHOT])
    table = ProducerTable(end_offset, known.rows)
    waiting = sorted(table.in_transaction().entries(), key=lambda entry: entry.current_txn_first_offset or 0)
    aborts = bool(waiting) and open_mode is OpenTransactionMode.ABORT
    if waiting and work.drops_producers and not aborts:
        raise PartitionError(
            f"{work.plan.topic_partition}: {len(waiting)} transactions are open at the end {end_offset}; without producer state "
            f"a broker would show their records to read_committed readers. Give --open-transactions abort"
        )
    # A start inside the first batch needs the broker's own checkpoint; one above an empty log makes no sense.
    wanted_from_offset = max(work.plan.start_offset, work.plan.deleted_before_offset)
    start_offset = min(max(wanted_from_offset, restored[0].base_offset), end_offset)
    epochs = _epochs(work, parts[PartName.LEADER_EPOCHS], start_offset, end_offset)
    if last_plan.is_cut_at_end or end_offset > last_plan.segment.end_offset:
        place_snapshot(work, table)
    unsettled = bridge_holes(work, restored, epochs)
    if aborts:
        table = place_markers(work, table, waiting, epochs)
    active_offset = table.end_offset
    # Where nothing is kept of the last segment it had this name, and so had an earlier run's markers.
    work.staged.remove(frozenset({file_name(active_offset, Suffix.TRANSACTION_INDEX)}))
    if aborts or _last_batch_end(restored, unsettled) >= active_offset:
        place_active_segment(work, active_offset)
    else:
        table = place_leading_batch(work, table, epochs)
    work.staged.place(LEADER_EPOCH_CHECKPOINT, epochs.to_text())
    if work.drops_producers:
        note = dropped_producers.dropped_note(active_offset, bridged_offsets(work.plan))
        work.staged.place(dropped_producers.NAME, note)
    return FinishedLog(
        first_base_offset=restored[0].base_offset,
        start_offset=start_offset,
        end_offset=table.end_offset,
        open_transactions=tuple(entry.current_txn_first_offset or 0 for entry in waiting),
        aborted=aborts,
        compacted=any(found.has_gaps for found in restored),
        added_from_offset=end_offset,
        unsettled_transactions=unsettled,
    )


def _last_batch_end(restored: tuple[RestoredSegment, ...], unsettled: tuple[UnsettledTransaction, ...]) -> int:
    """Behind the last batch of the log; its beginning where it has none."""
    archived = (found.batches_end_offset for found in restored)
    return max(restored[0].base_offset, *archived, *(found.marker_offset + 1 for found in unsettled))


def _state_at_end(work: PartitionRestore, last: RestoredSegment, archived: bytes) -> ProducerTable:
    """The producer state at the end of the last segment: archived, or replayed where the segment was cut."""
    plan = work.plan.segments[-1]
    if not plan.is_cut_at_end:
        return ProducerTable.from_snapshot(plan.segment.end_offset, archived)
    return kept_producers(work.staged, plan, last.end_offset)


def _epochs(work: PartitionRestore, latest: bytes, start_offset: int, end_offset: int) -> LeaderEpochs:
    """The checkpoint's entries: they begin at the log's start, also where the log is empty, for markers may follow."""
    epochs = _epoch_history(work.store, work.plan, latest, start_offset)
    if work.flattens:
        return LeaderEpochs((LeaderEpoch(FLAT_EPOCH, start_offset),)) if epochs.entries else epochs
    return epochs.truncate_from_end(end_offset).truncate_from_start(start_offset)


def _epoch_history(store: ObjectStore, plan: PartitionPlan, latest: bytes, start_offset: int) -> LeaderEpochs:
    """The epochs from the restored log's start on, as far as the last segment knows them. Raises CorruptFile, StoreError.

    A broker cuts its checkpoint at its log's start. What it had below was noted with the segments when they were archived.
    Message formats below v2 have no epoch, and none is made up for them.

    Args:
        latest: the last segment's checkpoint. From where it begins on, it alone tells.
        start_offset: of the restored log.
    """
    checkpoint = read_leader_epochs(latest)
    if checkpoint.covers(start_offset):
        return checkpoint
    earlier: list[LeaderEpoch] = []
    archived_to = start_offset
    for segment in (found.segment for found in plan.segments):
        if archived_to < segment.base_offset and not checkpoint.covers(archived_to):
            earlier += _in_hole(store, plan, segment, archived_to)
        earlier += segment.leader_epochs
        archived_to = segment.end_offset
    below = [entry for entry in earlier if not checkpoint.covers(entry.start_offset)]
    return epochs_of((entry.epoch, entry.start_offset) for entry in (*below, *checkpoint.entries))


def _in_hole(
    store: ObjectStore, plan: PartitionPlan, segment: ArchivedSegment, hole_offset: int
) -> tuple[LeaderEpoch, ...]:
    """The epochs of the offsets that are lost below a segment: its own map begins at its base, its checkpoint may know more."""
    parts = fetch_parts(store, plan.state.lineage.root, segment)
    return read_leader_epochs(parts[PartName.LEADER_EPOCHS]).in_range(hole_offset, segment.base_offset).entries
