"""The benchmarks of this package run, small."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_benchmarks import result_of


@pytest.mark.apart
def test_heal_is_measured(tmp_path: Path) -> None:
    found = result_of("heal", tmp_path)
    assert [(run["partitions"], run["created"]) for run in found] == [(5, 50), (5, 0), (1, 1), *[(1, 2)] * 3]
    full, after_snapshot, after_empty = (run["read_mb"] for run in found[-3:])
    assert after_snapshot * 4 < full
    # Empty ones do not tell which transactions are open.
    assert after_empty == full
    assert all(20 < run["peak_mb"] < 2_000 for run in found)


@pytest.mark.apart
def test_replay_is_measured(tmp_path: Path) -> None:
    found = result_of("snapshot_replay", tmp_path)
    assert [case["batches"] > 0 and case["one_core_s"] > 0 for case in found] == [True, True]
