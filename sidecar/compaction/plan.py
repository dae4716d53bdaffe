"""How segments are put together into outputs, by sizes that are known. Source: Cleaner.groupSegmentsBySize."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sidecar.compaction.rules import CompactionRules
from sidecar.logformat.headers import LARGEST_POSITION


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """What a segment `[base_offset, end_offset)` adds to an output.

    `ending_bytes`: so many more if it is the last of the output. `index_bytes`: at most so many in the larger index.
    `is_empty`: it had no batch before compaction either, so it neither ends an output nor takes a place in an index.
    `is_settled`: it stays as it is, alone.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    ending_bytes: int = 0
    index_bytes: int = 0
    is_empty: bool = False
    is_settled: bool = False


def grouped(segments: Sequence[SegmentSize], rules: CompactionRules) -> tuple[int, ...]:
    """How many of the segments, in order, go into each output.

    Two or more go into one only up to `segment_bytes`, `segment_index_bytes` and 2^31 offsets. Offsets between two segments
    may be recorded as lost: an output over them would claim to hold them, so they always separate outputs.
    """
    groups: list[int] = []
    begin = 0
    while begin < len(segments):
        first, end = segments[begin], begin + 1
        size_bytes, index_bytes, ending_bytes = first.size_bytes, first.index_bytes, first.ending_bytes
        while end < len(segments) and _may_join(segments[end - 1], segments[end]):
            following = segments[end]
            size_bytes += following.size_bytes
            index_bytes += following.index_bytes
            ending_bytes = ending_bytes if following.is_empty else following.ending_bytes
            spans = following.end_offset - 1 - first.base_offset
            too_wide = not following.is_empty and spans > LARGEST_POSITION
            too_large = size_bytes + ending_bytes > rules.segment_bytes or index_bytes > rules.segment_index_bytes
            if too_large or too_wide:
                break
            end += 1
        groups.append(end - begin)
        begin = end
    return tuple(groups)


def _may_join(before: SegmentSize, following: SegmentSize) -> bool:
    return not (before.is_settled or following.is_settled) and following.base_offset == before.end_offset
