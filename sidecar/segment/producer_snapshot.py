"""Which producer snapshot a bundle carries: the broker's if the replay confirms it, else the rebuilt one."""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from producer_state.compare import Allowance, Conformance, compare_snapshots
from producer_state.exactness import is_exact, knows_beginning
from producer_state.snapshot import CorruptSnapshot, read_snapshot
from producer_state.table import Expiration, ProducerTable
from sidecar.archive.bundle import EMPTY_SNAPSHOT
from sidecar.archive.state import PartitionState
from sidecar.host.listed_files import read_unless_deleted
from sidecar.logformat.files import read_regular
from sidecar.logformat.names import Suffix, file_name
from sidecar.model import PartitionFiles, SegmentFiles, SnapshotOrigin, SnapshotProvenance
from sidecar.ports import ObjectStore
from sidecar.segment.archived_objects import table_at_end
from sidecar.segment.dropped_producers import NOTHING_DROPPED, Dropped, dropped_producers
from sidecar.segment.reading import SegmentReading


@dataclass(frozen=True, slots=True)
class KnownState:
    """Producer state at an offset, and where the replay that gave it began."""

    table: ProducerTable
    start_offset: int
    exact: bool
    dropped: Dropped = NOTHING_DROPPED


@dataclass(frozen=True, slots=True)
class ChosenSnapshot:
    """Bytes for the bundle and how they came to be.

    `result`: what was found on disk, for metrics and reports: a `Conformance`, or "corrupt", or "absent". `note`: why.
    """

    content: bytes
    provenance: SnapshotProvenance
    result: str
    note: str


def state_at_archive_end(store: ObjectStore, archived: PartitionState, dropped: Dropped) -> KnownState | None:
    """The state at the archive's end, None if nothing is archived or a gap was recorded there that no restore has bridged.

    `dropped`: what the note in the partition's directory says.

    Raises CorruptFile if the archived snapshot is not the committed one.
    """
    last, end_offset = archived.last_segment, archived.end_offset
    if last is None or end_offset is None:
        return None
    if last.end_offset != end_offset and end_offset not in dropped.bridged_offsets:
        return None
    table = replace(table_at_end(store, archived.lineage.root, last), end_offset=end_offset)
    if last.end_offset != end_offset:
        return KnownState(table.in_transaction(), end_offset, exact=False, dropped=dropped)
    if dropped.below_offset == end_offset:
        # The log was restored from this very archive, which knows everybody; its broker does not.
        return KnownState(table.in_transaction(), end_offset, exact=True, dropped=dropped)
    start_offset = last.snapshot.start_offset if last.snapshot.start_offset is not None else end_offset
    return KnownState(table, start_offset, last.snapshot.exact, dropped)


def state_at_log_start(files: PartitionFiles, base_offset: int) -> KnownState:
    """The state at the first local segment: that of the broker's snapshot there, else empty.

    Below offset 0 there is nothing, whatever a file says. Producers whose batches are all gone from the log are known
    only from the broker's snapshot; without it they are left out, as a full replay of the log would.
    """
    known = _as_the_broker_says(files.directory if base_offset in files.snapshot_offsets else None, base_offset)
    return replace(known, dropped=dropped_producers(files.directory))


def _as_the_broker_says(directory: Path | None, offset: int) -> KnownState:
    table = ProducerTable.blank(offset)
    if offset > 0 and directory is not None:
        # A snapshot that cannot be read is like a missing one.
        with suppress(CorruptSnapshot, OSError):
            table = ProducerTable.from_snapshot(offset, read_regular(directory / file_name(offset, Suffix.SNAPSHOT)))
    return KnownState(table, offset, is_exact(beginning_known=knows_beginning(table), cleaned=False))


def _newest_offset(table: ProducerTable) -> int:
    return int(table.rows["last_offset"].max(initial=-1))


