"""The journal's directory: refused in time where nothing can be written to it, and what the metrics tell of its content."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sidecar.archive.keys import below
from sidecar.doctor.findings import Verdict
from sidecar.doctor.machine import _place
from sidecar.errors import SettingsError, SidecarError, StagingFull, StoreError, StoreUnavailable
from sidecar.host.journal import Attempt, Journal
from sidecar.metrics import Metrics
from sidecar.model import ObjectKey
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.runner.rig import archive, archived_states, copy_partitions, remove_offsets, rounds_over, tools_for

_SYNCHRONOUS_FULL = 2
"""As SQLite numbers it."""


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"tiered_sidecar_{name}", labels)


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.ENOSPC, StagingFull),
        (errno.EDQUOT, StagingFull),
        (errno.EACCES, SettingsError),
        (errno.EROFS, SettingsError),
    ],
)
def test_a_full_state_directory_has_the_exit_code_of_doctor(
    number: int, error: type[SidecarError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(error, match=os.strerror(number)):
        Journal(tmp_path)
    outcome = _place("run.state_dir", tmp_path, 0, 0)
    assert (outcome.verdict, outcome.exit_code) == (Verdict.PROBLEM, error.exit_code)


def test_a_state_directory_without_room_is_no_wrong_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> sqlite3.Connection:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr("sidecar.host.journal.sound_database", full)
    with pytest.raises(StagingFull, match=r"disk is full.*run\.state_dir"):
        Journal(tmp_path)
    monkeypatch.undo()
    Journal(tmp_path).close()  # the lock was given back


def test_failed_uploads_and_what_they_leave_are_measured(tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    store = MemoryStore(
        faults=[
            Fault("upload", 0, FaultKind.DENIED),
            *(Fault("delete", number, FaultKind.DENIED) for number in range(20)),
        ]
    )
    with tools_for(log_dir, store, tmp_path / "state") as context:
        report = archive(context, log_dir)
        assert [isinstance(error, StoreError) for error in report.errors] == [True]
        assert sample(context.metrics, "segments_total", stage="uploaded", result="failed") == 1
        assert sample(context.metrics, "segments_total", stage="committed", result="failed") == 0
        assert sample(context.metrics, "unfinished_attempts") == context.journal.count() > 0
        store.faults.clear()
        assert archive(context, log_dir).errors == []
        assert sample(context.metrics, "unfinished_attempts") == context.journal.count() == 0


def test_failed_commits_are_measured(tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    store = MemoryStore(faults=[Fault("put_if_absent", nth, FaultKind.DENIED, "/commits/") for nth in range(4)])
    with tools_for(log_dir, store, tmp_path / "state") as context:
        report = archive(context, log_dir)
        assert [isinstance(error, StoreError) for error in report.errors] == [True]
        assert sample(context.metrics, "segments_total", stage="uploaded", result="failed") == 0
        assert sample(context.metrics, "segments_total", stage="committed", result="failed") == 1


def test_an_attempt_of_a_file_with_a_large_inode_number_is_kept(tmp_path: Path) -> None:
    """At and above 2**63: GlusterFS, overlayfs with xino."""
    attempt = Attempt("A" * 22, "c/t/0/0", 0, 10, ObjectKey("l"), ObjectKey("i"), 1, 5, 7, 9)
    large = [replace(attempt, segment_id=name * 22, inode=inode) for name, inode in (("B", 2**63), ("C", 2**64 - 1))]
    journal = Journal(tmp_path)
    for found in (attempt, *large):
        journal.begin(found)
    assert journal.attempts("c/t/0/0") == (attempt, *large)
    journal.close()


def test_what_an_upload_left_is_removed_though_retention_took_the_segment(tmp_path: Path) -> None:
    log_dir, is_dead = copy_partitions(tmp_path, "orders-0"), False

    def before(operation: str, key: str) -> None:
        nonlocal is_dead
        is_dead |= operation == "upload" and key.endswith(".indexes") and not tmp_path.joinpath("other").exists()
        if is_dead:
            raise StoreUnavailable("no answer")

    store = MemoryStore(before=before)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds_over(context, log_dir).run_once()
        (root,) = context.journal.roots()
        left = next(attempt for attempt in context.journal.attempts(root) if attempt.base_offset == 0)
        assert below(root, left.log_key) in store.objects
    # Another broker leads, and its sidecar archives all of it. Then retention, and the first one leads again.
    is_dead = False
    with tools_for(log_dir, store, tmp_path / "other") as context:
        rounds_over(context, log_dir).run_once()
    assert archived_states(store)["orders-0"].start_offset == 0
    remove_offsets(log_dir / "orders-0", lambda offset: offset >= 248)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        rounds.run_once()
        assert context.journal.count() == 0
        (archiver,) = rounds.checks.archivers
        known = archiver.known.state
        assert known is not None
        assert not known.is_whole, "nothing needs all of it any more"
    assert below(root, left.log_key) not in store.objects


def test_a_copy_of_a_state_directory_leaves_the_uploads_of_the_original_alone(tmp_path: Path) -> None:
    """A process with the original may be about to commit them: the commit would name objects that are gone."""
    log_dir, state_dir, is_dead = copy_partitions(tmp_path, "orders-0"), tmp_path / "state", False

    def before(operation: str, key: str) -> None:
        nonlocal is_dead
        is_dead |= operation == "upload" and key.endswith(".indexes") and not tmp_path.joinpath("copied").exists()
        if is_dead:
            raise StoreUnavailable("no answer")

    store = MemoryStore(before=before)
    with tools_for(log_dir, store, state_dir) as context:
        rounds_over(context, log_dir).run_once()
        (root,) = context.journal.roots()
        left = context.journal.attempts(root)
    uploaded = {below(root, attempt.log_key) for attempt in left} & store.objects.keys()
    assert uploaded
    state_dir.rename(tmp_path / "renamed")
    with closing(Journal(tmp_path / "renamed")) as journal:
        assert journal.attempts(root) == left, "only its name is new"
    shutil.copytree(tmp_path / "renamed", tmp_path / "copied")
    shutil.copytree(log_dir, tmp_path / "copied logs")
    is_dead = False
    with tools_for(tmp_path / "copied logs", store, tmp_path / "copied") as context:
        assert archive(context, tmp_path / "copied logs").errors == []
        assert context.journal.count() == 0
    assert uploaded <= store.objects.keys()


def test_the_journal_needs_little_space_however_many_uploads_it_has_seen(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        for number in range(200):
            attempt = Attempt(f"{number:022d}", "c/t/0/0", number, 10, ObjectKey("l"), ObjectKey("i"), 1, 5, 7, 9)
            journal.begin(attempt)
            journal.log_uploaded(attempt.segment_id, 1)
            journal.end(attempt.segment_id)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 400_000


@pytest.mark.parametrize("is_damaged", [False, True])
def test_what_the_journal_has_taken_is_on_the_disk_at_once(is_damaged: bool, tmp_path: Path) -> None:
    """Else a power failure takes the record of uploads whose commit was sent."""
    if is_damaged:
        (tmp_path / "journal.sqlite").write_bytes(b"no database" * 100)
    with closing(Journal(tmp_path)) as journal:
        assert journal._run("PRAGMA synchronous") == [(_SYNCHRONOUS_FULL,)]
        assert journal._run("PRAGMA journal_mode") == [("wal",)]


def test_a_copied_journal_is_reported_once(tmp_path: Path) -> None:
    attempt = Attempt("A" * 22, "c/t/0/0", 0, 10, ObjectKey("l"), ObjectKey("i"), 1, 5, 7, 9)
    with closing(Journal(tmp_path / "original")) as journal:
        journal.begin(attempt)
    shutil.copytree(tmp_path / "original", tmp_path / "copied")
    with capture_logs() as logs:
        for _ in range(2):
            Journal(tmp_path / "copied").close()
    copied = tmp_path / "copied" / "journal.sqlite"
    assert logs == [{"event": "journal_copied", "log_level": "warning", "path": str(copied), "unfinished_uploads": 1}]


def test_a_start_that_dies_in_a_copied_journal_leaves_all_of_it_to_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is written before all of it: the next warning has the same figure, and the one after that does not come."""

    def dies(journal: Journal, statement: str, *values: Any) -> list[Any]:
        if statement.startswith("INSERT"):
            raise KeyboardInterrupt
        return run(journal, statement, *values)

    run = Journal._run
    attempt = Attempt("A" * 22, "c/t/0/0", 0, 10, ObjectKey("l"), ObjectKey("i"), 1, 5, 7, 9)
    with closing(Journal(tmp_path / "original")) as journal:
        journal.begin(attempt)
    shutil.copytree(tmp_path / "original", tmp_path / "copied")
    with capture_logs() as logs:
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "_run", dies)
            with pytest.raises(KeyboardInterrupt):
                Journal(tmp_path / "copied")
        for _ in range(2):
            with closing(Journal(tmp_path / "copied")) as journal:
                assert journal.count() == 0
    assert [(line["event"], line["unfinished_uploads"]) for line in logs] == [("journal_copied", 1)] * 2


def test_inodes_tell_copies_where_the_file_system_has_no_birth_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.host.journal.birth_ns", lambda _path, _inode: None)
    attempt = Attempt("A" * 22, "c/t/0/0", 0, 10, ObjectKey("l"), ObjectKey("i"), 1, 5, 7, 9)
    with closing(Journal(tmp_path / "original")) as journal:
        journal.begin(attempt)
    with closing(Journal(tmp_path / "original")) as journal:
        assert journal.count() == 1
    shutil.copytree(tmp_path / "original", tmp_path / "copied")
    with closing(Journal(tmp_path / "copied")) as journal:
        assert journal.count() == 0


def test_a_state_directory_that_cannot_be_read_now_is_not_called_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_path: Path) -> os.stat_result:
        raise OSError(errno.EIO, "input/output error")

    with closing(Journal(tmp_path)) as journal:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "stat", fails)
            assert journal.displaced() == ""
        assert journal.displaced() == ""
        (tmp_path / "lock").unlink()
        assert "deleted or replaced" in journal.displaced()
