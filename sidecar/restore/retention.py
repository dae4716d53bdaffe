"""What a broker's retention deletes of a restored log, at once and later: records come back with the age that they have."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from sidecar.archive.bundle import log_size_bytes
from sidecar.restore.plan import PartitionPlan, SegmentPlan
from sidecar.topic_policy import TopicPolicy


@dataclass(frozen=True, slots=True)
class RetentionLoss:
    """The log's first `segments`, all below `end_offset`, that a broker deletes at its first look after its start."""

    segments: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Foretold:
    """What retention does to a restored log. `at_start`: what it deletes at once, None for nothing.

    `next_ms`: when, by age alone, the first segment goes that is left then; None for never, or for none left.
    """

    at_start: RetentionLoss | None = None
    next_ms: int | None = None


def foretold(plan: PartitionPlan, policy: TopicPolicy, now_ms: int) -> Foretold:
    """What a broker with this policy does that starts at `now_ms`. Pure."""
    loss = deleted_at_start(plan, policy, now_ms)
    left = plan.segments[loss.segments if loss else 0 :]
    limit_ms = policy.retention_ms
    if not left or limit_ms is None or limit_ms < 0 or not _deletes(policy):
        return Foretold(loss)
    largest_ms = _largest_ms(left[0])
    return Foretold(loss, (now_ms if largest_ms < 0 else largest_ms) + limit_ms + 1)


def deleted_at_start(plan: PartitionPlan, policy: TopicPolicy, now_ms: int) -> RetentionLoss | None:
    """What a broker with this policy deletes at `now_ms`; None for nothing. Pure.

    By size from the start, as long as what is left fills the limit; then by time from there, as long as the segments' largest
    timestamps are too old. A segment without timestamps has the age of its file, which is new. Local limits of tiered topics do
    not count: what is deleted by them has been copied before. How much stays of a cut segment is not known, and counts for nothing:
    of one that is cut at its start that makes no difference, and below a cut end at least this is deleted.
    Source: UnifiedLog.deleteOldSegments, deleteRetentionSizeBreachedSegments, deleteRetentionMsBreachedSegments.
    """
    if not _deletes(policy):
        return None
    count = _too_much(plan, policy.retention_bytes)
    count += len(list(takewhile(lambda found: _is_too_old(found, policy.retention_ms, now_ms), plan.segments[count:])))
    return RetentionLoss(count, plan.segments[count - 1].end_offset) if count else None


def _deletes(policy: TopicPolicy) -> bool:
    return policy.cleanup_policy is None or "delete" in policy.cleanup_policy


def _too_much(plan: PartitionPlan, limit_bytes: int | None) -> int:
    if limit_bytes is None or limit_bytes < 0:
        return 0
    sizes_bytes = [0 if found.is_cut else log_size_bytes(found.segment) for found in plan.segments]
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
    largest_ms = _largest_ms(found)
    return largest_ms >= 0 and now_ms - largest_ms > limit_ms


def _largest_ms(found: SegmentPlan) -> int:
    """-1 where its records have no timestamps."""
    largest_ms = found.segment.max_timestamp_ms
    return largest_ms if found.until_timestamp_ms is None else min(largest_ms, found.until_timestamp_ms)
