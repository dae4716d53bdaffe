"""How segments are put together into outputs. Source: Cleaner.groupSegmentsBySize."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sidecar.compaction.rules import CompactionRules
from sidecar.logformat.headers import LARGEST_POSITION


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """A rolled segment `[base_offset, end_offset)`. `index_bytes` is the size of the larger of its two indexes."""

    base_offset: int
    end_offset: int
    size_bytes: int
    index_bytes: int = 0


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
