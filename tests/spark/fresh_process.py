"""Programs in a process of their own: pyspark has one JVM per process, and the other tests have theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 300


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What Python printed, given these arguments and this checkout. It must not fail."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done
