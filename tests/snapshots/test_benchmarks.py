"""The benchmarks of this package run, small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("benchmarks.heal", {"partitions": 5, "created": [50, 0]}),
        ("benchmarks.snapshot_replay", None),
    ],
)
def test_it_runs(module: str, expected: dict[str, object] | None, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", module, "--tiny", "--json", str(result)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(result.read_text())
    if expected is None:
        assert [case["batches"] > 0 and case["one_core_s"] > 0 for case in found] == [True, True]
    else:
        assert {name: found[name] for name in expected} == expected
