"""A bar of offsets: each range gets its share of the width, and none becomes too thin to be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sidecar.http.page.ranges import OffsetRange, RangeKind
from sidecar.http.page.wording import count_text

LEAST_PERCENT = 1.5
LEAST_PERCENT_OF_ALL = 50.0
LABELS = {
    RangeKind.ARCHIVED_RAW: "archived raw",
    RangeKind.ARCHIVED_COMPACTED: "archived compacted",
    RangeKind.LOCAL_ONLY: "local only",
    RangeKind.UPLOADING: "uploading",
    RangeKind.AT_RISK: "at risk",
    RangeKind.HOLE: "hole",
    RangeKind.LOST: "recorded as lost",
}
"""Words for the legend, in its order."""
EXPLANATIONS = {
    RangeKind.ARCHIVED_RAW: "as the broker wrote it",
    RangeKind.ARCHIVED_COMPACTED: "rewritten by our compaction",
    RangeKind.LOCAL_ONLY: "on the broker's disk, the active segment included",
    RangeKind.UPLOADING: "on its way to the store",
    RangeKind.AT_RISK: "not archived, and the broker's retention deletes it within an hour",
    RangeKind.HOLE: "not archived, and no longer on the broker's disk",
    RangeKind.LOST: "a hole that the archive says it has",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A rectangle of the bar, in percent of its width, and what it says."""

    kind: RangeKind
    left_percent: float
    width_percent: float
    text: str


def pieces_of(ranges: Sequence[OffsetRange]) -> tuple[Piece, ...]:
    """The rectangles from left to right; their widths add up to 100, unless there are none."""
    if not ranges:
        return ()
    least = min(LEAST_PERCENT, LEAST_PERCENT_OF_ALL / len(ranges))
    whole = sum(found.end_offset - found.base_offset for found in ranges)
    shares = [(found.end_offset - found.base_offset) / whole * 100 for found in ranges]
    thin = sum(share < least for share in shares) * least
    thick = sum(share for share in shares if share >= least)
    widths = [least if share < least else share * (100 - thin) / thick for share in shares]
    pieces, left = [], 0.0
    for found, width in zip(ranges, widths, strict=True):
        pieces.append(Piece(found.kind, round(left, 2), round(width, 2), range_text(found)))
        left += width
    return tuple(pieces)


def range_text(found: OffsetRange) -> str:
    """`archived raw: offsets 0 to 41,999`."""
    return f"{LABELS[found.kind]}: offsets {count_text(found.base_offset)} to {count_text(found.end_offset - 1)}"


def bar_text(ranges: Sequence[OffsetRange]) -> str:
    """The whole bar in words."""
    return "; ".join(map(range_text, ranges)) if ranges else "no offsets yet"
