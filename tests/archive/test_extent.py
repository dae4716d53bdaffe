"""The archive in a few runs of offsets."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sidecar.archive.coverage import RUNS_MAX, ArchiveExtent, Coverage, Hole, Run
from sidecar.model import ArchivedSegment, SnapshotOrigin, SnapshotProvenance
from tests.runner.archived import segment

RAW, COMPACTED, LOST = Coverage.RAW, Coverage.COMPACTED, Coverage.LOST


def test_nothing_is_archived_before_the_first_segment() -> None:
    found = ArchiveExtent().grown((), ())
    assert (found.start_offset, found.end_offset, found.segments, found.runs) == (None, None, 0, ())


def test_adjacent_segments_of_one_kind_are_one_run_and_losses_stand_between() -> None:
    segments = (segment(0, 10, generation=1), segment(10, 20), segment(20, 25), segment(30, 40))
    found = ArchiveExtent().grown(segments, (Hole(25, 30, "gone"),))
    assert found.runs == (Run(0, 10, COMPACTED), Run(10, 25, RAW), Run(25, 30, LOST), Run(30, 40, RAW))
    assert (found.start_offset, found.end_offset, found.segments) == (0, 40, 4)
    assert found.size_bytes == sum(one.size_bytes for one in segments)


def test_growing_counts_what_is_new_and_only_that() -> None:
    rebuilt = SnapshotProvenance(SnapshotOrigin.REBUILT, exact=True)
    first, second = segment(0, 10), replace(segment(10, 20), snapshot=rebuilt)
    once = ArchiveExtent().grown([first], ())
    twice = once.grown([first, second], ())
    assert twice.runs == (Run(0, 20, RAW),)
    assert (twice.segments, twice.snapshots_rebuilt) == (2, 1)
    assert twice.grown([first, second], ()) == twice


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0, 1, None])), min_size=1, max_size=400))
def test_any_archive_is_drawn_in_bounded_size_without_gap_or_overlap(parts: list[tuple[int, int | None]]) -> None:
    segments: list[ArchivedSegment] = []
    holes: list[Hole] = []
    offset = 0
    for length, generation in parts:
        if generation is None:
            holes.append(Hole(offset, offset + length, "gone"))
        else:
            segments.append(segment(offset, offset + length, generation=generation))
        offset += length
    found = ArchiveExtent().grown(segments, holes)
    assert len(found.runs) <= RUNS_MAX
    assert (found.start_offset, found.end_offset) == (0, offset)
    assert all(first.end_offset == second.base_offset for first, second in pairwise(found.runs))
    assert all(first.coverage is not second.coverage for first, second in pairwise(found.runs))
