"""Pure: which archived partitions are due for compaction, and how far.

Source: LogCleanerManager.cleanableOffsets, calculateCleanableBytes, maxCompactionDelay. An
archive has no active segment: all that is in it was rolled, and stable.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sidecar.archive.bundle import log_size_bytes
from sidecar.config import CompactionPolicy
from sidecar.config.compaction import NEVER_MS
from sidecar.model import ArchivedSegment

NS_PER_MS = 1_000_000


class Trigger(StrEnum):
    """Which of Kafka's two rules makes a partition due: `min.cleanable.dirty.ratio` or `max.compaction.lag.ms`."""

    DIRTY_RATIO = "dirty ratio"
    MAX_LAG = "max compaction lag"


@dataclass(frozen=True, slots=True)
class Assessment:
    """A partition, weighed.

    `first_dirty_offset`: below it everything is compacted with all that lies below. `first_uncleanable_offset` (exclusive
    end of what may be compacted): a segment's base, or the archive's end; at or below the first dirty offset, nothing may.
    `cleanable_bytes`: of whole `.log` objects from the one that holds the first dirty offset up to there; `clean_bytes`:
    of those that begin below the first dirty offset. A segment that the first dirty offset lies in is in both.
    `trigger`: None if it is not due. `recheck_at_ms`: when time alone may change the answer, None if it cannot.
    `undone_by_commit`: the newest commit that undid a compaction, -1 for none.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    trigger: Trigger | None
    recheck_at_ms: int | None
    undone_by_commit: int = -1

    @property
    def dirty_ratio(self) -> float:
        """Which part of what could be compacted never was."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def size_bytes(self) -> int:
        """What a compaction has to read: the clean part too."""
        return self.clean_bytes + self.cleanable_bytes


def assess(
    segments: Sequence[ArchivedSegment],
    clean_end_offset: int,
    policy: CompactionPolicy,
    *,
    now_ms: int,
    first_batch_timestamps_ms: Mapping[int, int] | None = None,
    stable_end_offset: int = 2**63 - 1,
) -> Assessment:
    """Weigh a partition.

    Args:
        segments: live, ascending, without gaps except recorded ones.
        clean_end_offset: up to where (exclusive) earlier compactions have come; below the archive's start if nowhere.
        first_batch_timestamps_ms: by base offset, the largest timestamp of the first batch. Asked for dirty segments, and only
            where `needs_first_batches`; values that are not positive do not count.
        stable_end_offset: of transactions that reach to or above it, the archive does not say yet how they end.
    """
    if not segments:
        return Assessment(clean_end_offset, clean_end_offset, 0, 0, None, None)
    start_offset, end_offset = segments[0].base_offset, segments[-1].end_offset
    first_dirty = clean_end_offset if start_offset <= clean_end_offset <= end_offset else start_offset
    dirty = dirty_segments(segments, first_dirty)
    too_young = _too_young(dirty, policy, now_ms)
    undecided = next((segment for segment in dirty if segment.end_offset > stable_end_offset), None)
    bases = [segment.base_offset for segment in (too_young, undecided) if segment is not None]
    first_uncleanable = min(bases, default=end_offset)
    cleanable_bytes = sum(log_size_bytes(segment) for segment in dirty if segment.base_offset < first_uncleanable)
    clean_bytes = sum(log_size_bytes(segment) for segment in segments if segment.base_offset < first_dirty)
    timestamps_ms = [(first_batch_timestamps_ms or {}).get(segment.base_offset, -1) for segment in dirty]
    earliest_ms = min((timestamp_ms for timestamp_ms in timestamps_ms if timestamp_ms > 0), default=None)
    ratio_exceeded = cleanable_bytes > policy.min_cleanable_dirty_ratio * (clean_bytes + cleanable_bytes)
    lag_exceeded = (
        earliest_ms is not None and earliest_ms < now_ms - policy.max_compaction_lag_ms and cleanable_bytes > 0
    )
    trigger = Trigger.DIRTY_RATIO if ratio_exceeded else Trigger.MAX_LAG if lag_exceeded else None
    changes = []
    if too_young is not None:
        changes.append(_largest_timestamp_ms(too_young) + policy.min_compaction_lag_ms)
    if earliest_ms is not None and not lag_exceeded:
        changes.append(earliest_ms + policy.max_compaction_lag_ms + 1)
    return Assessment(
        first_dirty,
        first_uncleanable,
        clean_bytes,
        cleanable_bytes,
        trigger,
        min((change for change in changes if now_ms < change <= NEVER_MS), default=None),
    )


def needs_first_batches(policy: CompactionPolicy) -> bool:
    return policy.max_compaction_lag_ms < NEVER_MS


def dirty_segments(segments: Sequence[ArchivedSegment], first_dirty_offset: int) -> list[ArchivedSegment]:
    """Those that hold offsets which are not compacted, ascending."""
    return [segment for segment in segments if segment.end_offset > first_dirty_offset]


def _too_young(dirty: Iterable[ArchivedSegment], policy: CompactionPolicy, now_ms: int) -> ArchivedSegment | None:
    """The first segment with a record that is too young. Its clock is the producers', as it is Kafka's."""
    if not policy.min_compaction_lag_ms:
        return None
    youngest_ms = now_ms - policy.min_compaction_lag_ms
    return next((segment for segment in dirty if _largest_timestamp_ms(segment) > youngest_ms), None)


def _largest_timestamp_ms(segment: ArchivedSegment) -> int:
    """Where no record has one, the file's own. Source: LogSegment.largestTimestamp."""
    if segment.max_timestamp_ms >= 0 or segment.source_mtime_ns is None:
        return segment.max_timestamp_ms
    return segment.source_mtime_ns // NS_PER_MS
