"""A replica is moved to another log dir of its broker while retention has taken segments that only pins have."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.retention.pinned_rig import held_names
from tests.retention.test_pinned_logs import led, listed, planned_and_held
from tests.runner.rig import remove_offsets


def test_pins_outlive_a_move_under_the_same_leader_epoch(tmp_path: Path) -> None:
    """The copy was fetched from this very leader: same topic, same epoch, same records. Source: ReplicaAlterLogDirsThread."""
    with led(tmp_path) as (log_dir, context, facts):
        archiver, files = planned_and_held(context, log_dir)
        pinned = held_names(context)
        remove_offsets(files.directory, lambda offset: offset >= 248)
        facts.cluster_start_offset = 248
        future = tmp_path / "future"
        shutil.copytree(files.directory, future)
        shutil.rmtree(files.directory)
        future.rename(files.directory)
        archiver.see(listed(log_dir), facts.partition(files))
        assert held_names(context) == pinned  # Also what the copy has, until that is pinned.
        assert pinned[:2] == [0, 140]
