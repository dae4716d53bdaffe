"""Checks before anything is fetched: times older than the archive, open transactions, gaps too narrow for their markers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from sidecar.archive.bundle import log_size_bytes
from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.errors import OF_ONE_PARTITION, PartitionError, SettingsError
from sidecar.logformat.batches import BatchColumns, SegmentScanner
from sidecar.logformat.indexes.offset_index import read_offset_index
from sidecar.model import ArchivedSegment, ObjectKey, PartName, TopicPartition
from sidecar.plurals import plural
from sidecar.ports import MIB, ObjectStore
from sidecar.restore.gap_transactions import ended_in_hole, require_room
from sidecar.restore.outcome import PartitionOutcome
from sidecar.restore.plan import PartitionPlan, plan_partition
from sidecar.restore.request import OpenTransactionMode, ProducerStateMode, RestoreRequest, shown_time
from sidecar.segment.archived_objects import read_part, reader, table_at_end
from sidecar.segment.log_check import fetch_parts

_WINDOW_BYTES = 64 * 1024
_SEARCH_WINDOW_BYTES = 4 * MIB
"""Where no index gives the position in the segment, or all of it must be read."""
_SECONDS_BELOW = 100_000_000_000
"""As milliseconds the year 1973, as seconds the year 5138."""


def refuse_time_before_all(request: RestoreRequest, outcomes: Sequence[PartitionOutcome]) -> None:
    """Raise SettingsError if nothing is left of any partition, because each begins with a record later than the wanted time.

    Before anything is written: an empty log seems a success.
    """
    later = {found.empty_before_ms: found.plan.topic_partition for found in outcomes}
    until_ms, first_ms = request.until_timestamp_ms, min((found for found in later if found is not None), default=None)
    if until_ms is None or first_ms is None or None in later:
        return
    hint = f". Milliseconds are expected: is it {until_ms * 1000}?" if until_ms < _SECONDS_BELOW <= first_ms else ""
    raise SettingsError(
        f"--until-timestamp {shown_time(until_ms)}: nothing of {request.topic} lies before a later record; the first "
        f"batch of {later[first_ms]} has one of {shown_time(first_ms)}{hint}"
    )


def plan_in_time(store: ObjectStore, request: RestoreRequest, state: PartitionState) -> PartitionPlan:
    """Plan a partition; where its log begins inside a segment, by the times of what is wanted of it.

    A segment's commit has the latest time of all of its batches, and one that was deleted may be later than all that follow.
    Raises SettingsError as `plan_partition` does, StoreError.
    """
    plan = plan_partition(state, request)
    first = plan.segments[0]
    if first.until_timestamp_ms is None or not first.is_cut_at_start:
        return plan
    until_ms = first.until_timestamp_ms
    if len(plan_partition(state, replace(request, until_timestamp_ms=None)).segments) == 1:
        return plan
    try:
        ends_here = any(
            (found.max_timestamp_ms > until_ms).any() for found in _wanted(store, plan, _SEARCH_WINDOW_BYTES)
        )
    except OF_ONE_PARTITION:
        return plan  # Reported when it is fetched.
    return plan if ends_here else plan_partition(state, request, first_is_early=True)


def empty_before_ms(store: ObjectStore, request: RestoreRequest, plan: PartitionPlan) -> int | None:
    """The time of the first batch, if nothing is left of the partition for being later than the wanted time; else None.

    Of a batch that is the latest one of its records. Raises StoreError.
    """
    until_ms = request.until_timestamp_ms
    if until_ms is None or plan.segments[0].until_timestamp_ms is None:
        return None
    try:
        first_ms = next((int(found.max_timestamp_ms[0]) for found in _wanted(store, plan, _WINDOW_BYTES)), until_ms)
    except OF_ONE_PARTITION:
        return None  # Reported when it is fetched.
    return first_ms if first_ms > until_ms else None


def _wanted(store: ObjectStore, plan: PartitionPlan, window_bytes: int) -> Iterator[BatchColumns]:
    """The batches of the first segment that are wanted, none of the chunks empty. Raises StoreError, PartitionError.

    Args:
        window_bytes: read at once, where an index gives the position in the segment.
    """
    first = plan.segments[0]
    root, segment = plan.state.lineage.root, first.segment
    key = below(root, segment.log_key)

    position = _indexed_position(store, root, segment, first.first_offset)
    is_near = position > 0 or first.first_offset <= segment.base_offset
    scanner = SegmentScanner(
        reader(store, key, log_size_bytes(segment)),
        log_size_bytes(segment),
        file=key,
        check_crc=False,
        start_position=position,
        window_bytes=window_bytes if is_near else _SEARCH_WINDOW_BYTES,
    )
    for columns in scanner:
        below_start = int(np.searchsorted(columns.last_offset, first.kept_from_offset, side="left"))
        if below_start < len(columns):
            yield columns[below_start:]


def _indexed_position(store: ObjectStore, root: ObjectKey, segment: ArchivedSegment, offset: int) -> int:
    """Where a batch begins that ends at or below an offset, as near as the archived index gives it; 0 for the segment's first."""
    part = segment.part(PartName.OFFSET_INDEX)
    if offset <= segment.base_offset or part is None or part.size_bytes == 0:
        return 0
    cut = read_part(store, root, segment, PartName.OFFSET_INDEX)
    return read_offset_index(cut, segment.base_offset, below(root, segment.indexes_key)).lookup(offset)[1]


