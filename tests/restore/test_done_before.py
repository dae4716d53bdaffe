"""What an earlier run finished is passed over only if it is what this command would make, and nobody has been at it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sidecar.cli.restore.report import show
from sidecar.errors import SettingsError
from sidecar.host.log_dir_lock import LogDirRefused
from sidecar.restore.request import (
    DeletedRecordsMode,
    LeaderEpochMode,
    OpenTransactionMode,
    ProducerStateMode,
    RestoreRequest,
)
from sidecar.restore.restore import RestoreReport, restore
from tests.fakes.memory_store import MemoryStore
from tests.restore.archives import CLOCK, archived, files_of, golden_topic_id, other_log_dir, own_log_dir
from tests.restore.test_damage import segment_keys
from tests.restore.test_refusals import OTHER_ID, new_topic

ID = golden_topic_id("orders")


def run(store: MemoryStore, log_dir: Path, **request: Any) -> RestoreReport:
    return restore(store, CLOCK, RestoreRequest("orders", log_dir, **{"topic_id": ID, **request}))


def damaged() -> MemoryStore:
    """Of orders-1 one object is missing."""
    store = archived()
    del store.objects[segment_keys(store, "/orders/1/")[0]]
    return store


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """A log dir in which orders-0 is restored, and orders-1 is not."""
    log_dir = own_log_dir(tmp_path)
    assert [outcome.state for outcome in run(damaged(), log_dir).outcomes] == ["restored", "stopped"]
    return log_dir


def segments_deleted(directory: Path) -> None:
    for path in sorted(directory.glob("*.log"))[:2]:
        path.unlink()


def segments_appended(directory: Path) -> None:
    with max(directory.glob("*.log")).open("ab") as file:
        file.write(b"x")


def all_but_the_end_deleted(directory: Path) -> None:
    for path in directory.glob("*"):
        if not path.name.startswith(f"{964:020d}"):
            path.unlink()


@pytest.mark.parametrize("change", [segments_deleted, segments_appended, all_but_the_end_deleted])
@pytest.mark.leaves_damage("missing_object")
def test_a_directory_that_a_broker_has_changed_is_not_done(change: Any, half: Path) -> None:
    change(half / "orders-0")
    before = files_of(half / "orders-0")
    with pytest.raises(
        LogDirRefused, match=r"orders-0: is not empty: an earlier restore.*was changed since.*when restored"
    ):
        run(archived(), half)
    assert files_of(half / "orders-0") == before
    # The others can be had, and with that the command is through.
    assert run(archived(), half, partitions=(1,)).exit_code == 0
    assert [path.name for path in half.rglob(".restore*")] == [".restore-orders.json"]


@pytest.mark.parametrize(
    ("wish", "reported"),
    [
        ({"offset_range": (0, 300), "partitions": (0,)}, r"another --offset-range \(none, now 0:300\)"),
        ({"until_timestamp_ms": 10**13}, "another --until-timestamp"),
        ({"open_transactions": OpenTransactionMode.ABORT}, "another --open-transactions"),
        ({"deleted_records": DeletedRecordsMode.RESTORE}, "another --deleted-records"),
        ({"leader_epochs": LeaderEpochMode.FLATTEN}, "with --leader-epochs keep"),
        ({"producer_state": ProducerStateMode.DROP}, "with --producer-state keep"),
    ],
)
@pytest.mark.leaves_damage("missing_object")
def test_another_wish_is_not_done(wish: dict[str, Any], reported: str, half: Path) -> None:
    with pytest.raises(LogDirRefused, match=reported):
        run(archived(), half, **wish)
    # It takes nothing from the first command, which still goes on.
    assert [outcome.state for outcome in run(archived(), half).outcomes] == ["done before", "restored"]


@pytest.mark.leaves_damage("missing_object")
def test_another_topic_id_is_not_done(tmp_path: Path) -> None:
    log_dir = tmp_path / "fresh"
    log_dir.mkdir()
    run(damaged(), log_dir, topic_id="none", leader_epochs=LeaderEpochMode.FLATTEN)
    with pytest.raises(LogDirRefused, match="restored with the topic id none"):
        run(archived(), log_dir, topic_id=OTHER_ID)


@pytest.mark.leaves_damage("missing_object")
def test_a_combination_that_is_refused_is_refused_for_what_is_done_too(tmp_path: Path) -> None:
    log_dir = tmp_path / "fresh"
    log_dir.mkdir()
    run(damaged(), log_dir, leader_epochs=LeaderEpochMode.KEEP)
    shutil.copy(other_log_dir(tmp_path) / "meta.properties", log_dir)
    with pytest.raises(SettingsError, match="keep is refused"):
        run(archived(), log_dir)


@pytest.mark.leaves_damage("missing_object")
def test_epochs_that_the_replaced_empty_log_decided_stay_decided(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    new_topic(log_dir, "orders-0", str(ID), "0\n1\n3 0\n")
    first = run(damaged(), log_dir).outcomes[0]
    again = run(archived(), log_dir).outcomes[0]
    assert first.decisions is not None
    assert again.decisions is not None
    assert again.state == "done before"
    assert first.decisions.leader_epochs is again.decisions.leader_epochs is LeaderEpochMode.FLATTEN


@pytest.mark.leaves_damage("missing_object")
def test_what_was_archived_since_is_not_said_to_be_restored(tmp_path: Path) -> None:
    log_dir, less = own_log_dir(tmp_path), damaged()
    last = max(key for key in less.objects if "/orders/0/" in key and "/commits/" in key)
    del less.objects[last]
    for key in [key for key in less.objects if "/checkpoints/" in key]:
        del less.objects[key]
    first = run(less, log_dir).outcomes[0]
    assert first.log is not None
    assert first.log.end_offset < 964
    again = run(archived(), log_dir).outcomes[0]
    assert again.state == "done before"
    assert again.to_json()["end_offset"] == first.log.end_offset


@pytest.mark.leaves_damage("missing_object")
def test_another_commands_end_leaves_the_first_one_its_note(half: Path) -> None:
    shutil.rmtree(half / "orders-1.restoring")
    interrupted = damaged()
    run(interrupted, half)  # orders-1.restoring is there again
    (half / "orders-2.restoring").mkdir()
    assert run(archived(), half, partitions=(1,)).exit_code == 0
    assert list(half.glob(".restore-orders.json"))
    (half / "orders-2.restoring").rmdir()
    assert [outcome.state for outcome in run(archived(), half).outcomes] == ["done before", "done before"]
    assert [path.name for path in half.rglob(".restore*")] == [".restore-orders.json"]


def test_a_command_that_is_through_is_distinguished_from_a_foreign_directory(tmp_path: Path) -> None:
    log_dir, store = own_log_dir(tmp_path), archived()
    assert run(store, log_dir).exit_code == 0
    before, streams = files_of(log_dir / "orders-0"), store.calls["stream"]
    again = run(store, log_dir)
    assert (again.exit_code, {outcome.state for outcome in again.outcomes}) == (0, {"done before"})
    assert (files_of(log_dir / "orders-0"), store.calls["stream"]) == (before, streams)
    (log_dir / "orders-0" / f"{964:020d}.log").write_bytes(b"x")
    with pytest.raises(LogDirRefused, match=r"completed it, and it was changed since.*nothing is left to do"):
        run(store, log_dir)
    (log_dir / ".restore-orders.json").unlink()
    with pytest.raises(LogDirRefused, match=r"is ever overwritten\. Restore into another directory"):
        run(store, log_dir)


def test_an_empty_log_that_a_broker_made_later_is_restored_over(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    assert run(archived(), log_dir).exit_code == 0
    wanted = files_of(log_dir / "orders-0")
    # The same directory, and so the same inode.
    for path in (log_dir / "orders-0").iterdir():
        path.unlink()
    (log_dir / "orders-0" / f"{0:020d}.log").touch()
    again = run(archived(), log_dir)
    assert [outcome.state for outcome in again.outcomes] == ["restored", "done before"]
    assert files_of(log_dir / "orders-0") == wanted


@pytest.mark.leaves_damage("missing_object")
def test_the_row_of_a_partition_that_stopped_counts_no_segment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show(run(damaged(), own_log_dir(tmp_path)), colors=False, dry_run=False)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip().startswith("orders-")]
    assert [row[:2] for row in rows] == [["orders-0", "restored"], ["orders-1", "stopped"]]
    assert rows[0][2:4] == ["0", "964"]
    assert rows[1][2:7] == ["-"] * 5
