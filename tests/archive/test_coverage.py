"""Ranges that tile, or do not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.archive.coverage import CoverageDefect, Hole, find_defects, without


def test_gaps_overlaps_and_ends() -> None:
    assert find_defects([(10, 20), (0, 10)], 0, 20) == ()
    assert find_defects([], 5, 5) == ()
    assert find_defects([(0, 10), (15, 20)], 0, 20) == (CoverageDefect(10, 15, overlap=False),)
    assert find_defects([(0, 10), (5, 20)], 0, 20) == (CoverageDefect(5, 10, overlap=True),)
    assert find_defects([(0, 10)], 0, 20) == (CoverageDefect(10, 20, overlap=False),)
    assert find_defects([(0, 10)], 5, 10) == (CoverageDefect(0, 5, overlap=True),)
    assert find_defects([(0, 30)], 0, 20) == (CoverageDefect(20, 30, overlap=True),)
    assert str(CoverageDefect(10, 15, overlap=False)) == "[10, 15) covered by nothing"


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), max_size=6))
def test_defects_are_those_of_counting_offsets(pairs: list[tuple[int, int]]) -> None:
    spans = [(base, base + length) for base, length in pairs]
    defects = find_defects(spans, 0, 18)
    counts = [sum(base <= offset < end for base, end in spans) for offset in range(18)]
    bare = {
        offset for defect in defects if not defect.overlap for offset in range(defect.base_offset, defect.end_offset)
    }
    assert bare == {offset for offset, count in enumerate(counts) if count == 0}
    doubled = {
        offset for defect in defects if defect.overlap for offset in range(defect.base_offset, defect.end_offset)
    }
    assert doubled == {offset for offset, count in enumerate(counts) if count > 1}


def test_a_hole_can_be_filled_in_part() -> None:
    holes = (Hole(0, 10, "a"), Hole(20, 30, "b"))
    assert without(holes, 12, 18) == holes
    assert without(holes, 3, 5) == (Hole(0, 3, "a"), Hole(5, 10, "a"), Hole(20, 30, "b"))
    assert without(holes, 5, 25) == (Hole(0, 5, "a"), Hole(25, 30, "b"))
    assert without(holes, 0, 30) == ()
