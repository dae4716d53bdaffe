"""Which archived segments are restored, and where the first and the last of them are cut."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from sidecar.archive.bundle import indexes_size_bytes, log_size_bytes
from sidecar.archive.coverage import Hole
from sidecar.archive.state import PartitionState
from sidecar.errors import LineageUnknown, SettingsError
from sidecar.logformat.names import Suffix
from sidecar.model import ArchivedSegment, PartName, TopicPartition
from sidecar.restore.request import (
    NO_TOPIC_ID_WANTED,
    OPEN_END,
    DeletedRecordsMode,
    RestoreRequest,
    shown_range,
    shown_time,
)
from sidecar.restore.staging import NOTE_SUFFIX

INDEX_SUFFIXES = {
    PartName.OFFSET_INDEX: Suffix.OFFSET_INDEX,
    PartName.TIME_INDEX: Suffix.TIME_INDEX,
    PartName.TRANSACTION_INDEX: Suffix.TRANSACTION_INDEX,
}


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """A segment and what stays of it: batches that reach to `first_offset` or above, and begin below `end_offset`.

    `until_timestamp_ms`: of these only those before the first of them with a later record; None for all.
    `deleted_before_offset`: of these only those that reach above it; it may lie above the end.
    """

    segment: ArchivedSegment
    first_offset: int
    end_offset: int
    until_timestamp_ms: int | None = None
    deleted_before_offset: int = 0

    @property
    def kept_from_offset(self) -> int:
        """Batches that end below it are left out."""
        return max(self.first_offset, self.deleted_before_offset)

    @property
    def is_cut_at_start(self) -> bool:
        """Whether batches may be missing at its beginning."""
        return self.first_offset > self.segment.base_offset

    @property
    def is_cut_at_end(self) -> bool:
        """Whether batches may be missing at its end."""
        return self.end_offset < self.segment.end_offset or self.until_timestamp_ms is not None

    @property
    def is_cut(self) -> bool:
        return self.is_cut_at_start or self.is_cut_at_end

    @property
    def note_name(self) -> str:
        """The file that says, until all is done, that the segment is complete, and what it is made of."""
        return f"{self.segment.segment_id}{NOTE_SUFFIX}"

    @property
    def identity(self) -> str:
        return f"{self.segment.segment_id} {self.kept_from_offset} {self.end_offset} {self.until_timestamp_ms}"

    @property
    def size_bytes(self) -> int:
        return log_size_bytes(self.segment) + indexes_size_bytes(self.segment)


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One partition: its segments in ascending order, at least one.

    `start_offset`: the log start, which may lie inside the first batch that is kept. `before`: the next segment below the last
    one, whose snapshot is needed where the last one is cut; offsets between the two may be lost. `lost`: recorded gaps in what is
    restored. `asks_for_more`: the range asks for more than is archived. `deleted_before_offset`: archived records below it are
    left out, because they were deleted on purpose; 0 for none. `lost_to_offset`: all behind the last segment is lost up to there;
    below that segment's end where nothing is.
    """

    state: PartitionState
    segments: tuple[SegmentPlan, ...]
    start_offset: int
    before: ArchivedSegment | None
    lost: tuple[Hole, ...]
    asks_for_more: bool
    deleted_before_offset: int = 0
    lost_to_offset: int = 0

    @property
    def end_offset(self) -> int:
        """Where the log ends, exclusive: behind what is lost, for an offset that was given out once is never given out again.

        A bound, if the last segment ends at a time, or is cut inside a batch.
        """
        return max(self.segments[-1].end_offset, self.lost_to_offset)

    @property
    def blank_below(self) -> int | None:
        """Where the replay that gives the producers at a cut end begins with none, though offsets lie below; None: nowhere."""
        last = self.segments[-1]
        is_blank = last.is_cut_at_end and self.before is None and last.segment.base_offset > 0
        return last.segment.base_offset if is_blank else None

    @property
    def earlier_left_out(self) -> int:
        """Number of segments above a log that ends at a time, which have no later record themselves."""
        until_ms, above = self.segments[-1].until_timestamp_ms, self.segments[-1].end_offset
        if until_ms is None:
            return 0
        left_out = (found for found in self.state.segments if found.base_offset >= above and found.batch_count)
        return sum(found.max_timestamp_ms <= until_ms for found in left_out)

    @property
    def topic_partition(self) -> TopicPartition:
        return self.state.lineage.topic_partition

    def gaps(self) -> Iterator[tuple[ArchivedSegment, ArchivedSegment, int]]:
        """The segments below and above each lost range between two, and how many there are below it, ascending."""
        for number, (lower, upper) in enumerate(pairwise(found.segment for found in self.segments), start=1):
            if lower.end_offset < upper.base_offset:
                yield lower, upper, number

    @property
    def highest_leader_epoch(self) -> int:
        """The highest in any batch that is restored, or was there before a cleaner took it; -1 for none.

        The restored checkpoint has all of them, and so has what is written besides the archived batches.
        """
        found = [plan.segment for plan in self.segments]
        noted = (entry.epoch for segment in found for entry in segment.leader_epochs)
        return max(*(segment.highest_batch_leader_epoch for segment in found), *noted, -1)


