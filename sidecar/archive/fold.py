"""Adds commits to a partition's state, under the archive's rules.

Rules:

- Commits follow one another by number and hash. A writer's leader epoch never falls.
- Live segments and recorded gaps tile `[start, end)` without gap or overlap. Neither start nor end ever falls.
- What replaces a segment is not of a lower generation, unless it is reinstated.
- Only removed segments that are not purged are reinstated.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace

from sidecar.archive.actions import Add, AdoptTopicId, Clean, DeleteRecords, Lost, Purge, Reinstate, Remove
from sidecar.archive.commit import Commit
from sidecar.archive.coverage import Hole, find_defects, without
from sidecar.archive.segment_json import check_segment
from sidecar.archive.state import PartitionState, RemovedSegment
from sidecar.errors import CommitRefused, CoverageHole, Fenced
from sidecar.model import ArchivedSegment


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
        draft.next_number, draft.last_sha256 = commit.number + 1, commit_sha256
        draft.last_committed_at_ms = commit.committed_at_ms
        draft.highest_leader_epoch = max(draft.highest_leader_epoch, commit.writer.leader_epoch)
    return replace(
        draft.state,
        next_number=draft.next_number,
        last_sha256=draft.last_sha256,
        last_committed_at_ms=draft.last_committed_at_ms,
        highest_leader_epoch=draft.highest_leader_epoch,
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
        self.next_number, self.last_sha256 = state.next_number, state.last_sha256
        self.last_committed_at_ms, self.highest_leader_epoch = state.last_committed_at_ms, state.highest_leader_epoch
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
                case Reinstate(segment):
                    self._reinstate(segment, gone)
                    rearranged = True
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
                f"{self._where(commit)}: names topic id {commit.topic_id}, but this archive belongs to topic id "
                f"{self.state.topic_id}"
            )

    def _start_offset(self) -> int | None:
        return self.segments[0].base_offset if self.segments else self.end_offset

    def _where(self, commit: Commit) -> str:
        return f"{self.state.lineage.root} commit {commit.number}"

    def _check_succession(self, commit: Commit) -> None:
        topic_partition, where = self.state.lineage.topic_partition, self._where(commit)
        if commit.topic_partition != topic_partition:
            raise CommitRefused(f"{where}: belongs to {commit.topic_partition}, not to {topic_partition}")
        if commit.number != self.next_number:
            raise CommitRefused(f"{where}: expected commit {self.next_number}")
        if commit.previous_sha256 != self.last_sha256:
            raise CommitRefused(
                f"{where}: follows a commit with SHA-256 {commit.previous_sha256}, commit {commit.number - 1} has "
                f"{self.last_sha256}: one of them was altered or replaced"
            )
        if commit.writer.leader_epoch < self.highest_leader_epoch:
            raise Fenced(
                f"{where}: broker {commit.writer.broker_id} writes under leader epoch {commit.writer.leader_epoch}, but the "
                f"archive has a commit under leader epoch {self.highest_leader_epoch}: another broker leads this partition"
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
        self.removed[found.segment_id] = RemovedSegment(
            *wanted, commit.committed_at_ms, action.reason, action.keep_ms, commit.number
        )
        return found

    def _add(self, segment: ArchivedSegment, gone: list[ArchivedSegment]) -> bool:
        """Put a live segment in its place; says whether that was anywhere but at the end."""
        check_segment(segment)
        if segment.segment_id in self.removed:
            raise CommitRefused(f"segment {segment}: this id was removed before; every attempt takes a fresh id")
        return self._insert(segment, gone)

    def _reinstate(self, segment: ArchivedSegment, gone: list[ArchivedSegment]) -> None:
        """Make a removed segment live again, also in the place of segments of a higher generation."""
        check_segment(segment)
        removed = self.removed.get(segment.segment_id)
        span = segment.base_offset, segment.end_offset
        if removed is None or (removed.base_offset, removed.end_offset) != span:
            raise CommitRefused(
                f"segment {segment} cannot be live again: it is not among the removed ones, or its objects were deleted"
            )
        if segment.segment_id in {found.segment_id for found in gone}:
            raise CommitRefused(f"segment {segment} would be removed and live again by one commit")
        del self.removed[segment.segment_id]
        self._insert(segment, [])

    def _insert(self, segment: ArchivedSegment, gone: list[ArchivedSegment]) -> bool:
        if self.end_offset is None or segment.base_offset == self.end_offset:
            self.segments.append(segment)
            self.end_offset = segment.end_offset
            return False
        if segment.base_offset > self.end_offset:
            raise CoverageHole(
                f"{self.state.lineage.topic_partition}: segment {segment} would leave the offsets "
                f"[{self.end_offset}, {segment.base_offset}) uncovered, and no action records them as lost",
                hole=(self.end_offset, segment.base_offset),
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
                f"{self._where(commit)}: says that [{action.base_offset}, {action.end_offset}) is clean: expected a "
                f"range from the archive's start {self._start_offset()} to the end of a live segment"
            )
        self.clean = action

    def _delete_before(self, action: DeleteRecords, commit: Commit) -> None:
        low, high = self.deleted_before_offset, self.end_offset or 0
        if not low <= action.before_offset <= high:
            raise CommitRefused(
                f"{self._where(commit)}: says that records below {action.before_offset} were deleted: expected an "
                f"offset from {low}, which an earlier commit says, to the archive's end {high}"
            )
        self.deleted_before_offset = action.before_offset

    def _lose(self, action: Lost) -> bool:
        if self.end_offset is None:
            raise CommitRefused(f"[{action.base_offset}, {action.end_offset}) cannot be lost before the first segment")
        if action.base_offset > self.end_offset:
            raise CoverageHole(
                f"{self.state.lineage.topic_partition}: [{self.end_offset}, {action.base_offset}) would be neither covered "
                f"nor recorded as lost",
                hole=(self.end_offset, action.base_offset),
            )
        # Where no segment is left below it, a gap only moves the start: what lies below the start is not claimed anyway.
        rearranged = action.base_offset < self.end_offset or not self.segments
        hole = Hole(action.base_offset, action.end_offset, str(action.reason))
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
