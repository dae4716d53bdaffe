"""The bar of a partition: which offsets are what, and how wide each is drawn."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.archive.coverage import Hole
from sidecar.http.page.ranges import OffsetRange, RangeKind, bar_text, pieces_of, ranges_of
from sidecar.reporting.status_model import PartitionFigures
from tests.page.made_up import NOW_MS, a_look, figures, waiting
from tests.runner.archived import segment

RAW, COMPACTED, LOST = RangeKind.ARCHIVED_RAW, RangeKind.ARCHIVED_COMPACTED, RangeKind.LOST
GAP, AT_RISK, UPLOADING, LOCAL = RangeKind.GAP, RangeKind.AT_RISK, RangeKind.UPLOADING, RangeKind.LOCAL_ONLY


def spans(found: PartitionFigures, clean_end_offset: int | None = None) -> list[tuple[RangeKind, int, int]]:
    return [(one.kind, one.base_offset, one.end_offset) for one in ranges_of(found, clean_end_offset)]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (figures(a_look()), [(RAW, 0, 80), (LOCAL, 80, 100)]),
        (figures(a_look(local_end_offset=80)), [(RAW, 0, 80)]),
        (figures(a_look(archived_end_offset=None), segments=()), [(LOCAL, 40, 100)]),
        (figures(a_look(local_start_offset=None, local_end_offset=None, archived_end_offset=None), segments=()), []),
        (
            figures(a_look(), [segment(0, 50, generation=1), segment(50, 80)]),
            [(COMPACTED, 0, 50), (RAW, 50, 80), (LOCAL, 80, 100)],
        ),
        (
            figures(a_look(), [segment(0, 50), segment(60, 80)], [Hole(50, 60, "gone")]),
            [(RAW, 0, 50), (LOST, 50, 60), (RAW, 60, 80), (LOCAL, 80, 100)],
        ),
        (figures(waiting(), uploads=[(80, 85), (85, 95)]), [(RAW, 0, 80), (UPLOADING, 80, 95), (LOCAL, 95, 100)]),
        (figures(waiting(at_risk_end_offset=90)), [(RAW, 0, 80), (AT_RISK, 80, 90), (LOCAL, 90, 100)]),
        (figures(a_look(at_risk_end_offset=100, active_deadline_ms=NOW_MS)), [(RAW, 0, 80), (AT_RISK, 80, 100)]),
        (
            figures(waiting(at_risk_end_offset=90), uploads=[(80, 85)]),
            [(RAW, 0, 80), (UPLOADING, 80, 85), (AT_RISK, 85, 90), (LOCAL, 90, 100)],
        ),
        (figures(waiting(hole=(80, 90))), [(RAW, 0, 80), (GAP, 80, 90), (LOCAL, 90, 100)]),
        (
            figures(waiting(hole=(80, 85), at_risk_end_offset=90)),
            [(RAW, 0, 80), (GAP, 80, 85), (AT_RISK, 85, 90), (LOCAL, 90, 100)],
        ),
    ],
)
def test_each_offset_is_of_one_kind(found: PartitionFigures, expected: list[tuple[RangeKind, int, int]]) -> None:
    assert spans(found) == expected


def test_what_was_compacted_since_the_archive_was_read_shows_as_compacted() -> None:
    assert spans(figures(a_look()), clean_end_offset=30)[:2] == [(COMPACTED, 0, 30), (RAW, 30, 80)]
    assert spans(figures(a_look()), clean_end_offset=500)[:1] == [(COMPACTED, 0, 80)]
    assert spans(figures(a_look()), clean_end_offset=0)[:1] == [(RAW, 0, 80)]


OFFSETS = st.integers(0, 10**12)


@given(
    archived=st.none() | st.integers(1, 10**12),
    start=OFFSETS,
    length=OFFSETS,
    hole=st.none() | st.integers(1, 10**6),
    at_risk=st.none() | OFFSETS,
    uploads=st.lists(st.tuples(OFFSETS, OFFSETS), max_size=4),
    clean=st.none() | OFFSETS,
)
def test_whatever_is_reported_a_bar_rises_without_overlap_and_fills_its_width(
    archived: int | None,
    start: int,
    length: int,
    hole: int | None,
    at_risk: int | None,
    uploads: list[tuple[int, int]],
    clean: int | None,
) -> None:
    gap = None if hole is None or archived is None else (archived, archived + hole)
    look = waiting(
        local_start_offset=start,
        local_end_offset=start + length,
        archived_end_offset=archived,
        at_risk_end_offset=at_risk,
        hole=gap,
    )
    found = ranges_of(figures(look, [segment(0, archived)] if archived else [], uploads=uploads), clean)
    assert all(one.base_offset < one.end_offset for one in found)
    assert all(first.end_offset <= second.base_offset for first, second in pairwise(found))
    pieces = pieces_of(found)
    assert len(pieces) == len(found)
    if pieces:
        assert sum(piece.width_percent for piece in pieces) == pytest.approx(100, abs=0.1)
        assert min(piece.width_percent for piece in pieces) > 0.5
        assert pieces[0].left_percent == 0


def test_a_range_too_thin_to_be_seen_is_drawn_all_the_same() -> None:
    pieces = pieces_of(
        [OffsetRange(RAW, 0, 10**9), OffsetRange(GAP, 10**9, 10**9 + 1), OffsetRange(LOCAL, 10**9 + 1, 2 * 10**9)]
    )
    assert pieces[1].width_percent == 1.5


def test_a_bar_can_be_read_aloud() -> None:
    text = bar_text(ranges_of(figures(waiting(at_risk_end_offset=90, deadline_ms=NOW_MS))))
    assert text == "archived raw: offsets 0 to 79; at risk: offsets 80 to 89; local only: offsets 90 to 99"
    assert bar_text(()) == "no offsets yet"
