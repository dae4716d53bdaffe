"""A state directory whose disk fails, or is full: each error gets the advice that helps."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sidecar.errors import SidecarError, StagingFull, StateDirUnusable
from sidecar.host.journal import Journal


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_FULL, StagingFull),
        (sqlite3.SQLITE_IOERR_WRITE, StagingFull),
        (sqlite3.SQLITE_IOERR_FSYNC, StagingFull),
        (sqlite3.SQLITE_IOERR_SHMSIZE, StagingFull),
        (sqlite3.SQLITE_IOERR_READ, StateDirUnusable),
        (sqlite3.SQLITE_CORRUPT, StateDirUnusable),
        (sqlite3.SQLITE_READONLY, StateDirUnusable),
    ],
)
def test_only_a_full_disk_asks_for_free_space(
    code: int, expected: type[SidecarError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has a code of its own for a full disk, but not for a quota."""

    def fails(*_: object, **__: object) -> sqlite3.Connection:
        error = sqlite3.OperationalError("it failed")
        error.sqlite_errorcode = code
        raise error

    # A damaged journal is replaced once.
    (tmp_path / "journal.sqlite").touch()
    monkeypatch.setattr("sidecar.host.journal.sound_database", fails)
    with pytest.raises(expected, match="it failed") as raised:
        Journal(tmp_path)
    assert ("free space" in str(raised.value)) == (expected is StagingFull)


def test_a_journal_that_is_damaged_while_it_is_open_asks_for_a_restart(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with sqlite3.connect(tmp_path / "journal.sqlite") as other:
        other.execute("DROP TABLE attempts")
    with pytest.raises(StateDirUnusable, match=r"no such table.*A restart replaces a damaged journal"):
        journal.count()
    journal.close()
