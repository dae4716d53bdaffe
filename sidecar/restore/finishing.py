"""What a partition needs besides its segments: batches of our own over gaps and at the end, snapshots, epochs, checkpoints."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from producer_state.replay import CompletedTransaction, replay
from producer_state.snapshot import ProducerEntry
from producer_state.table import ProducerTable
from sidecar.archive.bundle import EMPTY_SNAPSHOT
from sidecar.errors import PartitionError
from sidecar.host.placing import sync_directory
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.building import build_empty_batch, build_marker
from sidecar.logformat.checkpoints import write_offset_checkpoint
from sidecar.logformat.indexes.rebuild import IndexBuilder
from sidecar.logformat.leader_epochs import LeaderEpochs, epochs_of, read_leader_epochs
from sidecar.logformat.names import LEADER_EPOCH_CHECKPOINT, Suffix, file_name
from sidecar.model import ArchivedSegment, LeaderEpoch, PartName, TopicPartition
from sidecar.plurals import plural
from sidecar.ports import ObjectStore
from sidecar.restore.gap_transactions import UnsettledTransaction, ended_in_hole, require_room
from sidecar.restore.plan import PartitionPlan
from sidecar.restore.request import OpenTransactionMode
from sidecar.restore.segments import FLAT_EPOCH, PartitionRestore, RestoredSegment
from sidecar.restore.staging import new_file, owner_for, translating
from sidecar.restore.target import CHECKPOINTS
from sidecar.segment import dropped_producers
from sidecar.segment.archived_objects import table_at_end
from sidecar.segment.log_check import fetch_parts
from sidecar.segment.transaction_batches import batches_in, header_scan
from sidecar.snapshots.disk_partition import checkpointed


def place_snapshot(work: PartitionRestore, table: ProducerTable) -> None:
    """The state where the table ends; empty where producers are dropped. Raises StagingFull, PartitionError."""
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


def bridge_holes(
    work: PartitionRestore, restored: Sequence[RestoredSegment], epochs: LeaderEpochs
) -> tuple[UnsettledTransaction, ...]:
    """Write it, for every gap between two segments. Returns the transactions that are hidden, ascending by their markers.

    A broker's own tiering asks for the snapshot at each segment's base, and stops for ever where there is none.
    Raises PartitionError, StagingFull, StoreError.
    """
    unsettled: list[UnsettledTransaction] = []
    for lower, upper, number in work.plan.gaps():
        unsettled += _bridge(work, lower, upper, restored[number:], epochs)
    return tuple(unsettled)


def bridged_offsets(plan: PartitionPlan) -> Iterator[int]:
    """Where the lost ranges end, ascending; also one at the log's end."""
    yield from (upper.base_offset for _, upper, _ in plan.gaps())
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
    table = table_at_end(work.store, root, lower)
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
    """Those of the transactions that end above a gap: of the archived segment behind it, and as restored."""
    if PartName.TRANSACTION_INDEX in above:
        yield above[PartName.TRANSACTION_INDEX]
    for found in restored_above:
        path = work.staged.directory / file_name(found.base_offset, Suffix.TRANSACTION_INDEX)
        if path.exists():
            with translating(path):
                yield path.read_bytes()


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


def finish_partition(work: PartitionRestore, open_mode: OpenTransactionMode) -> FinishedLog:
    """Write what is missing, after the last segment. Raises PartitionError, CorruptFile, StoreError, StagingFull."""
    restored = [work.restored[plan.segment.base_offset] for plan in work.plan.segments]
    last_plan = work.plan.segments[-1]
    parts = fetch_parts(work.store, work.plan.state.lineage.root, last_plan.segment)
    # What is lost behind the last segment was given out: the broker goes on above it, with the producers known below.
    end_offset = max(restored[-1].end_offset, work.plan.lost_to_offset)
    known = ProducerTable.from_snapshot(end_offset, restored[-1].producers or parts[PartName.PRODUCER_SNAPSHOT])
    table = _without_emptied(work, restored, known)
    waiting = sorted(table.in_transaction().entries(), key=lambda entry: entry.current_txn_first_offset or 0)
    aborts = bool(waiting) and open_mode is OpenTransactionMode.ABORT
    if waiting and work.drops_producers and not aborts:
        raise PartitionError(
            f"{work.plan.topic_partition}: {plural(len(waiting), 'transaction is', 'transactions are')} open at "
            f"the end {end_offset}; without producer state "
            f"a broker would show the records to read_committed readers. Give --open-transactions abort"
        )
    # A start inside the first batch needs the broker's own checkpoint; one above an empty log makes no sense.
    wanted_from_offset = max(work.plan.start_offset, work.plan.deleted_before_offset)
    start_offset = min(max(wanted_from_offset, restored[0].base_offset), end_offset)
    epochs = _epochs(work, parts[PartName.LEADER_EPOCHS], start_offset, end_offset)
    if table != known or last_plan.is_cut_at_end or end_offset > last_plan.segment.end_offset:
        place_snapshot(work, table)
    unsettled = bridge_holes(work, restored, epochs)
    if aborts:
        table = place_markers(work, table, waiting, epochs)
    active_offset = table.end_offset
    # Where nothing is kept of the last segment it had this name, and so had an earlier run's markers.
    work.staged.remove(frozenset({file_name(active_offset, Suffix.TRANSACTION_INDEX)}))
    batch_ends = [found.batches_end_offset for found in restored] + [found.marker_offset + 1 for found in unsettled]
    if aborts or max(restored[0].base_offset, *batch_ends) >= active_offset:
        for suffix in (Suffix.LOG, Suffix.OFFSET_INDEX, Suffix.TIME_INDEX):
            work.staged.place(file_name(active_offset, suffix), b"")
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


