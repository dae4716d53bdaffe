"""A point in time, and where a log begins: which segment it lies in, and whether it is before everything that is archived.

The latter is said before anything is written, because an empty log looks like success.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from sidecar.archive.bundle import log_size_bytes
from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.errors import ObjectDamaged, ObjectMissing, PartitionError, SettingsError
from sidecar.logformat.batches import BatchColumns, SegmentScanner
from sidecar.logformat.indexes.offset_index import read_offset_index
from sidecar.model import ArchivedSegment, ObjectKey, PartName
from sidecar.ports import MIB, ObjectStore
from sidecar.restore.histories import READERS
from sidecar.restore.outcome import PartitionOutcome
from sidecar.restore.plan import PartitionPlan, plan_partition
from sidecar.restore.request import RestoreRequest
from sidecar.segment.archived_indexes import read_part

_WINDOW_BYTES = 64 * 1024
_SEARCH_WINDOW_BYTES = 4 * MIB
"""Where no index tells the place in the segment, or all of it is to be looked at."""
_SECONDS_BELOW = 100_000_000_000
"""As milliseconds the year 1973, as seconds the year 5138."""


def refuse_time_before_all(store: ObjectStore, request: RestoreRequest, outcomes: Sequence[PartitionOutcome]) -> None:
    """Note of each partition whether nothing is left of it. Raises SettingsError if that is so of all, StoreError."""
    until_ms = request.until_timestamp_ms
    if until_ms is None:
        return
    with ThreadPoolExecutor(READERS, thread_name_prefix="restore-first") as pool:
        first_ms_of = list(pool.map(lambda outcome: _first_timestamp_ms(store, outcome.plan), outcomes))
    for outcome, found in zip(outcomes, first_ms_of, strict=True):
        outcome.empty_before_ms = found if found is not None and found > until_ms else None
    later = {found: outcome for outcome in outcomes if (found := outcome.empty_before_ms) is not None}
    if any(outcome.empty_before_ms is None for outcome in outcomes):
        return
    first_ms = min(later)
    hint = f". Milliseconds are expected: is it {until_ms * 1000}?" if until_ms < _SECONDS_BELOW <= first_ms else ""
    raise SettingsError(
        f"--until-timestamp {shown_time(until_ms)}: nothing archived of {request.topic} is as old; the first batch of "
        f"{later[first_ms].plan.topic_partition} has a record of {shown_time(first_ms)}{hint}"
    )


def plan_in_time(store: ObjectStore, request: RestoreRequest, states: Sequence[PartitionState]) -> list[PartitionPlan]:
    """Plan each partition; where a log begins inside a segment, by the times of what is wanted of it.

    A segment's commit has the latest time of all of its batches, and one that was deleted may be later than all that follow.
    Raises SettingsError as `plan_partition` does, StoreError.
    """
    with ThreadPoolExecutor(READERS, thread_name_prefix="restore-time") as pool:
        return list(pool.map(lambda state: _plan_in_time(store, request, state), states))


def _plan_in_time(store: ObjectStore, request: RestoreRequest, state: PartitionState) -> PartitionPlan:
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
    except (ObjectMissing, ObjectDamaged, PartitionError):
        return plan  # Told when it is fetched.
    return plan if ends_here else plan_partition(state, request, first_is_early=True)


def _first_timestamp_ms(store: ObjectStore, plan: PartitionPlan) -> int | None:
    """The latest timestamp in the first batch that is wanted; None where all of the first segment is, or it cannot be read."""
    if plan.segments[0].until_timestamp_ms is None:
        return None
    try:
        return next((int(found.max_timestamp_ms[0]) for found in _wanted(store, plan, _WINDOW_BYTES)), None)
    except (ObjectMissing, ObjectDamaged, PartitionError):
        return None  # Told when it is fetched.


def _wanted(store: ObjectStore, plan: PartitionPlan, window_bytes: int) -> Iterator[BatchColumns]:
    """The batches of the first segment that are wanted, none of the chunks empty. Raises StoreError, PartitionError.

    Args:
        window_bytes: read at once, where an index tells the place in the segment.
    """
    first = plan.segments[0]
    root, segment = plan.state.lineage.root, first.segment
    key = below(root, segment.log_key)

    def read_at(position: int, buffer: memoryview) -> int:
        data = store.read(key, position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    position = _indexed_position(store, root, segment, first.first_offset)
    is_near = position > 0 or first.first_offset <= segment.base_offset
    scanner = SegmentScanner(
        read_at,
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
    """Where a batch begins that ends at or below an offset, as near as the archived index tells; 0 for the segment's first."""
    part = segment.part(PartName.OFFSET_INDEX)
    if offset <= segment.base_offset or part is None or part.size_bytes == 0:
        return 0
    cut = read_part(store, root, segment, PartName.OFFSET_INDEX)
    return read_offset_index(cut, segment.base_offset, below(root, segment.indexes_key)).lookup(offset)[1]


def shown_time(timestamp_ms: int) -> str:
    """In milliseconds and, where a calendar has it, in UTC."""
    try:
        iso = datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{timestamp_ms} ({iso.removesuffix('+00:00')}Z)"
