"""What a partition's commits add up to. A state is immutable; `fold` adds commits to one under the archive's rules.

Rules: commits follow one another by number and hash; a writer's leader epoch never falls; live segments and recorded
holes tile `[start, end)` without gap or overlap; the end never falls and the start never falls; what replaces a segment
is not of a lower generation.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sidecar.archive.commit import Add, AdoptTopicId, Clean, Commit, DeleteRecords, Lost, Purge, Remove
from sidecar.archive.coverage import Hole, find_defects, without
from sidecar.archive.keys import NO_TOPIC_ID, Lineage
from sidecar.archive.segment_json import check_segment
from sidecar.errors import CommitRefused, CoverageHole, Fenced
from sidecar.model import ArchivedSegment


@dataclass(frozen=True, slots=True)
class RemovedSegment:
    """A segment that is no longer live and whose objects may still be there, until they are purged."""

    segment_id: str
    base_offset: int
    end_offset: int
    removed_at_ms: int
    reason: str
    keep_ms: int = 0


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A lineage after its first `next_number` commits.

    `segments`: live, ascending. `end_offset`: exclusive end of what is covered or recorded as lost, None before the
    first segment. `highest_leader_epoch`: of all writers so far, -1 if none knew its own. `last_sha256`: of the exact
    bytes of commit `next_number - 1`, None before the first. `clean`: what the last compaction covered, cut off where
    something was put in since; None before the first. `deleted_before_offset`: records below it were deleted on purpose on
    the broker, though segments may still hold them; 0 for none.
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
    def last_segment(self) -> ArchivedSegment | None:
        """The live segment with the highest offsets."""
        return self.segments[-1] if self.segments else None

    @property
    def size_bytes(self) -> int:
        """Bytes of all live objects."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def leader_epoch(self) -> int:
        """Highest leader epoch of a writer or of an archived batch, -1 if none is known."""
        last = self.last_segment
        return max(self.highest_leader_epoch, last.highest_batch_leader_epoch if last else -1)

    def segment_at(self, offset: int) -> ArchivedSegment | None:
        """The live segment that covers an offset."""
        index = bisect_left(self.segments, offset, key=lambda segment: segment.end_offset - 1)
        found = self.segments[index] if index < len(self.segments) else None
        return found if found and found.base_offset <= offset else None


def empty_state(lineage: Lineage) -> PartitionState:
    """The state before the first commit."""
    return PartitionState(lineage, None if lineage.incarnation == NO_TOPIC_ID else lineage.incarnation)


def newest_part(state: PartitionState, from_offset: int) -> PartitionState:
    """The state with only those segments that end above an offset, and in any case the last: enough to append to it.

    What it says of the archive's start and size is not true any more.
    """
    first = bisect_right(state.segments, from_offset, key=lambda segment: segment.end_offset)
    first = min(first, max(0, len(state.segments) - 1))
    return replace(state, segments=state.segments[first:]) if first else state


def fold(state: PartitionState, commits: Iterable[tuple[Commit, str]]) -> PartitionState:
    """Apply commits, each with the SHA-256 of its exact bytes.

    Raises:
        Fenced: a writer's leader epoch lies below one seen before.
        CoverageHole: an added segment begins above the end.
        CommitRefused: any other broken rule.
    """
    draft = _Draft(state)
    for commit, commit_sha256 in commits:
        draft.apply(commit)
        draft.state = replace(
            draft.state,
            next_number=commit.number + 1,
            last_sha256=commit_sha256,
            last_committed_at_ms=commit.committed_at_ms,
            highest_leader_epoch=max(draft.state.highest_leader_epoch, commit.writer.leader_epoch),
        )
    return replace(
        draft.state,
        end_offset=draft.end_offset,
        segments=tuple(draft.segments),
        holes=draft.holes,
        removed=tuple(draft.removed.values()),
        clean=draft.clean,
        deleted_before_offset=draft.deleted_before_offset,
    )


