"""What a broker's cleaner has left to do in a partition, from files alone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sidecar.model import PartitionFiles, SegmentFiles
from sidecar.topic_policy import TopicPolicy

NS_PER_MS = 1_000_000
DEFAULT_RATIO = 0.5
"""`min.cleanable.dirty.ratio` where it is not known."""


@dataclass(frozen=True, slots=True)
class CleanerBacklog:
    """What the broker's cleaner has left to do in one partition.

    `dirty_bytes`: whole rolled segments from the first dirty offset on. `due_since_ms`: since when the cleaner should have
    begun, None if it need not yet. `is_beyond_max_lag`: something dirty is older than `max.compaction.lag.ms`.
    """

    first_dirty_offset: int
    dirty_bytes: int
    clean_bytes: int
    due_since_ms: int | None
    is_beyond_max_lag: bool

    @property
    def dirty_ratio(self) -> float:
        """As the cleaner reckons it; 0.0 where there is nothing."""
        whole = self.dirty_bytes + self.clean_bytes
        return self.dirty_bytes / whole if whole else 0.0


def backlog_of(
    files: PartitionFiles,
    first_dirty_offset: int | None,
    policy: TopicPolicy,
    now_ms: int,
    stable_end_offset: int | None = None,
) -> CleanerBacklog:
    """What is left to do, from the sizes and times of the files. Pure.

    Args:
        first_dirty_offset: as checkpointed, None where the cleaner never came.
        stable_end_offset: the last stable offset: the cleaner leaves a segment alone that reaches above it. None where nobody
            tells.

    Source: LogCleanerManager.cleanableOffsets, LogToClean; times are those of the last writes.
    """
    start_offset = files.segments[0].base_offset if files.segments else 0
    end_offset = files.active_base_offset or start_offset
    first = start_offset if first_dirty_offset is None else first_dirty_offset
    first = first if start_offset <= first <= end_offset else start_offset
    min_lag_ms = policy.min_compaction_lag_ms or 0
    cleanable_end = end_offset if stable_end_offset is None else min(end_offset, stable_end_offset)
    dirty = _cleanable(files.segments, first, cleanable_end, now_ms - min_lag_ms)
    clean_bytes = sum(segment.size_bytes for segment in files.segments if segment.base_offset < first)
    least_ratio = DEFAULT_RATIO if policy.min_cleanable_dirty_ratio is None else policy.min_cleanable_dirty_ratio
    since: list[int] = []
    dirty_bytes = 0
    for number, segment in enumerate(dirty):
        dirty_bytes += segment.size_bytes
        if not since and dirty_bytes > least_ratio * (clean_bytes + dirty_bytes):
            since.append(max(map(_written_ms, dirty[: number + 1])) + min_lag_ms)
    is_beyond = False
    if policy.max_compaction_lag_ms is not None and dirty_bytes:
        overdue_ms = min(map(_written_ms, dirty)) + policy.max_compaction_lag_ms
        is_beyond = overdue_ms < now_ms
        since += [overdue_ms] if is_beyond else []
    return CleanerBacklog(first, dirty_bytes, clean_bytes, min(since, default=None), is_beyond)


def _cleanable(
    segments: Sequence[SegmentFiles], first_offset: int, end_offset: int, newest_ms: int
) -> list[SegmentFiles]:
    dirty = []
    for segment in segments:
        if segment.end_offset <= first_offset:
            continue
        if segment.end_offset > end_offset or _written_ms(segment) > newest_ms:
            break
        dirty.append(segment)
    return dirty


def _written_ms(segment: SegmentFiles) -> int:
    return segment.log.mtime_ns // NS_PER_MS
