"""A local record of attempts, so that a restart knows what it had begun. The archive stays the only truth.

SQLite on our own volume, locked for one process. Losing the file costs nothing but leftovers that `verify` counts as orphans.
"""

import errno
import fcntl
import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from sidecar.errors import SettingsError, StagingFull, StateDirUnusable
from sidecar.event_log import EVENTS
from sidecar.host.log_dir_fingerprint import LogDirFingerprint, birth_ns
from sidecar.model import ObjectKey, SegmentFiles

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""System calls fail so on a full disk."""
_FULL = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}
"""SQLite's codes on a full disk. A quota gives IOERR_WRITE or IOERR_FSYNC, a `-shm` file that cannot grow IOERR_SHMSIZE."""
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_LOCK: Final = "lock"
NO_LIMIT_MS: Final = (1 << 63) - 1
_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=64")
"""SQLite's log is written back at 64 pages of 4 KiB, not at its default of 1,000: a nearly full volume has no 4 MB for it."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS attempts (
    segment_id TEXT PRIMARY KEY, root TEXT NOT NULL, base_offset INTEGER NOT NULL, end_offset INTEGER NOT NULL,
    log_key TEXT NOT NULL, indexes_key TEXT NOT NULL,
    inode INTEGER NOT NULL, size_bytes INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    log_crc32c INTEGER, commit_number INTEGER, begun_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS attempts_root ON attempts (root);
CREATE TABLE IF NOT EXISTS sources (
    root TEXT PRIMARY KEY, directory BLOB NOT NULL, inode INTEGER NOT NULL, birth_ns INTEGER,
    active_name TEXT NOT NULL, active_inode INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS differing (
    root TEXT PRIMARY KEY, directory BLOB NOT NULL, inode INTEGER NOT NULL, birth_ns INTEGER,
    active_name TEXT NOT NULL, active_inode INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS file (identity INTEGER NOT NULL) STRICT;
"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An upload that was begun under a fresh segment id.

    `log_crc32c` is set once the `.log` object is complete, and None again before its objects are deleted. `commit_number` is set
    before a commit naming the segment is sent: until that number is taken, a late answer of the store could still make the
    segment live.
    """

    segment_id: str
    root: str
    base_offset: int
    end_offset: int
    log_key: ObjectKey
    indexes_key: ObjectKey
    inode: int
    size_bytes: int
    mtime_ns: int
    begun_ms: int
    log_crc32c: int | None = None
    commit_number: int | None = None

    def is_of(self, segment: SegmentFiles) -> bool:
        """Whether the source file is still the one that was uploaded."""
        mine = (self.base_offset, self.end_offset, self.inode, self.size_bytes, self.mtime_ns)
        log = segment.log
        return mine == (segment.base_offset, segment.end_offset, log.inode, segment.size_bytes, log.mtime_ns)


_FIELDS: Final = ", ".join(field.name for field in fields(Attempt))


