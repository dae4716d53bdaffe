"""The benchmark of the whole product runs, so that it cannot rot. What it measures here means nothing, but for the memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.backfill_product import OURS, PROMISED_PEAK_MB
from tests.tiny_benchmarks import result_of


@pytest.mark.real
@pytest.mark.apart
def test_the_product_benchmark_runs(tmp_path: Path) -> None:
    summary = result_of("backfill_product", tmp_path)
    assert [row["name"].split()[0] for row in summary["rows"]] == [OURS.split()[0], "boto3", "boto3"]
    assert all(row["mb_per_s"] > 0 and row["cpu_s"] > 0 for row in summary["rows"])
    assert 50 < summary["peak_mb"] <= PROMISED_PEAK_MB
