"""A point in time before everything that is archived: said before anything is written, because an empty log looks like success."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from sidecar.archive.bundle import log_size_bytes
from sidecar.archive.keys import below
from sidecar.errors import ObjectDamaged, ObjectMissing, PartitionError, SettingsError
from sidecar.logformat.batches import SegmentScanner
from sidecar.pipeline.restore.outcome import PartitionOutcome
from sidecar.pipeline.restore.plan import PartitionPlan
from sidecar.pipeline.restore.request import RestoreRequest
from sidecar.ports import ObjectStore

_WINDOW_BYTES = 64 * 1024
_SECONDS_BELOW = 100_000_000_000
"""As milliseconds the year 1973, as seconds the year 5138."""


def refuse_time_before_all(store: ObjectStore, request: RestoreRequest, outcomes: Sequence[PartitionOutcome]) -> None:
    """Note of each partition whether nothing is left of it. Raises SettingsError if that is so of all, StoreError."""
    until_ms = request.until_timestamp_ms
    if until_ms is None:
        return
    for outcome in outcomes:
        found = _first_timestamp_ms(store, outcome.plan)
        outcome.empty_before_ms = found if found is not None and found > until_ms else None
    later = {found: outcome for outcome in outcomes if (found := outcome.empty_before_ms) is not None}
    if any(outcome.empty_before_ms is None for outcome in outcomes):
        return
    first_ms = min(later)
    hint = f". Milliseconds are expected: is it {until_ms * 1000}?" if until_ms < _SECONDS_BELOW <= first_ms else ""
    raise SettingsError(
        f"--until-timestamp {_shown(until_ms)}: nothing archived of {request.topic} is as old; the first batch of "
        f"{later[first_ms].plan.topic_partition} has a record of {_shown(first_ms)}{hint}"
    )


def _first_timestamp_ms(store: ObjectStore, plan: PartitionPlan) -> int | None:
    """The latest timestamp in the first batch that is wanted; None where all of the first segment is, or it cannot be read."""
    wanted = plan.segments[0]
    if wanted.until_timestamp_ms is None:
        return None
    key = below(plan.state.lineage.root, wanted.segment.log_key)

    def read_at(position: int, buffer: memoryview) -> int:
        data = store.read(key, position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    size_bytes = log_size_bytes(wanted.segment)
    scanner = SegmentScanner(read_at, size_bytes, file=key, check_crc=False, window_bytes=_WINDOW_BYTES)
    try:
        for columns in scanner:
            rows = np.flatnonzero(columns.last_offset >= wanted.first_offset)
            if rows.size:
                return int(columns.max_timestamp_ms[rows[0]])
    except (ObjectMissing, ObjectDamaged, PartitionError):
        return None  # Told when it is fetched.
    return None


def _shown(timestamp_ms: int) -> str:
    try:
        iso = datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{timestamp_ms} ({iso.removesuffix('+00:00')}Z)"
