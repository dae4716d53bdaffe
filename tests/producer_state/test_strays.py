"""Snapshot files by their numbers."""

from __future__ import annotations

import pytest

from producer_state.strays import out_of_range_offsets, stray_offsets


def test_74_truncate_and_reload_removes_out_of_range_snapshots() -> None:
    assert out_of_range_offsets(range(1, 6), 1, 3) == {1, 4, 5}


@pytest.mark.parametrize(
    ("offsets", "bases", "strays"),
    [
        ({2, 5, 42}, {5}, {2}),
        ({2, 5, 42}, {42}, {2, 5}),
        ({2, 5, 42}, {50}, {2, 5, 42}),
        ({2, 5, 42}, set(), {2, 5}),
        ({5}, {5}, set()),
        (set(), {5}, set()),
    ],
)
def test_77_remove_stray_snapshots(offsets: set[int], bases: set[int], strays: set[int]) -> None:
    assert stray_offsets(offsets, bases) == strays
