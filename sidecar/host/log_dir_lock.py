"""Keeps brokers away from a log dir while we write into it, by Kafka's own lock."""

import fcntl
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from sidecar.errors import SidecarError
from sidecar.logformat.files import open_regular
from sidecar.logformat.names import CLEAN_SHUTDOWN, LOCK, META_PROPERTIES, parse_directory_name


class LogDirRefused(SidecarError):
    """A log dir in which nothing may be written now; the message says what to do."""


class LogDirLock:
    """Holds `.lock` of one log dir as a broker does: a context manager. A broker that is started meanwhile refuses to start.

    The lock is a POSIX record lock, as Java's FileChannel.tryLock takes it, so that the kernel ends it with our process.
    Trap: closing any descriptor of the file in this process ends it too.
    Source: LogManager.lockLogDirs, kafka.utils.FileLock.
    """

    def __init__(self, log_dir: Path, *, read_only: bool = False, after_crash_too: bool = False) -> None:
        """Args:
        read_only: nothing will be written; see that no broker runs, and do not hinder one from starting.
        after_crash_too: also where no broker has shut down cleanly, or none has ever run: for who touches no log there.
        """
        self._log_dir = log_dir
        self._path = log_dir / LOCK
        self._read_only = read_only
        self._after_crash_too = after_crash_too
        self._descriptor: int | None = None
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        """Raises LogDirRefused."""
        with self._resources:
            self._take()
            self._require_clean_shutdown()
            self._resources = self._resources.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._resources.close()
        self._descriptor = None

    def require_held(self) -> None:
        """Raise LogDirRefused if the lock no longer keeps brokers away: its file was removed, or the broker's mark is gone."""
        if self._read_only:
            return
        if self._descriptor is None:
            raise RuntimeError(f"{self._path} is not locked")
        try:
            present, ours = self._path.stat(), os.fstat(self._descriptor)
            same = (present.st_dev, present.st_ino) == (ours.st_dev, ours.st_ino)
        except OSError:
            same = False
        if not same or not (self._after_crash_too or (self._log_dir / CLEAN_SHUTDOWN).exists()):
            raise LogDirRefused(
                f"{self._log_dir}: its lock file was replaced or a broker has started meanwhile; nothing more is "
                "written, and completed work stays. Stop the broker and run again"
            )

    def _take(self) -> None:
        descriptor = self._opened()
        if descriptor is None:
            return
        self._resources.callback(os.close, descriptor)
        kind = fcntl.LOCK_SH if self._read_only else fcntl.LOCK_EX
        try:
            fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise LogDirRefused(
                f"{self._log_dir}: a broker, or another run of this command, is using it ({LOCK} is locked); stop "
                "the broker, wait until it has ended, and run again"
            ) from error
        except OSError as error:
            raise LogDirRefused(
                f"{self._path}: cannot be locked ({error.strerror}), so it is unknown whether a broker is running. "
                "Run this command on the broker's machine and file system"
            ) from error
        if self._read_only:
            fcntl.lockf(descriptor, fcntl.LOCK_UN)
        self._descriptor = descriptor

    def _opened(self) -> int | None:
        """A descriptor of the lock file, None where there is none and none is needed."""
        try:
            return open_regular(self._path) if self._read_only else os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None if self._read_only else self._made()
        except OSError as error:
            raise self._unusable(error) from error

    def _made(self) -> int:
        """A lock file where there is none, as in a copy. It stays, as a broker's does.

        Removed, it would part two processes: one that had opened it before holds a lock on a file without a name, and the
        next one makes and locks another.
        """
        self._require_clean_shutdown()
        try:
            owner = self._log_dir.stat()
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._unusable(error) from error
        if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()) and os.geteuid() == 0:
            self._give_to(owner, descriptor)
        return descriptor

    def _give_to(self, owner: os.stat_result, descriptor: int) -> None:
        """Root's new lock file becomes the log dir's owner's; where it cannot, it goes, for no broker could open it."""
        try:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        except OSError as error:
            with ExitStack() as closing, suppress(OSError):
                closing.callback(os.close, descriptor)
                # Who has opened it meanwhile finds it locked; if it is another's that holds it, it stays.
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._path.unlink()
            raise LogDirRefused(
                f"{self._path}: cannot be given to the owner of {self._log_dir}, user {owner.st_uid} and group "
                f"{owner.st_gid} ({error.strerror}), so the broker could not open it. Run as the broker's user, or "
                "as root with permission to change owners (capability CAP_CHOWN; on NFS without root_squash)"
            ) from error

    def _unusable(self, error: OSError) -> LogDirRefused:
        return LogDirRefused(
            f"{self._path}: cannot be opened for writing ({error.strerror}); run as the broker's user (or root), with the "
            f"log directory mounted read-write"
        )

    def _require_clean_shutdown(self) -> None:
        if not self._log_dir.is_dir():
            raise LogDirRefused(f"{self._log_dir}: no such directory")
        if self._after_crash_too or self._is_without_partition() or (self._log_dir / CLEAN_SHUTDOWN).exists():
            return
        raise LogDirRefused(
            f"{self._log_dir}: the last broker here did not shut down cleanly ({CLEAN_SHUTDOWN} is missing), so the end of "
            f"its logs may be damaged and will be cut at the next start. Start the broker (for an upgrade: the old version), "
            f"let it recover, stop it cleanly, and run again"
        )

    def _is_without_partition(self) -> bool:
        """Whether no log is there that a start could cut. Raises LogDirRefused if nothing shows that it is a log dir."""
        try:
            if any(parse_directory_name(entry.name) for entry in self._log_dir.iterdir()):
                return False
        except PermissionError:
            return False
        if not (self._log_dir / META_PROPERTIES).exists():
            raise LogDirRefused(
                f"{self._log_dir}: it has neither a partition nor {META_PROPERTIES}: not a Kafka log directory, or one of a "
                f"broker that has not started yet; take the path from the broker's log.dirs"
            )
        return True
