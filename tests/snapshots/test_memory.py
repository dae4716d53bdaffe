"""Peak memory of a replay does not grow with the log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.segments import write_log_dir
from producer_state.snapshot import ProducerEntry
from tests.snapshot_files import write_snapshot
from tests.snapshots.log_dirs import DAY_MS, NOW_MS, log_dir_of

MIB = 1024 * 1024
_PROGRAM = """
import resource, sys
from pathlib import Path
from sidecar.config.topic_filter import TopicFilter
from sidecar.snapshots.jobs import Forgetting
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.snapshots.rebuild import rebuild
from sidecar.snapshots.resolve_paths import find_targets

forgetting = Forgetting(int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else None)
report = rebuild(find_targets([Path(sys.argv[1])], TopicFilter()), Path(sys.argv[2]), LocalEngine(1), forgetting)
assert report.exit_code == 0
print(len(report.partitions[0].snapshots), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_bytes(log_dir: Path, out: Path, *forgetting: int) -> tuple[int, int]:
    """Snapshots written, and the peak memory of the process that wrote them. `forgetting`: now and the expiration."""
    command = [sys.executable, "-c", _PROGRAM, str(log_dir), str(out), *map(str, forgetting or (0,))]
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


def test_by_the_window_it_does_not_grow_with_the_snapshots_that_are_there(tmp_path: Path) -> None:
    """Each names 2000 producers: 92 kB."""
    content = write_snapshot(ProducerEntry(producer_id, 0, 1, 1, 1, NOW_MS) for producer_id in range(2000))
    peaks = []
    for segments in (20, 400):
        log_dir = log_dir_of(tmp_path / str(segments), segments=segments)
        for offset in range(2, 2 * segments, 2):
            (log_dir / "t-0" / f"{offset:020d}.snapshot").write_bytes(content)
        written, peak = peak_bytes(log_dir, tmp_path / "out" / str(segments), NOW_MS, DAY_MS)
        assert written == segments - 1
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 8 * MIB
