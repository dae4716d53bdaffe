"""When a directory is looked at again, and when a producer snapshot that is missing is believed to be missing."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.partition.plan import Settling
from sidecar.partition.wait_reason import SnapshotGrace
from sidecar.runner import assembly
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.checks import CycleReport
from tests.daemon.looping import eventually, looping, settings_for
from tests.fakes.memory_store import MemoryStore
from tests.golden import wall_clock_ms
from tests.runner.rig import archive, archived_states, copy_partitions, ranges, rolled_ranges, rounds_over, tools_for

PARTITION = "orders-0"
NOW_MS = wall_clock_ms("4.3.0")
GRACE = Settling(settle_ms=0, snapshot_grace_ms=5_000)


def set_age(log_dir: Path, age_ms: int, *names: str) -> None:
    for name in names:
        os.utime(log_dir / PARTITION / name, ns=(0, (NOW_MS - age_ms) * 1_000_000))


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """An idle topic, whose last rolled segment was written an hour ago; its newest snapshot has not come yet."""
    log_dir = copy_partitions(tmp_path, PARTITION)
    _, end = rolled_ranges(log_dir, PARTITION)[-1]
    (log_dir / PARTITION / f"{end:020d}.snapshot").unlink()
    set_age(log_dir, 3_600_000, *(file.name for file in (log_dir / PARTITION).iterdir()))
    set_age(log_dir, 100, f"{end:020d}.log")
    return log_dir


def test_the_snapshot_of_an_idle_topics_late_roll_is_waited_for(log_dir: Path, tmp_path: Path) -> None:
    spans, store = rolled_ranges(log_dir, PARTITION), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state", settling=GRACE) as context:
        rounds = rounds_over(context, log_dir)
        report = rounds.run_once()
        assert ranges(archived_states(store)[PARTITION]) == spans[:-1]
        assert isinstance(report.outcomes[0].reason, SnapshotGrace)
        assert rounds.due_in_s() == pytest.approx(4.9)
        # The active segment is written to all the time: what counts then is that it was there at the first look.
        context.clock.advance_ms(5_000)  # type: ignore[attr-defined]
        set_age(log_dir, -5_000, f"{spans[-1][1]:020d}.log")
        assert rounds.run_once().errors == []
    assert ranges(archived_states(store)[PARTITION]) == spans


def test_a_snapshot_missing_since_long_ago_is_not_waited_for(log_dir: Path, tmp_path: Path) -> None:
    spans, store = rolled_ranges(log_dir, PARTITION), MemoryStore()
    set_age(log_dir, 6_000, f"{spans[-1][1]:020d}.log")
    with tools_for(log_dir, store, tmp_path / "state", settling=GRACE) as context:
        assert archive(context, log_dir).errors == []
    assert ranges(archived_states(store)[PARTITION]) == spans


def test_a_storm_of_file_events_does_not_make_a_storm_of_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    begun_s: list[float] = []

    def note(_loop: ArchiveLoop) -> CycleReport:
        begun_s.append(clock.monotonic_s())
        return CycleReport(scan_s=0.3 if len(begun_s) < 3 else 6.0)

    monkeypatch.setattr(assembly, "open_store", lambda *_: MemoryStore())
    monkeypatch.setattr(ArchiveLoop, "cycle", note)
    with looping(settings_for(tmp_path, scan_interval_s=60)) as loop:
        eventually(lambda: len(begun_s) == 1)

        def two_more_while_woken_all_the_time() -> bool:
            loop.wake.set()
            return len(begun_s) >= 3

        eventually(two_more_while_woken_all_the_time)
        loop.wake.clear()
        stopped_s = clock.monotonic_s()
    # Five times the duration of a scan; but who is asked to stop does not wait for that.
    assert [later - earlier >= 1.5 for earlier, later in pairwise(begun_s)] == [True, True]
    assert clock.monotonic_s() - stopped_s < 15