class Journal:
    """Attempts that have not ended in a commit. Thread-safe; every change is on disk when the call returns."""

    def __init__(self, directory: Path) -> None:
        """Open or create `<directory>/journal.sqlite`. Raises SettingsError if it cannot be written or is held, StagingFull."""
        self._guard = threading.Lock()
        self._path = directory / "journal.sqlite"
        self._is_displaced = False
        with ExitStack() as unless_open:
            self._lock_fd = _locked(directory)
            unless_open.callback(os.close, self._lock_fd)
            try:
                self._connection = self._open()
                unless_open.callback(self._connection.close)
                self._forget_copied()
            except (sqlite3.Error, OSError) as error:
                raise _refusal(self._path, error) from error
            unless_open.pop_all()

    def _open(self) -> sqlite3.Connection:
        try:
            return sound_database(str(self._path), _PRAGMAS, _SCHEMA)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in _DAMAGED:
                raise
            # The journal is only a hint: a damaged one is set aside, its leftovers will be counted by `verify`.
            damaged = self._path.with_suffix(".damaged")
            EVENTS.warning("journal_recreated", path=str(damaged), reason=str(error))
            self._path.replace(damaged)
            for suffix in ("-wal", "-shm"):
                # SQLite would play the damaged journal's log back into the new one.
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            return sound_database(str(self._path), _PRAGMAS, _SCHEMA)

    def _forget_copied(self) -> None:
        """In a copy of a journal, forget the attempts: the process with the original may still commit their objects."""
        inode = self._path.stat().st_ino
        identity = _signed(birth_ns(self._path, inode) or inode)
        known = self._run("SELECT identity FROM file")
        if known == [(identity,)]:
            return
        if known:
            EVENTS.warning("journal_copied", path=str(self._path), unfinished_uploads=self.count())
        with self._connection:
            self._run("BEGIN")
            if known:
                self._run("DELETE FROM attempts")
            self._run("INSERT OR REPLACE INTO file (rowid, identity) VALUES (0, ?)", (identity,))

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Rows of a statement. Raises StagingFull, StateDirUnusable."""
        try:
            with self._guard:
                return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise _refusal(self._path, error) from error

    def begin(self, attempt: Attempt) -> None:
        """Record an attempt before its first byte is sent."""
        values = astuple(replace(attempt, inode=_signed(attempt.inode)))
        self._run(f"INSERT INTO attempts ({_FIELDS}) VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608 - no value

    def log_uploaded(self, segment_id: str, log_crc32c: int) -> None:
        """Note that the `.log` object of an attempt is complete, with this CRC-32C."""
        self._run("UPDATE attempts SET log_crc32c = ? WHERE segment_id = ?", (log_crc32c, segment_id))

    def discarding(self, segment_id: str) -> None:
        """Note that the objects of an attempt are about to be deleted: a DELETE without an answer may take hold late."""
        self._run("UPDATE attempts SET log_crc32c = NULL WHERE segment_id = ?", (segment_id,))

    def committing(self, segment_id: str, commit_number: int) -> None:
        """Note that a commit of this number, naming the segment, is about to be sent."""
        self._run("UPDATE attempts SET commit_number = ? WHERE segment_id = ?", (commit_number, segment_id))

    def end(self, segment_id: str) -> None:
        """Forget an attempt: it is committed, or its objects are gone."""
        self._run("DELETE FROM attempts WHERE segment_id = ?", (segment_id,))

    def attempts(self, root: str) -> tuple[Attempt, ...]:
        """Attempts of a partition's lineage that have not ended, oldest first."""
        query = f"SELECT {_FIELDS} FROM attempts WHERE root = ? ORDER BY begun_ms, base_offset"  # noqa: S608 - no value
        found = (Attempt(*row) for row in self._run(query, (root,)))
        return tuple(replace(attempt, inode=_unsigned(attempt.inode)) for attempt in found)

    def roots(self, *, begun_until_ms: int = NO_LIMIT_MS) -> frozenset[str]:
        """Lineages with attempts, but for those with one that was begun later."""
        rows = self._run("SELECT root FROM attempts GROUP BY root HAVING max(begun_ms) <= ?", (begun_until_ms,))
        return frozenset(root for (root,) in rows)

    def archived_from(self, root: str, mark: LogDirFingerprint) -> None:
        """Note from which partition directory segments of a lineage came last."""
        self._note("sources", root, mark)

    def source_of(self, root: str) -> LogDirFingerprint | None:
        return self._noted("sources", root)

    def differs(self, root: str, mark: LogDirFingerprint) -> None:
        """Note in which directory the log was found not to continue a lineage."""
        self._note("differing", root, mark)

    def differing(self, root: str) -> LogDirFingerprint | None:
        return self._noted("differing", root)

    def agrees(self, root: str) -> None:
        """Forget that a log differed: the one there now continues the lineage."""
        self._run("DELETE FROM differing WHERE root = ?", (root,))

    def _note(self, table: str, root: str, mark: LogDirFingerprint) -> None:
        directory, inode, active_inode = os.fsencode(mark.directory), _signed(mark.inode), _signed(mark.active_inode)
        row = (root, directory, inode, mark.birth_ns, mark.active_name, active_inode)
        self._run(f"INSERT OR REPLACE INTO {table} VALUES (?,?,?,?,?,?)", row)  # noqa: S608 - no value

    def _noted(self, table: str, root: str) -> LogDirFingerprint | None:
        query = f"SELECT directory, inode, birth_ns, active_name, active_inode FROM {table} WHERE root = ?"  # noqa: S608 - no value
        rows = self._run(query, (root,))
        if not rows:
            return None
        directory, inode, birth_ns, active_name, active_inode = rows[0]
        path = Path(os.fsdecode(directory))
        return LogDirFingerprint(path, _unsigned(inode), birth_ns, active_name, _unsigned(active_inode))

    def displaced(self) -> str:
        """Why the next start will not find this journal, "" if it will. Logs it once."""
        directory = self._path.parent
        try:
            is_ours = os.path.samestat(os.fstat(self._lock_fd), (directory / _LOCK).stat())
        except FileNotFoundError:
            is_ours = False
        except OSError:
            return ""  # It cannot be known now. A disk that fails is reported by whoever writes to it.
        if is_ours:
            return ""
        effect = (
            "archiving goes on, but the next start will not know the unfinished uploads and the newest commits, and another "
            "process can start with the same directory"
        )
        if not self._is_displaced:
            self._is_displaced = True
            EVENTS.error("state_dir_deleted", path=str(directory), effect=effect)
        return (
            f"{directory}: the state directory was deleted or replaced: {effect}. Restart once "
            "tiered_sidecar_pinned_deleted_bytes is 0"
        )

    def count(self) -> int:
        return int(self._run("SELECT count(*) FROM attempts")[0][0])

    def close(self) -> None:
        with self._guard:
            self._connection.close()
            os.close(self._lock_fd)


