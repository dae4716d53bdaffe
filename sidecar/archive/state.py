"""What a partition's commits add up to. A state is immutable; `sidecar.archive.fold` adds commits to one."""

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from operator import attrgetter

from sidecar.archive.actions import Clean
from sidecar.archive.coverage import Hole
from sidecar.archive.keys import NO_TOPIC_ID, Lineage
from sidecar.compaction_strategy import StrategyInUse
from sidecar.model import ArchivedSegment


@dataclass(frozen=True, slots=True)
class RemovedSegment:
    """A segment that is no longer live and whose objects may still be there, until they are purged.

    `removed_at_ms`: by the clock of the writer who removed it. `removed_by_commit`: the number of that commit; of a later one
    where an earlier release wrote the checkpoint. It is no part of what the archive holds, and takes no part in comparisons.
    Stored: the fields are those of its JSON.
    """

    segment_id: str
    base_offset: int
    end_offset: int
    removed_at_ms: int
    reason: str
    keep_ms: int = 0
    removed_by_commit: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class CommitId:
    """What identifies a commit of a lineage. `sha256`: of its exact bytes."""

    number: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A lineage after its first `next_number` commits.

    `segments`: live, ascending. `end_offset`: exclusive end of what is covered or recorded as lost, None before the
    first segment. `highest_leader_epoch`: of all writers so far, -1 if none knew its own. `last_sha256`: of the exact
    bytes of commit `next_number - 1`, None before the first. `clean`: what the last compaction covered, cut off where
    something was put in since; None before the first. `deleted_before_offset`: records below it were deleted on purpose on
    the broker, though segments may still hold them; 0 for none. `is_whole`: False where older segments were left out to
    save memory, so that this must never be taken for what the archive holds.
    """

    lineage: Lineage
    topic_id: str | None
    next_number: int = 0
    last_sha256: str | None = None
    last_committed_at_ms: int = 0
    highest_leader_epoch: int = -1
    end_offset: int | None = None
    segments: tuple[ArchivedSegment, ...] = ()
    holes: tuple[Hole, ...] = ()
    removed: tuple[RemovedSegment, ...] = ()
    clean: Clean | None = None
    deleted_before_offset: int = 0
    is_whole: bool = True

    @property
    def start_offset(self) -> int | None:
        """First offset of the oldest live segment; the end where none is left; None before the first segment."""
        return self.segments[0].base_offset if self.segments else self.end_offset

    @property
    def clean_end_offset(self) -> int:
        """Below it everything live is compacted with all that lies below; the archive's start where nothing is."""
        start_offset = self.start_offset or 0
        return start_offset if self.clean is None else max(self.clean.end_offset, start_offset)

    @property
    def last_commit(self) -> CommitId | None:
        return None if self.last_sha256 is None else CommitId(self.next_number - 1, self.last_sha256)

    @property
    def last_segment(self) -> ArchivedSegment | None:
        return self.segments[-1] if self.segments else None

    @property
    def loss_at_end(self) -> Hole | None:
        """The recorded loss with which it ends, None where a live segment ends it."""
        last = self.holes[-1] if self.holes else None
        return last if last is not None and last.end_offset == self.end_offset else None

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def leader_epoch(self) -> int:
        """Highest leader epoch of a writer or of an archived batch, -1 if none is known."""
        last = self.last_segment
        return max(self.highest_leader_epoch, last.highest_batch_leader_epoch if last else -1)


def empty_state(lineage: Lineage) -> PartitionState:
    return PartitionState(lineage, None if lineage.incarnation == NO_TOPIC_ID else lineage.incarnation)


def newest_part(state: PartitionState, from_offset: int) -> PartitionState:
    """The state with only those segments that end above an offset, and in any case the last: enough to append to it.

    What it says of the archive's start and size is not true any more.
    """
    first = bisect_right(state.segments, from_offset, key=attrgetter("end_offset"))
    first = min(first, max(0, len(state.segments) - 1))
    return replace(state, segments=state.segments[first:], is_whole=False) if first else state


def newest_strategy(state: PartitionState) -> StrategyInUse | None:
    """That of the clean range; where there is none, that of the newest compacted segment; None where nothing is compacted.

    Segments are compacted without a clean range where `before_upload` did it, or where the range was cut off at its start.
    """
    found = state.clean or next((segment for segment in reversed(state.segments) if segment.strategy is not None), None)
    if found is None or found.strategy is None:
        return None
    return StrategyInUse(found.strategy, found.strategy_parameters.get("header", ""))
