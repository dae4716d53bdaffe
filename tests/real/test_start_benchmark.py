"""The benchmark of starts runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.start import BACKFILL, HELP, NOTHING, STATUS
from tests.tiny_benchmarks import result_of


@pytest.mark.real
@pytest.mark.apart
def test_the_start_benchmark_runs(tmp_path: Path) -> None:
    rows = result_of("start", tmp_path)["rows"]
    assert [row["name"] for row in rows] == [NOTHING, HELP, STATUS, BACKFILL]
    assert all(row["seconds"] > 0 and row["ratio"] >= 1 for row in rows)