def plan_partition(state: PartitionState, request: RestoreRequest, *, first_is_early: bool = False) -> PartitionPlan:
    """Choose the segments.

    Args:
        first_is_early: what is wanted of the first one is known not to be later than the time that is asked for; whatever its
            commit says, which counts also what lies below the log's start.

    Raises SettingsError if the archive does not reach the range.
    """
    start_offset, end_offset, left_out = _wanted(state, request)
    asked_from, asked_to = request.offset_range or (start_offset, end_offset)
    # Where all of it was deleted, an empty log begins and ends there; the last segment has its producers and epochs.
    reached = min(start_offset, end_offset - 1)
    chosen = [
        segment for segment in state.segments if segment.end_offset > reached and segment.base_offset < end_offset
    ]
    first_offset, late = start_offset, request.until_timestamp_ms
    if not chosen:
        # All of it is lost. So it is with what was deleted.
        chosen = [segment for segment in state.segments if segment.base_offset < end_offset][-1:]
        first_offset, late = end_offset, None
    if late is not None:
        may_end = chosen[1:] if first_is_early else chosen
        end = next((found for found in may_end if found.max_timestamp_ms > late), None)
        count = None if end is None else chosen.index(end) + 1
        chosen, late = (chosen, None) if count is None else (chosen[:count], late)
    plans = [
        SegmentPlan(segment, max(segment.base_offset, first_offset), min(segment.end_offset, end_offset))
        for segment in chosen
    ]
    plans[-1] = replace(plans[-1], until_timestamp_ms=late, deleted_before_offset=left_out)
    # A log that ends at a time ends in a segment.
    log_end_offset = end_offset if late is None else plans[-1].end_offset
    holes = tuple(hole for hole in state.holes if hole.end_offset > start_offset and hole.base_offset < log_end_offset)
    return PartitionPlan(
        state=state,
        segments=tuple(plans),
        # Below the first segment there may be a gap: the log begins where records are.
        start_offset=max(first_offset, chosen[0].base_offset),
        before=next((found for found in reversed(state.segments) if found.end_offset <= chosen[-1].base_offset), None),
        lost=holes,
        asks_for_more=asked_from < (state.start_offset or 0) or (state.end_offset or 0) < asked_to < OPEN_END,
        deleted_before_offset=left_out,
        lost_to_offset=end_offset if late is None else 0,
    )


def _wanted(state: PartitionState, request: RestoreRequest) -> tuple[int, int, int]:
    """The offsets to be restored, the end exclusive; and below which archived records are left out, 0 for none."""
    start, end = state.start_offset, state.end_offset
    if start is None or end is None or not state.segments:
        raise SettingsError(
            f"{state.lineage}: the archive has no segment of it, so nothing can be restored. `status` shows what it has"
        )
    first, last_end = request.offset_range or (start, end)
    if first >= end or last_end <= start:
        raise SettingsError(
            f"{state.lineage}: the archive has the offsets {shown_range(start, end)}, and none of the requested ones, "
            f"{shown_range(first, last_end)}. Correct --offset-range"
        )
    first, last_end = max(first, start), min(last_end, end)
    deleted = state.deleted_before_offset if request.deleted_records is DeletedRecordsMode.LEAVE_OUT else 0
    return min(max(first, deleted), last_end), last_end, deleted if deleted > first else 0


def choose_lineage(states: Sequence[PartitionState], request: RestoreRequest) -> PartitionState:
    """The history that is meant, of those archived under one partition's name.

    Raises LineageUnknown if several could be.
    """
    fitting = list(states)
    if request.wanted_topic_id not in {None, NO_TOPIC_ID_WANTED} and len(fitting) > 1:
        # The target's id decides only if one of them is of that very topic.
        fitting = [state for state in fitting if state.topic_id == request.wanted_topic_id] or fitting
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(
        f"{state.lineage} with the offsets [{state.start_offset}, {state.end_offset}), last committed to at "
        f"{shown_time(state.last_committed_at_ms)}"
        for state in sorted(fitting, key=lambda state: -state.last_committed_at_ms)
    )
    raise LineageUnknown(
        f"{fitting[0].lineage.topic_partition}: several histories are archived under this name: {names}. Choose "
        "one: --cluster-id ID, --incarnation ID"
    )