def state_directory(state_path: Path, store_url: str) -> Path:
    """The directory of this archive's journal, lock and cache: one for all spellings of its URL. It may not exist yet.

    `store_url`: as the opened store resolved it, `ObjectStore.url`.
    """
    parts = urlsplit(store_url)
    # Of a directory as a plain path, links resolved.
    url = os.path.realpath(unquote(parts.path, errors="surrogateescape")) if parts.scheme == "file" else store_url
    return state_path / sha256(url.encode(errors="surrogateescape")).hexdigest()[:16]


def _signed(inode: int) -> int:
    """SQLite's integers are signed, inode numbers are not."""
    return inode - (1 << 64) if inode >= 1 << 63 else inode


def _unsigned(inode: int) -> int:
    return inode + (1 << 64) if inode < 0 else inode


def _is_full(error: sqlite3.Error | OSError) -> bool:
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    return getattr(error, "sqlite_errorcode", None) in _FULL


def _refusal(path: Path, error: sqlite3.Error | OSError) -> StagingFull | StateDirUnusable:
    if _is_full(error):
        return StagingFull(f"{path}: the journal cannot be written ({error}): free space below run.state_dir")
    return StateDirUnusable(
        f"{path}: the journal cannot be used ({error}): check the disk and the permissions of run.state_dir. A restart replaces a "
        f"damaged journal; before it, wait until tiered_sidecar_pinned_deleted_bytes is 0"
    )


def _locked(directory: Path) -> int:
    """The descriptor that holds the state directory. Raises SettingsError, StagingFull."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        kind = StagingFull if _is_full(error) else SettingsError
        raise kind(
            f"{directory}: the state directory cannot be written ({error.strerror}): set run.state_dir to one that can"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise SettingsError(
            f"{directory}: another tiered-sidecar process uses this state directory: wait for it, or give this one "
            f"its own run.state_dir"
        ) from error
    return descriptor


def sound_database(name: str, pragmas: Sequence[str], schema: str, version: int | None = None) -> sqlite3.Connection:
    """A database with this schema, for any thread, each statement a transaction.

    `version`: the `user_version` that existing tables must have, None for any. Raises DatabaseError for others, and for damage,
    also such as SQLite would find only when it comes across it.
    """
    with ExitStack() as unless_sound:
        connection = sqlite3.connect(name, isolation_level=None, check_same_thread=False)
        unless_sound.callback(connection.close)
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if version is not None and tables and found != version:
            raise sqlite3.DatabaseError(f"written in version {found}, this program uses version {version}")
        connection.executescript(schema)
        (finding,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if finding != "ok":
            damage = sqlite3.DatabaseError(finding)
            damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise damage
        unless_sound.pop_all()
    return connection


class HasJournal(Protocol):
    @property
    def journal(self) -> Journal: ...
