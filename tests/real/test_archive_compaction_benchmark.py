"""The benchmark of archive compactions runs, so that it cannot rot. What it measures here means nothing, but for the memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.archive_compaction import FLOOR, OURS, PROMISED_PEAK_MB
from tests.tiny_benchmarks import result_of


@pytest.mark.real
@pytest.mark.apart
def test_the_archive_compaction_benchmark_runs(tmp_path: Path) -> None:
    summary = result_of("archive_compaction", tmp_path)
    assert [row["name"] for row in summary["rows"]] == [OURS, FLOOR]
    assert all(row["whole_mb_per_s"] > 0 for row in summary["rows"])
    assert 50 < summary["peak_mb"] <= PROMISED_PEAK_MB
