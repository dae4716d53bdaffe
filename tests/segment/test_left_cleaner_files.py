"""Files of the broker's cleaner that stay: none of them may keep a partition from being archived before segments are replaced.

Nothing is renamed or deleted before they are `.swap`. Source: Cleaner.cleanSegments, LocalLog.replaceSegments.
"""

from __future__ import annotations

from pathlib import Path

from sidecar.model import TopicPartition
from sidecar.segment.local_disk import LocalDisk
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import archive, archived_states, copy_partitions, ranges, rolled_ranges, tools_for


def test_an_unfinished_output_of_the_cleaner_keeps_nothing_waiting(tmp_path: Path) -> None:
    """It stays where the cleaner failed, until the broker restarts; and it is there for hours while a large log is cleaned."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    for suffix in ("log", "index", "timeindex"):
        (log_dir / "orders-0" / f"{0:020d}.{suffix}.cleaned").write_bytes(b"")
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir).errors == []
    assert ranges(archived_states(store)["orders-0"]) == rolled_ranges(log_dir, "orders-0")


def test_a_first_cleaning_that_has_not_ended_counts_as_one(tmp_path: Path) -> None:
    """It is noted when it ends, and has replaced segments before."""
    log_dir, partition = copy_partitions(tmp_path, "orders-0"), TopicPartition("orders", 0)
    assert LocalDisk().first_dirty_offset(log_dir, partition) is None
    (log_dir / "orders-0" / f"{362:020d}.log.cleaned").write_bytes(b"")
    assert LocalDisk().first_dirty_offset(log_dir, partition) == 0
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 140\n")
    assert LocalDisk().first_dirty_offset(log_dir, partition) == 140
