"""The borders that are kept between commits are those that a reader of the whole archive would find."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.archive.coverage import Hole
from sidecar.archive.state import PartitionState, empty_state, newest_part
from sidecar.retention.log_starts import borders_of
from tests.archive.builders import LINEAGE, a_segment

SEGMENTS = tuple(a_segment(100 * number) for number in range(40))


def state_of(count: int, **changes: object) -> PartitionState:
    state = replace(empty_state(LINEAGE), segments=SEGMENTS[:count], end_offset=SEGMENTS[count - 1].end_offset)
    return replace(state, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("kept", [1, 4])
@pytest.mark.parametrize("start_offset", [0, 950, 2_105])
def test_what_is_added_to_kept_borders_makes_them_the_whole_archive_s(kept: int, start_offset: int) -> None:
    borders = borders_of(state_of(10)).above(start_offset)
    for count in range(11, 41):
        # Before that commit, and after an end of a turn at which all but the newest were forgotten.
        part = newest_part(state_of(count), 100 * (count - kept))
        assert not part.is_whole
        later = borders.up_to(part)
        assert later is not None
        assert later == borders_of(state_of(count)).above(start_offset)
        borders = later
    assert len(borders.offsets) <= 41 - start_offset // 100
    assert borders.may_have(3_100)
    assert not borders.may_have(3_101)


def test_borders_are_forgotten_where_there_may_be_others_between() -> None:
    borders = borders_of(state_of(10))
    assert borders.up_to(newest_part(state_of(12), 1_100)) is None  # segment 10 is not in it
    assert borders.up_to(state_of(12)) == borders_of(state_of(12))
    assert borders.up_to(state_of(9)) is None
    other = replace(LINEAGE, incarnation="AAAAAAAAAAAAAAAAAAAAAA")
    assert borders.up_to(replace(state_of(12), lineage=other)) is None


def test_what_compaction_merged_keeps_the_borders_that_were_seen_and_may_have_any_elsewhere() -> None:
    low = replace(SEGMENTS[5], end_offset=SEGMENTS[9].end_offset, generation=1)
    high = replace(SEGMENTS[10], end_offset=SEGMENTS[12].end_offset, generation=1)
    merged = state_of(13, segments=(*SEGMENTS[:5], low, high))
    borders = borders_of(state_of(10)).up_to(merged)
    assert borders is not None
    assert [offset for offset in (700, 705, 1_105, 1_200, 1_300) if borders.may_have(offset)] == [
        700,
        1_105,
        1_200,
        1_300,
    ]
    assert borders_of(merged).may_have(705)
    assert borders.above(1_300).merged == ()


def test_holes_have_borders_too() -> None:
    state = state_of(10, holes=(Hole(1_000, 1_040, "lost"),), end_offset=1_040)
    borders = borders_of(state_of(10)).up_to(state)
    assert borders is not None
    assert borders.may_have(1_040)
    assert not borders.may_have(1_020)
