"""What of a partition may be compacted, whether it is worth while, and how segments and partitions are put together.

Source: LogCleanerManager.cleanableOffsets, calculateCleanableBytes, maxCompactionDelay; Cleaner.groupSegmentsBySize.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sidecar.compaction.rules import CompactionRules
from sidecar.logformat.headers import LARGEST_POSITION


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """A rolled segment `[base_offset, end_offset)`.

    `first_timestamp_ms` is the largest timestamp of its first batch, `largest_timestamp_ms` of all (file time where no
    batch has one). `index_bytes` is the size of the larger of its two indexes.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    first_timestamp_ms: int = -1
    largest_timestamp_ms: int = -1
    index_bytes: int = 0


class Due(StrEnum):
    """Whether to compact now, and why."""

    NOTHING_CLEANABLE = "nothing_cleanable"
    BELOW_RATIO = "below_ratio"
    DIRTY_RATIO = "dirty_ratio"
    MAX_LAG = "max_lag"

    @property
    def now(self) -> bool:
        """Whether a round should run."""
        return self in (Due.DIRTY_RATIO, Due.MAX_LAG)


@dataclass(frozen=True, slots=True)
class CleanableRange:
    """`[first_dirty_offset, first_uncleanable_offset)` can be cleaned; the latter is the base of a segment.

    `checkpoint_moved`: the checkpoint lay outside of the log and was put back to its start.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    due: Due
    checkpoint_moved: bool = False

    @property
    def dirty_ratio(self) -> float:
        """What is compared with `min_cleanable_dirty_ratio`, strictly."""
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0


def cleanable_range(
    segments: Sequence[SegmentSummary],
    rules: CompactionRules,
    *,
    checkpoint: int | None,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
) -> CleanableRange:
    """What may be cleaned of these rolled segments, ascending and without the active one, whose base is the last one's end.

    `checkpoint`: where the last round ended, None if there was none. `last_stable_offset`: the first open transaction, or
    the high watermark: nothing at or above it is decided.
    """
    outside = checkpoint is not None and not log_start_offset <= checkpoint <= log_end_offset
    first_dirty = log_start_offset if checkpoint is None or outside else checkpoint
    active_base = segments[-1].end_offset if segments else log_start_offset
    limit = max(min(last_stable_offset, active_base, _lag_limit(segments, first_dirty, rules)), first_dirty)
    first_uncleanable = next(
        (found.base_offset for found in segments if found.base_offset <= limit < found.end_offset), active_base
    )
    begin = min(first_dirty, first_uncleanable)
    cleanable_bytes = sum(
        found.size_bytes for found in segments if found.end_offset > begin and found.base_offset < first_uncleanable
    )
    clean_bytes = sum(found.size_bytes for found in segments if found.base_offset < first_dirty)
    found = CleanableRange(first_dirty, first_uncleanable, clean_bytes, cleanable_bytes, Due.NOTHING_CLEANABLE, outside)
    if cleanable_bytes == 0:
        return found
    due = Due.BELOW_RATIO
    if found.dirty_ratio > rules.min_cleanable_dirty_ratio:
        due = Due.DIRTY_RATIO
    elif _max_lag_exceeded(segments, first_dirty, rules):
        due = Due.MAX_LAG
    return CleanableRange(first_dirty, first_uncleanable, clean_bytes, cleanable_bytes, due, outside)


def _lag_limit(segments: Sequence[SegmentSummary], first_dirty: int, rules: CompactionRules) -> int:
    """Base of the first dirty segment with a record that is too young; without a lag, no limit."""
    if rules.min_compaction_lag_ms > 0:
        for segment in segments:
            young = segment.largest_timestamp_ms > rules.now_ms - rules.min_compaction_lag_ms
            if segment.end_offset > first_dirty and young:
                return segment.base_offset
    return 2**63 - 1


def _max_lag_exceeded(segments: Sequence[SegmentSummary], first_dirty: int, rules: CompactionRules) -> bool:
    times = [
        segment.first_timestamp_ms
        for segment in segments
        if segment.end_offset > first_dirty and segment.first_timestamp_ms > 0
    ]
    return bool(times) and min(times) < rules.now_ms - rules.max_compaction_lag_ms


def grouped(segments: Sequence[SegmentSummary], rules: CompactionRules) -> tuple[int, ...]:
    """How many of the segments, in order, go into each output: up to `segment_bytes`, index size and 2^31 offsets.

    The sizes are whatever the caller takes for a segment's: Kafka takes those before compaction, we the expected ones after.
    """
    groups: list[int] = []
    begin = 0
    while begin < len(segments):
        end = begin + 1
        size_bytes, index_bytes = segments[begin].size_bytes, segments[begin].index_bytes
        while end < len(segments):
            following = segments[end]
            size_bytes += following.size_bytes
            index_bytes += following.index_bytes
            spans = following.end_offset - 1 - segments[begin].base_offset
            too_wide = following.size_bytes > 0 and spans > LARGEST_POSITION
            if size_bytes > rules.segment_bytes or index_bytes > rules.segment_index_bytes or too_wide:
                break
            end += 1
        groups.append(end - begin)
        begin = end
    return tuple(groups)
