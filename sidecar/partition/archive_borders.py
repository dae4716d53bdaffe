"""Where the logs that an archive was made of had the borders of their segments: small enough to be kept between commits."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.archive.keys import Lineage
from sidecar.archive.state import PartitionState


@dataclass(frozen=True, slots=True)
class Borders:
    """The borders of a lineage that ends at `end_offset`; those below `from_offset` were left out.

    `offsets`: where a segment or a hole begins or ends. `merged`: the ranges, the end exclusive, of segments that were made of
    several, inside which any offset may have been one.
    """

    lineage: Lineage
    from_offset: int
    end_offset: int
    offsets: frozenset[int]
    merged: tuple[tuple[int, int], ...]

    def may_have(self, offset: int) -> bool:
        """Whether a segment of the logs that were archived may have begun at an offset."""
        return offset in self.offsets or any(base < offset < end for base, end in self.merged)

    def up_to(self, state: PartitionState) -> Borders | None:
        """These and the ones of what a later state has above them; None where it does not reach down to their end.

        What compaction replaced below their end had the borders that are known here.
        """
        later = borders_of(state)
        reaches = state.is_whole or (bool(state.segments) and state.segments[0].base_offset <= self.end_offset)
        if state.lineage != self.lineage or later.end_offset < self.end_offset or not reaches:
            return None
        merged = [*self.merged, *(found for found in later.merged if found[1] > self.end_offset)]
        both = Borders(self.lineage, 0, later.end_offset, self.offsets | later.offsets, tuple(dict.fromkeys(merged)))
        return both.above(self.from_offset)

    def above(self, offset: int) -> Borders:
        """Those at this offset and above: no more than segments of a log that begins there have."""
        offsets = frozenset(found for found in self.offsets if found >= offset)
        merged = tuple(found for found in self.merged if found[1] > offset)
        return Borders(self.lineage, max(offset, self.from_offset), self.end_offset, offsets, merged)


def borders_of(state: PartitionState) -> Borders:
    """Of what a state has, be it the whole archive or its newest part."""
    end_offset = -1 if state.end_offset is None else state.end_offset
    offsets = {end_offset}
    for spans in (state.segments, state.removed, state.holes):
        offsets.update(border for span in spans for border in (span.base_offset, span.end_offset))
    merged = tuple(
        (found.base_offset, found.end_offset)
        for found in state.segments
        if found.generation and (found.compacted_from is None or found.compacted_from.base_offset != found.base_offset)
    )
    return Borders(state.lineage, 0, end_offset, frozenset(offsets), merged)
