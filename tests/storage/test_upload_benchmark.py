"""The benchmark runs, so that it cannot rot. What it measures here means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_benchmarks import result_of


@pytest.mark.real
@pytest.mark.apart
def test_the_upload_benchmark_runs(tmp_path: Path) -> None:
    summary = result_of("backfill_throughput", tmp_path)
    assert summary["ratio"] > 0
    assert {row["code"] for row in summary["rows"]} == {"sidecar", "boto3"}
    assert 0 < summary["peak_mb"] < 300
