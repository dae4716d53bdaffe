"""The benchmark runs, so that it cannot rot. What it measures here means nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.real
def test_the_upload_benchmark_runs(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "benchmarks.backfill_throughput", "--tiny", "--json", str(result)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "ratio" in done.stdout
    summary = json.loads(result.read_text())
    assert summary["ratio"] > 0
    assert {row["code"] for row in summary["rows"]} == {"sidecar", "boto3"}
    assert 0 < summary["peak_mb"] < 300
