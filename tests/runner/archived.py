"""Archived segments and states made up for tests of what decides about them."""

from __future__ import annotations

from sidecar.archive.keys import indexes_key, log_key
from sidecar.model import ArchivedSegment, Part, PartName, SnapshotOrigin, SnapshotProvenance


def segment(
    base_offset: int,
    end_offset: int,
    *,
    size_bytes: int = 100,
    max_timestamp_ms: int = 0,
    generation: int = 0,
    mtime_ms: int | None = None,
) -> ArchivedSegment:
    """A segment whose `.log` has so many bytes, and whose indexes have 1,000."""
    segment_id = f"{base_offset:021d}A"
    return ArchivedSegment(
        segment_id=segment_id,
        base_offset=base_offset,
        end_offset=end_offset,
        log_key=log_key(base_offset, segment_id),
        indexes_key=indexes_key(base_offset, segment_id),
        parts=(Part(PartName.LOG, 0, size_bytes, 0), Part(PartName.OFFSET_INDEX, 0, 1000, 0)),
        leader_epochs=(),
        highest_batch_leader_epoch=0,
        max_timestamp_ms=max_timestamp_ms,
        batch_count=1,
        snapshot=SnapshotProvenance(SnapshotOrigin.BROKER, exact=True),
        generation=generation,
        strategy="offset" if generation else None,
        source_mtime_ns=None if mtime_ms is None else mtime_ms * 1_000_000,
    )
