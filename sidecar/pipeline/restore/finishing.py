"""What a partition's directory needs besides its segments: the state at the log's end, epochs, and an active segment."""

from __future__ import annotations

from dataclasses import dataclass

from producer_state.replay import CompletedTransaction, replay
from producer_state.snapshot import ProducerEntry
from producer_state.table import ProducerTable
from sidecar.archive.bundle import EMPTY_SNAPSHOT
from sidecar.errors import PartitionError
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.building import build_empty_batch, build_marker
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.logformat.names import LEADER_EPOCH_CHECKPOINT, Suffix, file_name
from sidecar.logformat.rebuild import IndexBuilder
from sidecar.model import LeaderEpoch, PartName
from sidecar.pipeline import dropped_producers
from sidecar.pipeline.restore.epoch_history import epoch_history
from sidecar.pipeline.restore.fetching import PartitionRestore, RestoredSegment
from sidecar.pipeline.restore.flattening import FLAT_EPOCH
from sidecar.pipeline.restore.producers_at_end import kept_producers
from sidecar.pipeline.restore.request import OpenTransactionMode
from sidecar.pipeline.restore.segment_check import fetch_parts


@dataclass(frozen=True, slots=True)
class FinishedLog:
    """A partition's log as it was restored. `open_transactions`: first offsets of those that were open at its end.

    `start_offset`, `end_offset`: of the log, the latter exclusive. `first_base_offset`: of its first file. `compacted`: offsets
    are missing as compaction leaves it.
    """

    first_base_offset: int
    start_offset: int
    end_offset: int
    open_transactions: tuple[int, ...]
    aborted: bool
    compacted: bool


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
    waiting = [entry for entry in table.entries() if entry.current_txn_first_offset is not None]
    aborts = bool(waiting) and open_mode is OpenTransactionMode.ABORT
    if waiting and work.drops_producers and not aborts:
        raise PartitionError(
            f"{work.plan.topic_partition}: {len(waiting)} transactions are open at the end {end_offset}; without producer state "
            f"a broker would show their records to read_committed readers. Give --open-transactions abort"
        )
    # A start inside the first batch needs the broker's own checkpoint; one above an empty log makes no sense.
    start_offset = min(max(work.plan.start_offset, restored[0].base_offset), end_offset)
    epochs = _epochs(work, parts[PartName.LEADER_EPOCHS], start_offset, end_offset)
    if last_plan.is_cut_at_end or end_offset > last_plan.segment.end_offset:
        _place_snapshot(work, table)
    first_offsets = tuple(sorted(entry.current_txn_first_offset or 0 for entry in waiting))
    leader_epoch = max(epochs.latest_epoch, FLAT_EPOCH)
    if aborts:
        table = _abort(work, table, waiting, leader_epoch)
        _place_snapshot(work, table)
    elif end_offset > restored[-1].end_offset:
        _lead_over(work, table, leader_epoch)
    for suffix in (Suffix.LOG, Suffix.OFFSET_INDEX, Suffix.TIME_INDEX):
        work.staged.place(file_name(table.end_offset, suffix), b"")
    # Where nothing is kept of the last segment it had this name, and so had an earlier run's markers.
    work.staged.remove(frozenset({file_name(table.end_offset, Suffix.TRANSACTION_INDEX)}))
    work.staged.place(LEADER_EPOCH_CHECKPOINT, epochs.to_text())
    if work.drops_producers:
        work.staged.place(dropped_producers.NAME, dropped_producers.dropped_note(table.end_offset))
    compacted = any(found.has_gaps for found in restored)
    return FinishedLog(restored[0].base_offset, start_offset, table.end_offset, first_offsets, aborts, compacted)


def _place_snapshot(work: PartitionRestore, table: ProducerTable) -> None:
    content = EMPTY_SNAPSHOT if work.drops_producers else table.to_snapshot()
    work.staged.place(file_name(table.end_offset, Suffix.SNAPSHOT), content)


def _state_at_end(work: PartitionRestore, last: RestoredSegment, archived: bytes) -> ProducerTable:
    """The producer state at the end of the last segment: archived, or replayed where the segment was cut."""
    plan = work.plan.segments[-1]
    if not plan.is_cut_at_end:
        return ProducerTable.from_snapshot(plan.segment.end_offset, archived)
    return kept_producers(work.staged, plan, last.end_offset)


def _epochs(work: PartitionRestore, latest: bytes, start_offset: int, end_offset: int) -> LeaderEpochs:
    """The checkpoint's entries: they begin at the log's start, also where the log is empty, for markers may follow."""
    epochs = epoch_history(work.store, work.plan, latest, start_offset)
    if work.flattens:
        return LeaderEpochs((LeaderEpoch(FLAT_EPOCH, start_offset),)) if epochs.entries else epochs
    return epochs.truncate_from_end(end_offset).truncate_from_start(start_offset)


def _abort(
    work: PartitionRestore, table: ProducerTable, waiting: list[ProducerEntry], leader_epoch: int
) -> ProducerTable:
    """A segment of abort markers behind the log's end, and the state after it.

    A segment of its own: the active one stays empty, so that no start ever replays it.
    """
    base = table.end_offset
    markers = b"".join(
        build_marker(
            base + number,
            commit=False,
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            coordinator_epoch=max(entry.coordinator_epoch, 0),
            timestamp_ms=max(entry.last_timestamp_ms, 0),
            leader_epoch=leader_epoch,
        )
        for number, entry in enumerate(sorted(waiting, key=lambda entry: entry.current_txn_first_offset or 0))
    )
    return _place_segment(work, table, markers)


def _lead_over(work: PartitionRestore, table: ProducerTable, leader_epoch: int) -> None:
    """An empty batch at the last of the offsets that are lost at the log's end, in a segment of its own.

    Readers get no further than the last batch that they are given: without one there, whoever reads to the log's end waits for
    it until something is written.
    """
    last_offset = table.end_offset - 1
    below = ProducerTable(last_offset, table.rows)
    _place_snapshot(work, below)
    batch = build_empty_batch(base_offset=last_offset, last_offset=last_offset, leader_epoch=leader_epoch)
    _place_segment(work, below, batch)


def _place_segment(work: PartitionRestore, table: ProducerTable, batches: bytes) -> ProducerTable:
    """A segment of these batches where the table ends, with its indexes; the state after it."""
    base, staged = table.end_offset, work.staged
    builder = IndexBuilder(base)
    completed: list[CompletedTransaction] = []
    for columns in scan_bytes(batches, base_offset=base):
        builder.add(columns)
        table, ended = replay(table, columns.facts())
        completed += ended
    built = builder.finish(completed)
    staged.place(file_name(base, Suffix.OFFSET_INDEX), built.offset_index)
    staged.place(file_name(base, Suffix.TIME_INDEX), built.time_index)
    if completed:
        staged.place(file_name(base, Suffix.TRANSACTION_INDEX), built.transaction_index)
    staged.place(file_name(base, Suffix.LOG), batches)
    return table