def _without_emptied(
    work: PartitionRestore, restored: Sequence[RestoredSegment], table: ProducerTable
) -> ProducerTable:
    """The state at the log's end without the transactions of which no batch is left: there is nothing to decide.

    Compaction took the batches, because it knew how they ended, and perhaps the marker: they would never end. Of what began below
    the restored log a batch may be left there: it stays.
    Source: CleanedTransactionMetadata.onControlBatchRead.
    """
    first = restored[0].base_offset
    begun = {producer_id: offset for producer_id, offset in table.open_transactions().items() if offset >= first}
    logs = (
        (found.base_offset, found.end_offset, work.staged.directory / file_name(found.base_offset, Suffix.LOG))
        for found in restored
    )
    return table.without_transactions(begun.keys() - batches_in(map(header_scan, logs), begun, table.end_offset))


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
        latest: the last segment's checkpoint. From its beginning on, only it applies.
        start_offset: of the restored log.
    """
    checkpoint = read_leader_epochs(latest)
    if checkpoint.covers(start_offset):
        return checkpoint
    earlier: list[LeaderEpoch] = []
    archived_to = start_offset
    for segment in (found.segment for found in plan.segments):
        if archived_to < segment.base_offset and not checkpoint.covers(archived_to):
            # The segment's own map begins at its base; its checkpoint may know the epochs of what is lost below.
            known = read_leader_epochs(fetch_parts(store, plan.state.lineage.root, segment)[PartName.LEADER_EPOCHS])
            earlier += known.in_range(archived_to, segment.base_offset).entries
        earlier += segment.leader_epochs
        archived_to = segment.end_offset
    below = [entry for entry in earlier if not checkpoint.covers(entry.start_offset)]
    return epochs_of((entry.epoch, entry.start_offset) for entry in (*below, *checkpoint.entries))


def require_readable(log_dir: Path) -> None:
    """That every one can be read which is to get entries in the end. Raises CorruptFile, PartitionError."""
    for name in CHECKPOINTS:
        checkpointed(log_dir / name)


def enter_into_checkpoints(log_dir: Path, logs: Mapping[TopicPartition, FinishedLog]) -> None:
    """Tell the next broker where the restored logs begin and end. Raises CorruptFile, StagingFull, PartitionError.

    Recovery point = log end: every byte was checked and synced, so that also a start after a crash replays only the empty
    active segment (with dropped producer state a replay would bring it back). High watermark = log end: an archive has
    nothing above it. Log start: only where it lies above the first file's base. Cleaner offset: of a compacted log its start,
    so that the broker's cleaner takes all of it for dirty, and a search for lost offsets finds why some are missing; of
    another one none.
    Source: LogManager.loadLogs, Partition.createLog, LogCleanerManager.cleanableOffsets.
    """
    ends = {partition: log.end_offset for partition, log in logs.items()}
    starts = {
        partition: log.start_offset for partition, log in logs.items() if log.start_offset > log.first_base_offset
    }
    cleaned = {partition: log.start_offset for partition, log in logs.items() if log.compacted}
    for name, new in zip(CHECKPOINTS, (ends, ends, starts, cleaned), strict=True):
        before = checkpointed(log_dir / name)
        after = {**{found: offset for found, offset in before.items() if found not in logs}, **new}
        if after != before:
            with new_file(log_dir / name, owner_for(log_dir)) as file:
                file.write(write_offset_checkpoint(after))
    sync_directory(log_dir)
