"""What a broker's retention deletes of a restored log at once: records come back with the age that they have."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from sidecar.archive.bundle import log_size_bytes
from sidecar.pipeline.restore.plan import PartitionPlan, SegmentPlan
from sidecar.topic_policy import TopicPolicy


@dataclass(frozen=True, slots=True)
class RetentionLoss:
    """The log's first `segments`, all below `end_offset`, that a broker deletes at its first look after its start."""

    segments: int
    end_offset: int


def deleted_at_start(plan: PartitionPlan, policy: TopicPolicy, now_ms: int) -> RetentionLoss | None:
    """What a broker with this policy deletes at `now_ms`; None for nothing. Pure.

    By size from the start, as long as what is left fills the limit; then by time from there, as long as the segments' largest
    timestamps are too old. A segment without timestamps has the age of its file, which is new. Local limits of tiered topics do
    not count: what is deleted by them has been copied before.
    Source: UnifiedLog.deleteOldSegments, deleteRetentionSizeBreachedSegments, deleteRetentionMsBreachedSegments.
    """
    if policy.cleanup_policy is not None and "delete" not in policy.cleanup_policy:
        return None
    count = _too_much(plan, policy.retention_bytes)
    count += len(list(takewhile(lambda found: _is_too_old(found, policy.retention_ms, now_ms), plan.segments[count:])))
    return RetentionLoss(count, plan.segments[count - 1].end_offset) if count else None


def _too_much(plan: PartitionPlan, limit_bytes: int | None) -> int:
    if limit_bytes is None or limit_bytes < 0:
        return 0
    sizes_bytes = [log_size_bytes(found.segment) for found in plan.segments]
    over_bytes, count = sum(sizes_bytes) - limit_bytes, 0
    for size_bytes in sizes_bytes:
        if over_bytes < size_bytes:
            break
        over_bytes -= size_bytes
        count += 1
    return count


def _is_too_old(found: SegmentPlan, limit_ms: int | None, now_ms: int) -> bool:
    if limit_ms is None or limit_ms < 0:
        return False
    largest_ms = found.segment.max_timestamp_ms
    if found.until_timestamp_ms is not None:
        largest_ms = min(largest_ms, found.until_timestamp_ms)
    return largest_ms >= 0 and now_ms - largest_ms > limit_ms
