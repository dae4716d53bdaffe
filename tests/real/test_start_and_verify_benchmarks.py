"""The benchmarks of starts and of `verify --deep` run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.start import BACKFILL, HELP, NOTHING, STATUS
from benchmarks.verify import OURS, PROMISED_PEAK_MB
from tests.tiny_benchmarks import result_of


@pytest.mark.real
@pytest.mark.apart
def test_the_start_benchmark_runs(tmp_path: Path) -> None:
    rows = result_of("start", tmp_path)["rows"]
    assert [row["name"] for row in rows] == [NOTHING, HELP, STATUS, BACKFILL]
    assert all(row["seconds"] > 0 and row["ratio"] >= 1 for row in rows)


@pytest.mark.real
@pytest.mark.apart
def test_the_benchmark_of_deep_verification_runs(tmp_path: Path) -> None:
    summary = result_of("verify", tmp_path)
    assert summary["rows"][0]["name"] == OURS
    assert all(row["mb_per_s"] > 0 for row in summary["rows"])
    assert 50 < summary["peak_mb"] <= PROMISED_PEAK_MB
