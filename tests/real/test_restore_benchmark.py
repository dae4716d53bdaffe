"""The benchmark of restores runs, so that it cannot rot. What it measures here means nothing, but for the memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.restore import FROM_DIRECTORY, FROM_S3, PROMISED_PEAK_MB


@pytest.mark.real
def test_the_restore_benchmark_runs(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "benchmarks.restore", "--tiny", "--json", str(result)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "ratio" in done.stdout
    summary = json.loads(result.read_text())
    assert [row["name"] for row in summary["rows"]][:2] == [FROM_S3, FROM_DIRECTORY]
    assert all(row["mb_per_s"] > 0 for row in summary["rows"])
    assert 50 < summary["peak_mb"] <= PROMISED_PEAK_MB
