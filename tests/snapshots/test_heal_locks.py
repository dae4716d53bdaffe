"""`heal` holds the broker's lock, and refuses a log dir that is a broker's or was not shut down."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sidecar.host import placing
from sidecar.host.log_dir_lock import LogDirLock, LogDirRefused
from sidecar.snapshots import heal as healer
from tests.descriptors import open_below
from tests.snapshots.log_dirs import (
    healed,
    held_lock,
    log_dir_of,
    snapshots_in,
    tree,
)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_held_lock_refuses(tmp_path: Path, dry_run: bool) -> None:
    log_dir = log_dir_of(tmp_path)
    before = tree(log_dir)
    with held_lock(log_dir), pytest.raises(LogDirRefused, match=r"\.lock is locked.*stop the broker"):
        healed(log_dir, dry_run=dry_run)
    assert tree(log_dir) == before


def test_one_refused_log_dir_keeps_all_from_being_touched(tmp_path: Path) -> None:
    good, held = log_dir_of(tmp_path / "good"), log_dir_of(tmp_path / "held", topic="u")
    with held_lock(held), pytest.raises(LogDirRefused, match="held"):
        healed(good, held)
    assert snapshots_in(good / "t-0") == []


def test_the_lock_is_held_while_we_work_and_let_go_afterwards(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    with LogDirLock(log_dir):
        assert not _can_lock(log_dir)
    assert _can_lock(log_dir)


def _can_lock(log_dir: Path) -> bool:
    """In a process of its own: record locks do not exclude their own process."""
    child = os.fork()
    if child == 0:
        try:
            with LogDirLock(log_dir):
                os._exit(0)
        except LogDirRefused:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def test_an_unclean_shutdown_refuses_and_says_what_to_do(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    (log_dir / ".kafka_cleanshutdown").unlink()
    with pytest.raises(LogDirRefused, match=r"not shut down cleanly.*let it recover, stop it cleanly"):
        healed(log_dir)
    assert snapshots_in(log_dir / "t-0") == []


def test_a_copy_without_lock_file_gets_one_as_from_a_broker(tmp_path: Path) -> None:
    """Removed, it would part who has opened it from who makes it anew: both would hold a lock."""
    log_dir = log_dir_of(tmp_path)
    (log_dir / ".lock").unlink()
    assert healed(log_dir).exit_code == 0
    assert (log_dir / ".lock").read_bytes() == b""
    assert snapshots_in(log_dir / "t-0") == [2, 4, 6]


def test_a_lock_file_that_cannot_be_given_to_the_brokers_user_is_not_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root without CAP_CHOWN, or over NFS with root_squash: root's own file no broker could open."""
    log_dir = log_dir_of(tmp_path)
    (log_dir / ".lock").unlink()
    owner = os.stat_result((*log_dir.stat()[:4], 12345, 12346, 0, 0, 0, 0))

    def denied(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    real = Path.stat
    monkeypatch.setattr(os, "fchown", denied)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Path, "stat", lambda path, **options: owner if path == log_dir else real(path, **options))
    with pytest.raises(LogDirRefused, match=r"user 12345 and group 12346 \(Operation not permitted\).*CAP_CHOWN"):
        healed(log_dir)
    assert not (log_dir / ".lock").exists()
    assert open_below(tmp_path) == []


@pytest.mark.parametrize("change", ["lock replaced", "broker started"])
def test_nothing_more_is_written_once_the_log_dir_is_no_longer_ours(tmp_path: Path, change: str) -> None:
    log_dir = log_dir_of(tmp_path)
    with LogDirLock(log_dir) as lock:
        lock.require_held()
        if change == "lock replaced":
            (log_dir / ".lock").unlink()
            (log_dir / ".lock").touch()
        else:
            (log_dir / ".kafka_cleanshutdown").unlink()
        with pytest.raises(LogDirRefused, match="nothing more is written"):
            lock.require_held()


def test_a_broker_that_starts_meanwhile_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = log_dir_of(tmp_path, partitions=3)

    def written_while_a_broker_starts(path: Path, *arguments: object, **options: object) -> None:
        placing.place_snapshot(path, *arguments, **options)  # type: ignore[arg-type]
        (log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)

    monkeypatch.setattr(healer, "THREADS", 1)
    monkeypatch.setattr(healer, "place_snapshot", written_while_a_broker_starts)
    with pytest.raises(LogDirRefused, match="a broker has started"):
        healed(log_dir)
    assert [snapshots_in(log_dir / f"t-{partition}") for partition in range(3)] == [[2, 4, 6], [], []]
