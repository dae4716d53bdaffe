"""Offset ranges of an archive: whether they tile what they claim to, and what it covers in a few runs, enough to draw it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, pairwise

from sidecar.model import ArchivedSegment, SnapshotOrigin


@dataclass(frozen=True, slots=True, order=True)
class Hole:
    """Offsets `[base_offset, end_offset)` that are recorded as lost. Stored: its fields are those of its JSON."""

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
    """The gaps, less the offsets `[base_offset, end_offset)`."""
    rest = []
    for hole in holes:
        if hole.base_offset < base_offset:
            rest.append(Hole(hole.base_offset, min(hole.end_offset, base_offset), hole.reason))
        if hole.end_offset > end_offset:
            rest.append(Hole(max(hole.base_offset, end_offset), hole.end_offset, hole.reason))
    return tuple(rest)


def joined_spans(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The ranges `[base, end)` that these cover, in any order, ascending."""
    joined: list[tuple[int, int]] = []
    for base, end in sorted(spans):
        if joined and base <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((base, end))
    return tuple(joined)


RUNS_MAX = 64


class Coverage(StrEnum):
    """How offsets are covered: by what the broker wrote, by what a compaction wrote, or recorded as lost."""

    RAW = "raw"
    COMPACTED = "compacted"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Run:
    """Adjacent offsets `[base_offset, end_offset)` that are covered in the same way."""

    base_offset: int
    end_offset: int
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class ArchiveExtent:
    """Live segments of one lineage, summed up.

    `runs`: ascending, without gaps, at most `RUNS_MAX`. `snapshots_rebuilt`: segments whose producer snapshot is ours.
    """

    segments: int = 0
    size_bytes: int = 0
    snapshots_rebuilt: int = 0
    runs: tuple[Run, ...] = ()

    @property
    def start_offset(self) -> int | None:
        return self.runs[0].base_offset if self.runs else None

    @property
    def end_offset(self) -> int | None:
        """Exclusive end of what is covered, None where there is nothing."""
        return self.runs[-1].end_offset if self.runs else None

    def grown(self, segments: Iterable[ArchivedSegment], holes: Iterable[Hole]) -> ArchiveExtent:
        """With what lies above the end among these; what lies below is known already."""
        end_offset = -1 if self.end_offset is None else self.end_offset
        added = [segment for segment in segments if segment.end_offset > end_offset]
        return ArchiveExtent(
            segments=self.segments + len(added),
            size_bytes=self.size_bytes + sum(segment.size_bytes for segment in added),
            snapshots_rebuilt=self.snapshots_rebuilt
            + sum(segment.snapshot.origin is SnapshotOrigin.REBUILT for segment in added),
            runs=_bounded(_joined([*self.runs, *_runs(added, (h for h in holes if h.end_offset > end_offset))])),
        )


def _runs(segments: Iterable[ArchivedSegment], holes: Iterable[Hole]) -> list[Run]:
    covered = [
        Run(found.base_offset, found.end_offset, Coverage.COMPACTED if found.generation else Coverage.RAW)
        for found in segments
    ]
    lost = [Run(hole.base_offset, hole.end_offset, Coverage.LOST) for hole in holes]
    return sorted([*covered, *lost], key=lambda run: run.base_offset)


def _joined(runs: Iterable[Run]) -> list[Run]:
    alike = (list(some) for _, some in groupby(runs, key=lambda run: run.coverage))
    return [Run(some[0].base_offset, some[-1].end_offset, some[0].coverage) for some in alike]


def _bounded(runs: list[Run]) -> tuple[Run, ...]:
    """Blur what is too fine to be drawn: raw and compacted runs become one of the longer kind. Losses stay while they can."""
    while len(runs) > RUNS_MAX:
        pairs = list(pairwise(runs))
        at = min(range(len(pairs)), key=lambda number: _sharpness(*pairs[number]))
        first, second = pairs[at]
        longer = max(first, second, key=lambda run: run.end_offset - run.base_offset)
        runs = _joined([*runs[:at], Run(first.base_offset, second.end_offset, longer.coverage), *runs[at + 2 :]])
    return tuple(runs)


def _sharpness(first: Run, second: Run) -> tuple[bool, int]:
    return Coverage.LOST in (first.coverage, second.coverage), second.end_offset - first.base_offset
