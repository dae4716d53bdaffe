"""When the broker's retention will delete a segment: what is not archived by then exists nowhere any more."""

from typing import Final

from sidecar.model import PartitionFiles, SegmentFiles
from sidecar.topic_policy import TopicPolicy

AT_RISK_MS: Final = 3_600_000
"""What the broker will delete within an hour is at risk: the threshold of the alert TieredSidecarDataAtRisk."""
URGENT_MS = 600_000


def deletion_deadline_ms(
    files: PartitionFiles, segment: SegmentFiles, policy: TopicPolicy, largest_timestamp_ms: int, now_ms: int
) -> int | None:
    """The earliest moment at which the broker may delete a segment, in wall-clock milliseconds; None for never. Pure.

    By time: its largest timestamp is older than the limit. By size: what lies above it fills the limit alone; when that
    will be is estimated from the growth of the log. A deadline in the past means: at the broker's next check.

    Source: UnifiedLog.deleteRetentionMsBreachedSegments, deleteRetentionSizeBreachedSegments.
    """
    deadlines: list[float] = []
    if policy.local_limit_ms is not None:
        deadlines.append(largest_timestamp_ms + policy.local_limit_ms)
    if policy.local_limit_bytes is not None:
        active_bytes = 0 if files.active_log is None else files.active_log.size_bytes
        above = sum(other.size_bytes for other in files.segments if other.base_offset > segment.base_offset)
        missing_bytes = policy.local_limit_bytes - above - active_bytes
        rate = growth_bytes_per_ms(files)
        if missing_bytes <= 0:
            deadlines.append(now_ms)
        elif rate > 0:
            deadlines.append(now_ms + missing_bytes / rate)
    return int(min(deadlines)) if deadlines else None


def is_urgent(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms - now_ms < URGENT_MS


def growth_bytes_per_ms(files: PartitionFiles) -> float:
    """How fast the log grew lately, from the last writes of its rolled segments; 0.0 where they do not tell. Pure."""
    if len(files.segments) < 2:
        return 0.0
    first, last = files.segments[0].log, files.segments[-1].log
    took_ms = (last.mtime_ns - first.mtime_ns) / 1_000_000
    written = sum(segment.size_bytes for segment in files.segments[1:])
    return written / took_ms if took_ms > 0 else 0.0
