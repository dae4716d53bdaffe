"""The newest compaction of a partition, as far as its commits tell whether it can be undone."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sidecar.archive.actions import UNDONE, Add, Remove, is_compacted
from sidecar.archive.commit import Commit
from sidecar.archive.coverage import joined_spans
from sidecar.archive.state import PartitionState, RemovedSegment
from sidecar.model import ArchivedSegment

UNDO_SEGMENTS_MAX: Final = 8000
"""One commit undoes a compaction. About so many segments, with their entries, fit into its 16 MiB."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """What commit `number`, a compaction, did: it removed `replaced`, and `compacted` are live in their place."""

    number: int
    replaced: tuple[RemovedSegment, ...]
    compacted: tuple[ArchivedSegment, ...]

    def until_ms(self, grace_period_ms: int) -> int | None:
        """When `gc` may begin to delete what was replaced, by the times of the commits. None: too many for one commit."""
        if len(self.replaced) + len(self.compacted) > UNDO_SEGMENTS_MAX:
            return None
        return _kept_until_ms(self.replaced, grace_period_ms)


class NoUndo(StrEnum):
    """Why the newest compaction cannot be undone. The values are stable."""

    NEVER_COMPACTED = "never_compacted"
    UNDONE = "undone"
    PURGED = "purged"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why no compaction can be undone.

    `undone_by_commit`: of `UNDONE`, the number of the undo. `older`: what an older compaction replaced, as far as it is not
    purged; empty where there is none.
    """

    reason: NoUndo
    undone_by_commit: int | None = None
    older: tuple[RemovedSegment, ...] = ()

    def older_until_ms(self, grace_period_ms: int) -> int | None:
        """When `gc` may begin to delete what the older compaction replaced. None where there is none."""
        return _kept_until_ms(self.older, grace_period_ms) if self.older else None


def newest_replacement(state: PartitionState) -> Replacement | None:
    """The newest compaction, if it can be undone as far as the commits tell; None if it is purged, undone, or there is none."""
    number = max((found.removed_by_commit for found in state.removed), default=-1)
    replaced = tuple(sorted(_of(state, number), key=lambda found: found.base_offset))
    if not replaced or not all(is_compacted(found.reason) for found in replaced):
        return None
    compacted = tuple(
        live
        for live in state.segments
        if any(old.base_offset < live.end_offset and live.base_offset < old.end_offset for old in replaced)
    )
    if _covered(replaced) != _covered(compacted):
        return None  # Some of it is purged already.
    return Replacement(number, replaced, compacted)


def obstacle_to_undo(state: PartitionState) -> Obstacle | None:
    """Why no compaction can be undone, as far as the state shows; None where `newest_replacement` finds one."""
    if newest_replacement(state) is not None:
        return None
    undo = undone_by_commit(state)
    if undo >= 0 and undo == max(found.removed_by_commit for found in state.removed):
        compaction = max((old.removed_by_commit for old in state.removed if is_compacted(old.reason)), default=-1)
        return Obstacle(NoUndo.UNDONE, undo, tuple(_of(state, compaction)))
    # What `before_upload` compacted has generation 1, too, but only a compaction of the archive says what is clean.
    if state.removed or state.clean is not None or any(live.generation > 1 for live in state.segments):
        return Obstacle(NoUndo.PURGED)
    return Obstacle(NoUndo.NEVER_COMPACTED)


def obstacle_in_commit(found: Replacement, commit: Commit, state: PartitionState) -> Obstacle | None:
    """Why the compaction that this commit made cannot be undone, by what it did; None if it can.

    The state alone does not tell: where an older compaction's sources outlive those of the newest one (`keep_raw_ms`), or
    where each source had an output of its own, the ranges are the same.
    """
    added = {action.segment.segment_id for action in commit.actions if isinstance(action, Add)}
    removed = {action.segment_id for action in commit.actions if isinstance(action, Remove)}
    replaced = {old.segment_id for old in found.replaced}
    if replaced <= removed and not added <= {live.segment_id for live in state.segments}:
        return Obstacle(NoUndo.PURGED, older=found.replaced)
    if replaced < removed:
        return Obstacle(NoUndo.PURGED)
    if replaced != removed or added != {live.segment_id for live in found.compacted}:
        return Obstacle(NoUndo.CHANGED)
    return None


def undone_by_commit(state: PartitionState) -> int:
    """The number of the newest commit that undid a compaction, -1 if none is known."""
    return max((old.removed_by_commit for old in state.removed if old.reason == UNDONE), default=-1)


def _kept_until_ms(segments: tuple[RemovedSegment, ...], grace_period_ms: int) -> int:
    return min(found.removed_at_ms + found.keep_ms for found in segments) + grace_period_ms


def _of(state: PartitionState, number: int) -> list[RemovedSegment]:
    return [found for found in state.removed if found.removed_by_commit == number]


def _covered(segments: tuple[RemovedSegment, ...] | tuple[ArchivedSegment, ...]) -> tuple[tuple[int, int], ...]:
    return joined_spans((segment.base_offset, segment.end_offset) for segment in segments)
