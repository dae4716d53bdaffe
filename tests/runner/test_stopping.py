"""What stops a partition stops it in time and leaves nothing behind."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.archive.actions import Add, Remove
from sidecar.archive.commit import Writer
from sidecar.archive.keys import below, indexes_key, log_key
from sidecar.archive.state import PartitionState
from sidecar.commits.commit_log import CommitLog
from sidecar.errors import Fenced
from tests.daemon.looping import WAIT_S
from tests.descriptors import open_below
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.golden import wall_clock_ms
from tests.runner.rig import archive, archived_states, copy_partitions, rounds_over, tools_for

ANOTHER_ID = "B" * 21 + "A"


def commit_as_a_later_leader(store: MemoryStore, state: PartitionState) -> None:
    """Another broker replaces the newest segment by a copy of its own, under a leader epoch that is ahead of all."""
    last = state.segments[-1]
    copy = replace(
        last,
        segment_id=ANOTHER_ID,
        log_key=log_key(last.base_offset, ANOTHER_ID),
        indexes_key=indexes_key(last.base_offset, ANOTHER_ID),
    )
    root = state.lineage.root
    for old, new in ((last.log_key, copy.log_key), (last.indexes_key, copy.indexes_key)):
        store.put_if_absent(below(root, new), store.objects[below(root, old)])
    removed = Remove(last.segment_id, last.base_offset, last.end_offset, "another leader's")
    log = CommitLog(store, root, ManualClock(wall_clock_ms("4.3.0")))
    log.append([removed, Add(copy)], Writer(9, 99, "another broker"), state)


def test_a_fenced_writer_stops_before_it_uploads_anything(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state", max_queue=2) as context:
        archive(context, log_dir)
    commit_as_a_later_leader(store, archived_states(store)["orders-0"])
    uploads = store.calls["upload"]
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        for _ in range(2):
            report = rounds.run_once()
            assert [type(error) for error in report.errors] == [Fenced]
            assert "leader epoch 99" in str(report.errors[0])
    assert store.calls["upload"] == uploads


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors in /proc")
def test_an_attempt_that_cannot_be_discarded_leaves_no_descriptor_of_the_others_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    victim = log_dir / "orders-0" / f"{0:020d}.log"
    asked, all_begun = [], threading.Barrier(3)

    def touch_it(operation: str, key: str) -> None:
        if operation == "upload" and key.endswith(".log"):
            all_begun.wait(WAIT_S)
        if operation == "upload" and key.endswith(".indexes"):
            os.utime(victim, ns=(0, 0))

    def refuse(_context: object, attempt: object) -> bool:
        asked.append(attempt)
        return False

    monkeypatch.setattr("sidecar.runner.copy_executor.discard_quietly", refuse)
    with tools_for(log_dir, MemoryStore(before=touch_it), tmp_path / "state", uploads_ahead=3) as context:
        report = archive(context, log_dir)
    assert [type(error).__name__ for error in report.errors] == ["SegmentChanged"]
    assert len(asked) == 3
    assert open_below(log_dir) == []
