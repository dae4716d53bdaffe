"""The benchmark of restores runs, so that it cannot rot. What it measures here means nothing, but for the memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.restore import FROM_DIRECTORY, FROM_S3, PROMISED_PEAK_MB
from tests.tiny_benchmarks import result_of


@pytest.mark.real
@pytest.mark.apart
def test_the_restore_benchmark_runs(tmp_path: Path) -> None:
    summary = result_of("restore", tmp_path)
    assert [row["name"] for row in summary["rows"]][:2] == [FROM_S3, FROM_DIRECTORY]
    assert all(row["mb_per_s"] > 0 for row in summary["rows"])
    assert 50 < summary["peak_mb"] <= PROMISED_PEAK_MB
