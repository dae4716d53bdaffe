"""What goes wrong with one partition, on the disk or in the store, stops that one; what concerns all ends the command."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sidecar.cli.restore.report import show
from sidecar.restore.request import RestoreRequest
from sidecar.restore.restore import RestoreReport, restore
from sidecar.restore.staging import StagedPartition
from tests.cli.running import in_this_process
from tests.fakes.memory_store import MemoryStore
from tests.restore.archives import CLOCK, archived, golden_topic_id, own_log_dir, restored
from tests.restore.test_damage import segment_keys


def run(store: MemoryStore, log_dir: Path) -> RestoreReport:
    return restore(store, CLOCK, RestoreRequest("orders", log_dir, topic_id=golden_topic_id("orders")))


def assert_only_the_first_stopped(report: RestoreReport, reported: str) -> None:
    stopped, fine = report.outcomes
    assert report.exit_code == 3
    assert reported in stopped.problem
    assert (stopped.state, fine.state) == ("stopped", "restored")
    log_dir = report.log_dir
    assert (log_dir / "orders-1").is_dir()
    assert b"orders 0" not in (log_dir / "recovery-point-offset-checkpoint").read_bytes()


def test_a_file_where_a_partition_is_to_be_made_stops_only_that_one(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    (log_dir / "orders-0.restoring").touch()
    assert_only_the_first_stopped(run(archived(), log_dir), "orders-0.restoring: cannot be written")
    (log_dir / "orders-0.restoring").unlink()
    assert run(archived(), log_dir).exit_code == 0


def test_a_strangers_file_in_an_unfinished_directory_stops_only_that_one(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    (log_dir / "orders-0.restoring").mkdir()
    (log_dir / "orders-0.restoring" / "letter.txt").touch()
    assert_only_the_first_stopped(run(archived(), log_dir), "letter.txt: not a file of a restore")
    assert (log_dir / "orders-0.restoring" / "letter.txt").exists()


def test_a_directory_that_may_not_be_written_stops_only_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir, store = own_log_dir(tmp_path), archived()
    opened = os.open

    def refusing(path: str | Path, *arguments: int) -> int:
        if "orders-0.restoring" in str(path) and str(path).endswith(".log.part"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *arguments)

    # Root may write everywhere, and tests run as root too.
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing)
        assert_only_the_first_stopped(run(store, log_dir), "run as the broker's user, or as root")
    assert run(store, log_dir).exit_code == 0


def test_a_name_that_cannot_be_given_at_the_end_stops_only_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = own_log_dir(tmp_path)
    swap_in = StagedPartition.swap_in

    def refusing(staged: StagedPartition) -> None:
        if staged.final.name.endswith("-0"):
            (staged.final / "in-the-way").mkdir(parents=True)
        swap_in(staged)

    with monkeypatch.context() as patch:
        patch.setattr(StagedPartition, "swap_in", refusing)
        report = run(archived(), log_dir)
    assert [outcome.state for outcome in report.outcomes] == ["stopped", "restored"]
    assert "cannot be written" in report.outcomes[0].problem
    (log_dir / "orders-0" / "in-the-way").rmdir()
    again = run(archived(), log_dir)
    assert [outcome.state for outcome in again.outcomes] == ["restored", "done before"]


@pytest.mark.leaves_damage("missing_object")
def test_an_object_that_vanishes_in_the_middle_stops_only_its_partition(tmp_path: Path) -> None:
    key = [key for key in segment_keys(archived()) if key.endswith(".log")][4]
    store = archived(before=lambda operation, _: store.objects.pop(key, None) if operation == "stream" else None)
    assert_only_the_first_stopped(run(store, own_log_dir(tmp_path)), f"{key}: committed, but not in the store")


def test_a_full_disk_is_an_exit_code_and_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, body in archived().objects.items():
        path = tmp_path / "archive" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    log_dir, written = own_log_dir(tmp_path), os.pwrite

    def full(descriptor: int, data: bytes | memoryview, position: int) -> int:
        if len(data) > 4096:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written(descriptor, data, position)

    arguments = ["restore", "--archive", tmp_path / "archive", "--topic", "orders", "--to", log_dir, "--json"]
    arguments += ["--topic-id", str(golden_topic_id("orders"))]
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        done = in_this_process(*arguments)
    assert done.code == 3
    (answer,) = done.lines()
    assert answer["exit_code"] == 3
    assert "no space left on the disk" in answer["error"]
    assert not list(log_dir.glob("orders-[01]"))
    assert in_this_process(*arguments).code == 0


def test_root_that_may_not_change_owners_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It leaves no directory behind that neither the broker's user nor a later run could use."""
    log_dir = own_log_dir(tmp_path)
    (log_dir / ".lock").touch()

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("sidecar.restore.staging.owner_for", lambda directory: (12345, 12346))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", refused)
    outcome = restored(archived(), log_dir, "orders")
    assert (
        "orders-0.restoring: cannot be written: run as the broker's user, or as root with permission to change"
        in outcome.problem
    )
    assert "CAP_CHOWN" in outcome.problem
    assert not list(log_dir.glob("orders-0*"))
    report = RestoreReport(log_dir, 0, [outcome])
    show(report, colors=False, dry_run=False)
    assert "no broker starts" not in capsys.readouterr().err
