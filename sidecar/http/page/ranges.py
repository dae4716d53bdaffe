"""The offset range of one partition, cut into what is archived, on its way and in danger; and the bar that shows it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from sidecar.archive.coverage import ArchiveExtent, Coverage
from sidecar.http.page.wording import count_text
from sidecar.partition.status import PartitionStatus
from sidecar.reporting.status_model import PartitionFigures

LEAST_PERCENT = 1.5
LEAST_PERCENT_OF_ALL = 50.0


class RangeKind(StrEnum):
    """What is true of a range of offsets. `GAP`: on no disk of ours and not archived; `LOST`: recorded as such."""

    ARCHIVED_RAW = "archived_raw"
    ARCHIVED_COMPACTED = "archived_compacted"
    LOST = "lost"
    GAP = "gap"
    AT_RISK = "at_risk"
    UPLOADING = "uploading"
    LOCAL_ONLY = "local_only"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `[base_offset, end_offset)` of one kind."""

    kind: RangeKind
    base_offset: int
    end_offset: int


_KINDS = {
    Coverage.RAW: RangeKind.ARCHIVED_RAW,
    Coverage.COMPACTED: RangeKind.ARCHIVED_COMPACTED,
    Coverage.LOST: RangeKind.LOST,
}


def ranges_of(figures: PartitionFigures, clean_end_offset: int | None = None) -> tuple[OffsetRange, ...]:
    """Ascending and without overlap, from the archive's start to the end of the local log; adjacent ones differ in kind.

    `clean_end_offset`: below it the archive was compacted meanwhile, None if nothing of that is known.
    """
    status, extent = figures.status, figures.extent
    found = list(_archived(extent, clean_end_offset))
    above = extent.end_offset if extent.end_offset is not None else status.archived_end_offset
    start_offset = status.local_start_offset if above is None else above
    if status.hole is not None:
        if start_offset is not None:
            found += _local(figures, start_offset, status.hole[0])
        found.append(OffsetRange(RangeKind.GAP, *status.hole))
        start_offset = status.hole[1]
    if start_offset is not None and status.local_end_offset is not None:
        found += _local(figures, start_offset, status.local_end_offset)
    return tuple(_joined(found))


def _archived(extent: ArchiveExtent, clean_end_offset: int | None) -> Iterator[OffsetRange]:
    for run in extent.runs:
        kind, base_offset = _KINDS[run.coverage], run.base_offset
        if kind is RangeKind.ARCHIVED_RAW and clean_end_offset is not None and clean_end_offset > base_offset:
            base_offset = min(run.end_offset, clean_end_offset)
            yield OffsetRange(RangeKind.ARCHIVED_COMPACTED, run.base_offset, base_offset)
        yield OffsetRange(kind, base_offset, run.end_offset)


def _local(figures: PartitionFigures, start_offset: int, end_offset: int) -> Iterator[OffsetRange]:
    """Cut at the ends of uploads and of what is at risk; each piece is of the kind that its first offset has."""
    cuts = {start_offset, end_offset}
    for upload in figures.uploads:
        cuts |= {upload.base_offset, upload.end_offset}
    if figures.status.at_risk_end_offset is not None:
        cuts.add(figures.status.at_risk_end_offset)
    inside = sorted(cut for cut in cuts if start_offset <= cut <= end_offset)
    for base_offset, next_offset in pairwise(inside):
        yield OffsetRange(_local_kind(figures, base_offset), base_offset, next_offset)


def _local_kind(figures: PartitionFigures, offset: int) -> RangeKind:
    if any(upload.base_offset <= offset < upload.end_offset for upload in figures.uploads):
        return RangeKind.UPLOADING
    return RangeKind.AT_RISK if is_at_risk(figures.status, offset) else RangeKind.LOCAL_ONLY


def is_at_risk(status: PartitionStatus, offset: int | None) -> bool:
    """Whether the broker will soon delete this offset (None: the first that is not archived)."""
    if status.at_risk_end_offset is None or (not status.pending_segments and status.active_deadline_ms is None):
        return False
    return offset is None or offset < status.at_risk_end_offset


def _joined(ranges: list[OffsetRange]) -> list[OffsetRange]:
    joined: list[OffsetRange] = []
    for found in ranges:
        if found.end_offset <= found.base_offset:
            continue
        if joined and joined[-1].kind is found.kind and joined[-1].end_offset == found.base_offset:
            joined[-1] = OffsetRange(found.kind, joined[-1].base_offset, found.end_offset)
        else:
            joined.append(found)
    return joined


LEGEND = {
    RangeKind.ARCHIVED_RAW: ("archived raw", "as the broker wrote it"),
    RangeKind.ARCHIVED_COMPACTED: ("archived compacted", "rewritten by compaction"),
    RangeKind.LOCAL_ONLY: ("local only", "on the broker's disk, including the active segment"),
    RangeKind.UPLOADING: ("uploading", "being uploaded"),
    RangeKind.AT_RISK: ("at risk", "not archived; the broker's retention deletes it within an hour"),
    RangeKind.GAP: ("gap", "not archived, and deleted from the broker's disk"),
    RangeKind.LOST: ("recorded as lost", "a gap that the archive has recorded"),
}
"""Label and explanation of each kind, in the legend's order."""


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
    return f"{LEGEND[found.kind][0]}: offsets {count_text(found.base_offset)} to {count_text(found.end_offset - 1)}"


def bar_text(ranges: Sequence[OffsetRange]) -> str:
    return "; ".join(map(range_text, ranges)) if ranges else "no offsets yet"
