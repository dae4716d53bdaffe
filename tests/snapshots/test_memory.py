"""Peak memory of a replay does not grow with the log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.segments import write_log_dir

MIB = 1024 * 1024
_PROGRAM = """
import resource, sys
from pathlib import Path
from sidecar.discovery.topic_filter import TopicFilter
from sidecar.pipeline.snapshots.jobs import Forgetting
from sidecar.pipeline.snapshots.local_engine import LocalEngine
from sidecar.pipeline.snapshots.rebuild import rebuild
from sidecar.pipeline.snapshots.targets import find_targets

report = rebuild(find_targets([Path(sys.argv[1])], TopicFilter()), Path(sys.argv[2]), LocalEngine(1), Forgetting(0, None))
assert report.exit_code == 0
print(len(report.partitions[0].snapshots), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_bytes(log_dir: Path, out: Path) -> tuple[int, int]:
    """Snapshots written, and the peak memory of the process that wrote them."""
    command = [sys.executable, "-c", _PROGRAM, str(log_dir), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    snapshots, peak_kib = map(int, done.stdout.split())
    return snapshots, peak_kib * 1024


@pytest.mark.slow
def test_peak_memory_grows_neither_with_segments_nor_with_their_size(tmp_path: Path) -> None:
    small = write_log_dir(tmp_path / "small", 2, 8 * MIB)
    many = write_log_dir(tmp_path / "many", 24, 8 * MIB)
    large = write_log_dir(tmp_path / "large", 2, 160 * MIB)
    (_, base), (written, with_many), (_, with_large) = (
        peak_bytes(log_dir, tmp_path / "out" / log_dir.name) for log_dir in (small, many, large)
    )
    assert written == 24
    assert with_many - base < 8 * MIB
    assert with_large - base < 8 * MIB
