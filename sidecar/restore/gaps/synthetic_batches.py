"""What a restore writes besides the archived batches: abort markers, an empty batch, snapshots; each segment with its indexes."""

from __future__ import annotations

from collections.abc import Sequence

from producer_state.replay import CompletedTransaction, replay
from producer_state.snapshot import ProducerEntry
from producer_state.table import ProducerTable
from sidecar.archive.bundle import EMPTY_SNAPSHOT
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.building import build_empty_batch, build_marker
from sidecar.logformat.indexes.rebuild import IndexBuilder
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.logformat.names import Suffix, file_name
from sidecar.restore.segments.fetching import PartitionRestore
from sidecar.restore.segments.flattening import FLAT_EPOCH


def place_snapshot(work: PartitionRestore, table: ProducerTable) -> None:
    """The state where the table ends; nobody where producers are dropped. Raises StagingFull, PartitionError."""
    content = EMPTY_SNAPSHOT if work.drops_producers else table.to_snapshot()
    work.staged.place(file_name(table.end_offset, Suffix.SNAPSHOT), content)


def place_markers(
    work: PartitionRestore, table: ProducerTable, waiting: Sequence[ProducerEntry], epochs: LeaderEpochs
) -> ProducerTable:
    """A segment of abort markers for these open transactions where the table ends, and the state after it; with its snapshot.

    A segment of its own: were it the active one, a broker's start would replay producers that were dropped.
    Raises StagingFull, PartitionError.
    """
    markers = b"".join(
        build_marker(
            offset,
            commit=False,
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            coordinator_epoch=max(entry.coordinator_epoch, 0),
            timestamp_ms=max(entry.last_timestamp_ms, 0),
            leader_epoch=_epoch_at(epochs, offset),
        )
        for offset, entry in enumerate(waiting, table.end_offset)
    )
    table = _place_segment(work, table, markers)
    place_snapshot(work, table)
    return table


def place_leading_batch(work: PartitionRestore, table: ProducerTable, epochs: LeaderEpochs) -> ProducerTable:
    """An active segment of one empty batch where the table ends; the state after it. Raises StagingFull, PartitionError.

    Readers get no further than the last batch that they are given: without one there, whoever reads to the log's end waits for
    it until something is written, and a follower's log ends below. In any other segment a cleaner would take it away again.
    """
    offset = table.end_offset
    batch = build_empty_batch(base_offset=offset, last_offset=offset, leader_epoch=_epoch_at(epochs, offset))
    return _place_segment(work, table, batch)


def place_active_segment(work: PartitionRestore, base_offset: int) -> None:
    """An empty one. Raises StagingFull, PartitionError."""
    for suffix in (Suffix.LOG, Suffix.OFFSET_INDEX, Suffix.TIME_INDEX):
        work.staged.place(file_name(base_offset, suffix), b"")


def _epoch_at(epochs: LeaderEpochs, offset: int) -> int:
    """Never above that of the batches that follow."""
    return max(epochs.epoch_for_offset(offset) or FLAT_EPOCH, FLAT_EPOCH)


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
