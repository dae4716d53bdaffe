"""On a read-only root file system without a home there is nowhere to keep compiled kernels; they must work all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NO_ROOM = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
"""

PROGRAM = """
from producer_state.digest import merge
from producer_state.replay import replay
from producer_state.table import ProducerTable
from tests.producer_state.random_logs import digest_batches, random_log
log = random_log(7)
(start, middle), end = log.segments()[0], log.boundaries[-1]
whole = digest_batches(log.facts, start, end)
parts = merge(
    digest_batches(log.between(start, middle), start, middle), digest_batches(log.between(middle, end), middle, end)
)
replayed = replay(ProducerTable.blank(start), log.facts)[0].entries()
print(len(replayed) > 0, whole.rows.tobytes() == parts.rows.tobytes())
"""


def test_kernels_that_cannot_be_kept_are_compiled_anew(tmp_path: Path) -> None:
    """Where there is a folder, but no room. Without any folder: tests/logformat/test_kernels.py."""
    own = {"NUMBA_CACHE_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {**os.environ, **own}
    command = [sys.executable, "-c", NO_ROOM + PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "True True"
