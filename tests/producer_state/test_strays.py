"""Snapshot files by their numbers."""

from __future__ import annotations

import pytest

from producer_state.snapshot import stray_offsets


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
