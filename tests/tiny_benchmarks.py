"""Benchmarks as the tests run them, so that they cannot rot: small, and in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_TIMEOUT_S = 550


def result_of(benchmark: str, tmp_path: Path, *options: str) -> Any:
    """What `benchmarks.<benchmark>` wrote with --json."""
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", "--tiny", *options, "--json", str(result)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    return json.loads(result.read_text())