class _Draft:
    """Mutable while commits are folded, so that n appended segments cost n steps and not n squared."""

    def __init__(self, state: PartitionState) -> None:
        self.state = state
        self.segments = list(state.segments)
        self.holes = state.holes
        self.removed = {segment.segment_id: segment for segment in state.removed}
        self.end_offset = state.end_offset
        self.clean = state.clean
        self.deleted_before_offset = state.deleted_before_offset

    def apply(self, commit: Commit) -> None:
        self._check_succession(commit)
        removes = [action for action in commit.actions if isinstance(action, Remove)]
        start_before, end_before = self._start_offset(), self.end_offset
        gone = [self._take_out(action, commit) for action in removes]
        rearranged = bool(gone)
        for action in commit.actions:
            match action:
                case Add(segment):
                    rearranged |= self._add(segment, gone)
                case Lost():
                    rearranged |= self._lose(action)
                case AdoptTopicId(topic_id):
                    self._adopt(topic_id)
                case Purge(segment_ids):
                    self._purge(segment_ids)
                case Remove() | Clean() | DeleteRecords():
                    continue
        if rearranged:
            self._check_coverage(start_before or 0, end_before or 0)
        for action in commit.actions:
            if isinstance(action, Clean):
                self._mark_clean(action, commit)
            elif isinstance(action, DeleteRecords):
                self._delete_before(action, commit)
        if commit.topic_id != self.state.topic_id:
            raise CommitRefused(
                f"{self._where(commit)}: names topic id {commit.topic_id}, here it is {self.state.topic_id}"
            )

    def _start_offset(self) -> int | None:
        return self.segments[0].base_offset if self.segments else self.end_offset

    def _where(self, commit: Commit) -> str:
        return f"{self.state.lineage.root} commit {commit.number}"

    def _check_succession(self, commit: Commit) -> None:
        state, where = self.state, self._where(commit)
        if commit.topic_partition != state.lineage.topic_partition:
            raise CommitRefused(f"{where}: belongs to {commit.topic_partition}, not to {state.lineage.topic_partition}")
        if commit.number != state.next_number:
            raise CommitRefused(f"{where}: expected commit {state.next_number}")
        if commit.previous_sha256 != state.last_sha256:
            raise CommitRefused(
                f"{where}: follows a commit with SHA-256 {commit.previous_sha256}, commit {commit.number - 1} has "
                f"{state.last_sha256}: one of them was altered or replaced"
            )
        if commit.writer.leader_epoch < state.highest_leader_epoch:
            raise Fenced(
                f"{where}: broker {commit.writer.broker_id} writes under leader epoch {commit.writer.leader_epoch}, but the "
                f"archive has a commit under leader epoch {state.highest_leader_epoch}: another broker leads this partition"
            )

    def _take_out(self, action: Remove, commit: Commit) -> ArchivedSegment:
        index = bisect_left(self.segments, action.base_offset, key=lambda segment: segment.base_offset)
        found = self.segments[index] if index < len(self.segments) else None
        wanted = (action.segment_id, action.base_offset, action.end_offset)
        if found is None or (found.segment_id, found.base_offset, found.end_offset) != wanted:
            raise CommitRefused(
                f"{self._where(commit)}: removes [{action.base_offset}, {action.end_offset}) {action.segment_id}, "
                f"which is not live"
            )
        del self.segments[index]
        self.removed[found.segment_id] = RemovedSegment(*wanted, commit.committed_at_ms, action.reason, action.keep_ms)
        return found

    def _add(self, segment: ArchivedSegment, gone: list[ArchivedSegment]) -> bool:
        """Put a live segment in its place; says whether that was anywhere but at the end."""
        check_segment(segment)
        if segment.segment_id in self.removed:
            raise CommitRefused(f"segment {segment}: this id was removed before; every attempt takes a fresh id")
        if self.end_offset is None or segment.base_offset == self.end_offset:
            self.segments.append(segment)
            self.end_offset = segment.end_offset
            return False
        if segment.base_offset > self.end_offset:
            raise CoverageHole(
                f"{self.state.lineage.topic_partition}: segment {segment} would leave the offsets "
                f"[{self.end_offset}, {segment.base_offset}) uncovered, and no action records them as lost"
            )
        index = bisect_left(self.segments, segment.base_offset, key=lambda live: live.base_offset)
        neighbours = self.segments[max(0, index - 1) : index + 1]
        if overlapped := next((live for live in neighbours if _overlap(live, segment)), None):
            raise CommitRefused(f"segment {segment} overlaps the live segment {overlapped}")
        if lowered := next(
            (old for old in gone if _overlap(old, segment) and old.generation > segment.generation), None
        ):
            raise CommitRefused(
                f"segment {segment} of generation {segment.generation} would replace {lowered} of generation "
                f"{lowered.generation}"
            )
        self.segments.insert(index, segment)
        self.holes = without(self.holes, segment.base_offset, segment.end_offset)
        self.end_offset = max(self.end_offset, segment.end_offset)
        self._soil(segment.base_offset)
        return True

    def _soil(self, offset: int) -> None:
        """What was put in there has not been compared with what lies below it."""
        if self.clean is not None and offset < self.clean.end_offset:
            clean = replace(self.clean, end_offset=offset)
            self.clean = clean if clean.base_offset < offset else None

    def _mark_clean(self, action: Clean, commit: Commit) -> None:
        bases = {segment.base_offset for segment in self.segments}
        ends = {segment.end_offset for segment in self.segments}
        if self._start_offset() != action.base_offset or not (
            action.base_offset in bases and action.end_offset in ends
        ):
            raise CommitRefused(
                f"{self._where(commit)}: says that [{action.base_offset}, {action.end_offset}) is clean: expected the archive's "
                f"start {self._start_offset()} and the end of a live segment"
            )
        self.clean = action

    def _delete_before(self, action: DeleteRecords, commit: Commit) -> None:
        low, high = self.deleted_before_offset, self.end_offset or 0
        if not low <= action.before_offset <= high:
            raise CommitRefused(
                f"{self._where(commit)}: says that records below {action.before_offset} were deleted: expected an offset from "
                f"{low}, which was said before, to the archive's end {high}"
            )
        self.deleted_before_offset = action.before_offset

    def _lose(self, action: Lost) -> bool:
        if self.end_offset is None:
            raise CommitRefused(f"[{action.base_offset}, {action.end_offset}) cannot be lost before the first segment")
        if action.base_offset > self.end_offset:
            raise CoverageHole(
                f"{self.state.lineage.topic_partition}: [{self.end_offset}, {action.base_offset}) would be neither covered "
                f"nor recorded as lost"
            )
        # Where no segment is left below it, a hole only moves the start: what lies below the start is not claimed anyway.
        rearranged = action.base_offset < self.end_offset or not self.segments
        hole = Hole(action.base_offset, action.end_offset, action.reason)
        self.holes = tuple(sorted((*self.holes, hole)))
        self.end_offset = max(self.end_offset, action.end_offset)
        return rearranged

    def _adopt(self, topic_id: str) -> None:
        if self.state.topic_id is not None:
            raise CommitRefused(f"{self.state.lineage.root} already belongs to topic id {self.state.topic_id}")
        self.state = replace(self.state, topic_id=topic_id)

    def _purge(self, segment_ids: tuple[str, ...]) -> None:
        for segment_id in segment_ids:
            if self.removed.pop(segment_id, None) is None:
                raise CommitRefused(f"segment {segment_id} cannot be purged: it is not among the removed ones")

    def _check_coverage(self, start_before: int, end_before: int) -> None:
        start, end = self._start_offset() or 0, max(self.end_offset or 0, end_before)
        if start < start_before:
            raise CommitRefused(f"the archive would begin at {start}, below its start {start_before}")
        self.holes = without(self.holes, 0, start)
        spans = [(segment.base_offset, segment.end_offset) for segment in self.segments]
        spans += [(hole.base_offset, hole.end_offset) for hole in self.holes]
        defects = find_defects(spans, start, end)
        if defects:
            raise CommitRefused(f"{self.state.lineage.topic_partition}: the commit would leave {defects[0]}")


def _overlap(left: ArchivedSegment, right: ArchivedSegment) -> bool:
    return left.base_offset < right.end_offset and right.base_offset < left.end_offset