_NAMED_MAX = 5


def refuse_open_transactions(counts: Mapping[TopicPartition, int]) -> None:
    """Raise SettingsError if transactions are open at an archived end, by `open_at_end` of each partition."""
    found = [f"{partition}: {count}" for partition, count in counts.items() if count]
    if not found:
        return
    more = f" and {plural(len(found) - _NAMED_MAX, 'more partition')}" if len(found) > _NAMED_MAX else ""
    raise SettingsError(
        f"transactions are open at the archive's end ({', '.join(found[:_NAMED_MAX])}{more}), and without producer state "
        f"(--producer-state drop) a broker would show their records to read_committed readers. Nothing was fetched; give "
        f"--open-transactions abort"
    )


def open_at_end(store: ObjectStore, request: RestoreRequest, outcome: PartitionOutcome) -> int:
    """How many transactions are open at a partition's archived end, if they must not be: nothing is to abort them.

    Where a log ends inside a segment only that segment's batches tell, when it is fetched. Raises StoreError.
    """
    plan, drops = outcome.plan, outcome.decisions.producer_state is ProducerStateMode.DROP
    if not drops or plan.segments[-1].is_cut_at_end or request.open_transactions is OpenTransactionMode.ABORT:
        return 0
    try:
        return len(table_at_end(store, plan.state.lineage.root, plan.segments[-1].segment).in_transaction())
    except OF_ONE_PARTITION:
        return 0  # Reported when it is fetched.


def narrow_gap(store: ObjectStore, plan: PartitionPlan) -> str:
    """The problem of lost offsets that are fewer than the markers that they need; "" for none. Raises StoreError."""
    for lower, upper, number in plan.gaps():
        try:
            count = _marker_count(store, plan, lower, [found.segment for found in plan.segments[number:]])
        except OF_ONE_PARTITION:
            return ""  # A damaged object is reported when it is fetched.
        try:
            require_room(plan.topic_partition, count, lower.end_offset, upper.base_offset)
        except PartitionError as error:
            return str(error)
    return ""


def _marker_count(
    store: ObjectStore, plan: PartitionPlan, lower: ArchivedSegment, above: Sequence[ArchivedSegment]
) -> int:
    """How many a gap needs, at most; what lies above it is only read where they might not fit."""
    root = plan.state.lineage.root
    known = table_at_end(store, root, lower)
    open_count = len(known.in_transaction())
    if open_count <= above[0].base_offset - lower.end_offset:
        return open_count
    snapshot = fetch_parts(store, root, above[0])[PartName.PRODUCER_SNAPSHOT]
    return len(ended_in_hole(known, snapshot, _indexes(store, root, above)))


def _indexes(store: ObjectStore, root: str, above: Sequence[ArchivedSegment]) -> Iterator[bytes]:
    for segment in above:
        parts = fetch_parts(store, root, segment)
        if PartName.TRANSACTION_INDEX in parts:
            yield parts[PartName.TRANSACTION_INDEX]
