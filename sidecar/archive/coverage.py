"""Offset ranges: do they tile what they claim to, and what is left when one is taken out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Hole:
    """Offsets `[base_offset, end_offset)` that are recorded as lost."""

    base_offset: int
    end_offset: int
    reason: str

    def __str__(self) -> str:
        return f"[{self.base_offset}, {self.end_offset}): {self.reason}"


@dataclass(frozen=True, slots=True)
class CoverageDefect:
    """Offsets `[base_offset, end_offset)` that nothing covers (`overlap` false), or that two ranges cover."""

    base_offset: int
    end_offset: int
    overlap: bool

    def __str__(self) -> str:
        what = "covered twice" if self.overlap else "covered by nothing"
        return f"[{self.base_offset}, {self.end_offset}) {what}"


def find_defects(spans: Iterable[tuple[int, int]], start_offset: int, end_offset: int) -> tuple[CoverageDefect, ...]:
    """Where the spans `[base, end)`, in any order, fail to tile `[start_offset, end_offset)` exactly once."""
    defects = []
    reached = start_offset
    for base, end in sorted(spans):
        if base > reached:
            defects.append(CoverageDefect(reached, base, overlap=False))
        elif base < reached:
            defects.append(CoverageDefect(base, min(reached, end), overlap=True))
        reached = max(reached, end)
    if reached < end_offset:
        defects.append(CoverageDefect(reached, end_offset, overlap=False))
    elif reached > end_offset:
        defects.append(CoverageDefect(end_offset, reached, overlap=True))
    return tuple(defects)


def without(holes: Iterable[Hole], base_offset: int, end_offset: int) -> tuple[Hole, ...]:
    """The holes, less the offsets `[base_offset, end_offset)`."""
    rest = []
    for hole in holes:
        if hole.base_offset < base_offset:
            rest.append(Hole(hole.base_offset, min(hole.end_offset, base_offset), hole.reason))
        if hole.end_offset > end_offset:
            rest.append(Hole(max(hole.base_offset, end_offset), hole.end_offset, hole.reason))
    return tuple(rest)
