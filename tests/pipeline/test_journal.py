"""The journal's directory: refused in time where nothing can be written to it, and what the metrics tell of its content."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from sidecar.doctor.findings import Verdict
from sidecar.doctor.machine import _place
from sidecar.errors import SettingsError, SidecarError, StagingFull, StoreError
from sidecar.host.journal import Journal
from sidecar.metrics import Metrics
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.pipeline.rig import archive, copy_partitions, tools_for


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
    with tools_for(log_dir, store, tmp_path / "state") as tools:
        report = archive(tools, log_dir)
        assert [isinstance(error, StoreError) for error in report.errors] == [True]
        assert sample(tools.metrics, "segments_total", stage="uploaded", result="failed") == 1
        assert sample(tools.metrics, "segments_total", stage="committed", result="failed") == 0
        assert sample(tools.metrics, "unfinished_attempts") == tools.journal.count() > 0
        store.faults.clear()
        assert archive(tools, log_dir).errors == []
        assert sample(tools.metrics, "unfinished_attempts") == tools.journal.count() == 0


def test_failed_commits_are_measured(tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    store = MemoryStore(faults=[Fault("put_if_absent", nth, FaultKind.DENIED, "/commits/") for nth in range(4)])
    with tools_for(log_dir, store, tmp_path / "state") as tools:
        report = archive(tools, log_dir)
        assert [isinstance(error, StoreError) for error in report.errors] == [True]
        assert sample(tools.metrics, "segments_total", stage="uploaded", result="failed") == 0
        assert sample(tools.metrics, "segments_total", stage="committed", result="failed") == 1