def choose_snapshot(
    segment: SegmentFiles,
    known: KnownState,
    reading: SegmentReading,
    *,
    log_time_ms: int,
    now_ms: int,
    producer_id_expiration_ms: int | None,
    log_start_offset: int,
    cut_offset: int | None = None,
) -> tuple[ChosenSnapshot, KnownState]:
    """Decide, and give the state from which the next segment goes on.

    Args:
        known: the state at the segment's base.
        log_time_ms: the largest batch timestamp so far, but not after the wall clock, nor after the last write to the `.log`.
        now_ms: the wall clock.
        log_start_offset: the broker's; DeleteRecords may have moved it above the first segment's base.
        cut_offset: from there up to the segment's end all is lost, None: nothing is. The broker's snapshot has what was done
            there, and is behind it: it has nothing of the producers at the cut, but is the only source of those in the
            next segment.

    Raises SegmentChanged if the snapshot file is not the one that was listed.
    """
    is_cut = cut_offset is not None
    exact = is_exact(beginning_known=known.exact, cleaned=reading.looks_cleaned and not is_cut)
    expiration = Expiration.with_margins(log_time_ms, producer_id_expiration_ms)
    table = reading.state.unexpired(expiration)
    rebuilt = SnapshotProvenance(SnapshotOrigin.REBUILT, exact, known.start_offset, expiration.window_ms)
    after = replace(known, table=table, exact=exact)
    if is_cut:
        behind = _as_the_broker_says(segment.directory if segment.snapshot else None, segment.end_offset)
        # A restore carries the state over a gap, without what was done in it.
        knows_more = _newest_offset(behind.table) > _newest_offset(table)
        after = replace(behind, exact=behind.exact and knows_more, dropped=known.dropped)
    is_below = segment.end_offset <= known.dropped.below_offset
    if is_below and (found := read_unless_deleted(segment.snapshot)) in {None, EMPTY_SNAPSHOT}:
        end_offset = segment.end_offset if cut_offset is None else cut_offset
        return _without_producers(segment, found, table, replace(rebuilt, start_offset=end_offset), after)
    if is_cut:
        return ChosenSnapshot(table.to_snapshot(), rebuilt, "absent", "the next offsets are lost"), after
    found = read_unless_deleted(segment.snapshot)  # Brokers up to 2.7 keep the newest few only.
    if found is None or segment.snapshot is None:
        return ChosenSnapshot(table.to_snapshot(), rebuilt, "absent", "the broker left none"), after
    try:
        theirs = read_snapshot(found)
    except CorruptSnapshot as error:
        note = f"the broker's snapshot cannot be read: {error}"
        return ChosenSnapshot(table.to_snapshot(), rebuilt, "corrupt", note), after
    allowance = Allowance(
        # The broker forgot producers by its own clock when it wrote the file, perhaps long after the last batch.
        now_ms=max(log_time_ms, min(now_ms, segment.snapshot.mtime_ms)),
        expiration_ms=producer_id_expiration_ms,
        exact=exact,
        log_start_offset=known.start_offset,
        deleted_below=log_start_offset,
        # Behind a gap, and of a restored log, the archive may have the batches.
        first_offset=known.start_offset if known.dropped == NOTHING_DROPPED else 0,
    )
    comparison = compare_snapshots(theirs, table.entries(), allowance)
    found_there = str(comparison.conformance), comparison.describe()
    if comparison.conformance is Conformance.WRONG:
        return ChosenSnapshot(table.to_snapshot(), rebuilt, *found_there), after
    known_there = ProducerTable.from_entries(segment.end_offset, theirs)
    # Of a transaction without a batch there is nothing to decide. Its marker may be gone, so that it would never end. And below
    # the segment, the archive may have a marker in its place: what the transaction wrote above it began there.
    settled = known_there if exact else known_there.open_as_in(table, segment.base_offset)
    if not exact:
        # Replay of a cleaned log knows less than the broker did when it wrote the log: go on from what the broker knew.
        after = replace(after, table=settled)
    if settled.entries() != theirs:
        return ChosenSnapshot(settled.to_snapshot(), rebuilt, *found_there), after
    broker = SnapshotProvenance(SnapshotOrigin.BROKER, exact, known.start_offset, expiration.window_ms)
    return ChosenSnapshot(found, broker, *found_there), after


def _without_producers(
    segment: SegmentFiles, found: bytes | None, table: ProducerTable, rebuilt: SnapshotProvenance, after: KnownState
) -> tuple[ChosenSnapshot, KnownState]:
    """No producers, as a restore has left it, except those in the middle of a transaction.

    Trap: compaction, restore and the next process know only from the archived snapshot what is undecided there. New producers are
    followed from where the restored log ended; until there replay goes on with those of old.

    Args: rebuilt: begins where the archived segment ends; readers take that for a sign of who was left out.
    """
    undecided = table.in_transaction()
    if segment.end_offset in after.dropped.bridged_offsets:
        after = replace(after, table=undecided)
    if segment.end_offset == after.dropped.below_offset:
        after = replace(after, table=after.table.in_transaction(), start_offset=segment.end_offset, exact=True)
    is_theirs = found is not None and not len(undecided)
    origin = SnapshotOrigin.BROKER if is_theirs else SnapshotOrigin.REBUILT
    conformance = Conformance.EQUAL if is_theirs else Conformance.PERMISSIBLE
    result, note = "absent" if found is None else str(conformance), "restored without producers"
    return ChosenSnapshot(undecided.to_snapshot(), replace(rebuilt, origin=origin), result, note), after
