"""A log whose last batch is missing, because a cleaner took it: readers, and followers, get to its end all the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.leader_epochs import read_leader_epochs
from sidecar.logformat.names import LEADER_EPOCH_CHECKPOINT
from sidecar.restore.request import LeaderEpochMode, OpenTransactionMode
from sidecar.restore.restore import Run
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.restore.archives import batches_of, files_of, other_log_dir, own_log_dir, restored
from tests.restore.test_lost_ends import LOST_FROM, lost_at_the_end
from tests.restore.test_ranges import END, assert_loadable
from tests.runner.rig import archive, archived_states, ranges, tools_for

OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def cleaned(directory: Path, checkpoint: str = "") -> MemoryStore:
    """`compacted-0` as the cleaner of 2.7.2 left it: the batches of [572, 877) end below 832.

    Given a checkpoint, only what lies below the first batch that contradicts it.
    """
    log_dir, store = directory / "source", MemoryStore()
    shutil.copytree(golden("2.7.2") / "compacted", log_dir, copy_function=shutil.copy2)
    if checkpoint:
        (log_dir / "compacted-0" / LEADER_EPOCH_CHECKPOINT).write_text(checkpoint)
    with tools_for(log_dir, store, directory / "state", "2.7.2") as context:
        archive(context, log_dir, "compacted")
    return store


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize(("end", "last_offset"), [(877, 831), (850, 831), (832, 831)])
def test_an_empty_batch_leads_over(
    end: int, last_offset: int, interrupted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, log_dir = cleaned(tmp_path), own_log_dir(tmp_path, "2.7.2")
    wish = {"offset_range": (0, end), "open_transactions": OpenTransactionMode.ABORT}
    if interrupted:
        with monkeypatch.context() as patch:
            patch.setattr(Run, "swap_in", lambda run: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                restored(store, log_dir, "compacted", "2.7.2", **wish)
        store.calls.clear()
    outcome = restored(store, log_dir, "compacted", "2.7.2", **wish)
    assert outcome.log is not None, outcome.problem
    assert store.calls["stream"] == 0 or not interrupted
    is_missing = last_offset < end - 1
    assert (outcome.log.added_from_offset, outcome.log.end_offset) == (end, end + is_missing)
    assert outcome.log.open_transactions == ()
    directory = log_dir / "compacted-0"
    assert_loadable(directory, outcome.log.end_offset)
    *_, before, last = batches_of(directory)
    assert (before if is_missing else last).last_offset == last_offset
    assert (list(read_records(last.content)) == []) == is_missing
    files = files_of(directory)
    assert restored(store, log_dir, "compacted", "2.7.2", **wish).state == "done before"
    assert files_of(directory) == files


def test_the_archive_goes_on_behind_the_empty_batch(tmp_path: Path) -> None:
    """It begins the next segment, as if the broker had written it."""
    store, log_dir = lost_at_the_end(), own_log_dir(tmp_path)
    outcome = restored(store, log_dir, "orders")
    assert outcome.log is not None
    directory, end = log_dir / "orders-0", outcome.log.end_offset + 2
    records = [Record(offset, 1_700_000_000_000, b"k", b"v") for offset in range(END + 1, end)]
    with (directory / f"{END:020d}.log").open("ab") as log:
        log.write(build_batch(records, leader_epoch=4))
    (directory / f"{end:020d}.log").touch()
    (directory / f"{end:020d}.snapshot").write_bytes((directory / f"{END:020d}.snapshot").read_bytes())
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (log_dir / name).write_text(f"0\n1\norders 0 {end}\n")
    with tools_for(log_dir, store, tmp_path / "state") as context:
        report = archive(context, log_dir, "orders")
    assert report.errors == []
    assert report.outcomes[0].conformance == {"equal": 1}
    state = archived_states(store)["orders-0"]
    assert ranges(state)[-1] == (END, end)
    assert [(hole.base_offset, hole.end_offset) for hole in state.holes] == [(LOST_FROM, END)]


def test_epochs_whose_batches_are_gone_are_flattened_too(tmp_path: Path) -> None:
    """What is written besides the archived batches has them, and another cluster's leader would be behind them."""
    store, log_dir = cleaned(tmp_path, "0\n2\n0 0\n2 300\n"), other_log_dir(tmp_path)
    segment = next(found for found in archived_states(store)["compacted-0"].segments if found.base_offset == 130)
    assert (segment.highest_batch_leader_epoch, segment.leader_epochs[-1].epoch) == (0, 2)
    wish = {"offset_range": (0, 328), "topic_id": OTHER_ID, "open_transactions": OpenTransactionMode.ABORT}
    outcome = restored(store, log_dir, "compacted", "2.7.2", leader_epochs=None, **wish)
    assert outcome.decisions is not None
    assert outcome.decisions.leader_epochs is LeaderEpochMode.FLATTEN
    directory = log_dir / "compacted-0"
    assert {batch.leader_epoch for batch in batches_of(directory)} == {0}
    assert read_leader_epochs((directory / LEADER_EPOCH_CHECKPOINT).read_bytes()).latest_epoch == 0
