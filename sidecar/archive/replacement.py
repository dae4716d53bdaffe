"""The newest compaction of a partition, as far as its commits tell whether it can be undone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sidecar.archive.state import PartitionState, RemovedSegment
from sidecar.model import ArchivedSegment

COMPACTED_BY: Final = "compacted by "
"""How the reason of each removal by a compaction begins."""
UNDONE: Final = "compaction undone"
"""The reason of a removal by an undo."""
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
        return min(found.removed_at_ms + found.keep_ms for found in self.replaced) + grace_period_ms


def newest_replacement(state: PartitionState) -> Replacement | None:
    """The newest compaction, if it can be undone as far as the commits tell; None if it is purged, undone, or there is none."""
    number = max((found.removed_by_commit for found in state.removed), default=-1)
    replaced = tuple(sorted(_of(state, number), key=lambda found: found.base_offset))
    if not replaced or not all(found.reason.startswith(COMPACTED_BY) for found in replaced):
        return None
    compacted = tuple(
        live
        for live in state.segments
        if any(old.base_offset < live.end_offset and live.base_offset < old.end_offset for old in replaced)
    )
    if _joined(replaced) != _joined(compacted):
        return None  # Some of it is purged already.
    return Replacement(number, replaced, compacted)


def undone_by_commit(state: PartitionState) -> int:
    """The number of the newest commit that undid a compaction, -1 if none is known."""
    return max((found.removed_by_commit for found in state.removed if found.reason == UNDONE), default=-1)


def _of(state: PartitionState, number: int) -> list[RemovedSegment]:
    return [found for found in state.removed if found.removed_by_commit == number]


def _joined(segments: tuple[RemovedSegment, ...] | tuple[ArchivedSegment, ...]) -> list[tuple[int, int]]:
    """The ranges that ascending segments cover, neighbours joined."""
    ranges: list[tuple[int, int]] = []
    for segment in segments:
        if ranges and ranges[-1][1] == segment.base_offset:
            ranges[-1] = ranges[-1][0], segment.end_offset
        else:
            ranges.append((segment.base_offset, segment.end_offset))
    return ranges
