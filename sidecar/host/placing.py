"""Puts a snapshot into a broker's partition directory: whole or not at all, never over another file."""

import errno
import os
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import Final

from sidecar.errors import PartitionError
from sidecar.logformat.files import read_regular
from sidecar.storage import directory_store

TEMPORARY_SUFFIX: Final = ".heal.tmp"
EMPTY_SUFFIX: Final = ".empty"
CORRUPT_SUFFIX: Final = ".corrupt"
"""A broker takes no notice of names that end like these; after `.deleted` it would remove the file."""

_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def place_snapshot(path: Path, content: bytes, neighbour: Path, *, aside_suffix: str = "") -> None:
    """Create a file with the owner, group and mode of `neighbour`; the caller syncs the directory (`sync_directory`).

    `aside_suffix`: there is a file of that name; it is kept aside with this at the end of its name. "": there is none.

    Raises PartitionError: the disk is full or read-only, the owner cannot be set, or the file exists.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        # One left by a run that was killed; the lock proves that no run uses it.
        temporary.unlink(missing_ok=True)
        _write(temporary, content, neighbour)
        if aside_suffix:
            _keep_aside(path, aside_suffix)
            temporary.replace(path)
        else:
            _rename_without_overwriting(temporary, path)
    except OSError as error:
        raise _ours(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_leftovers(directory: Path) -> None:
    """Remove what a killed run left behind: files that never got their name. Raises PartitionError."""
    try:
        for path in directory.glob(f"*{TEMPORARY_SUFFIX}"):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise _ours(directory, error) from error


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable. Raises PartitionError."""
    try:
        directory_store.sync_directory(directory)
    except OSError as error:
        raise _ours(directory, error) from error


def _write(path: Path, content: bytes, neighbour: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        wanted, found = neighbour.stat(), os.fstat(descriptor)
        if (found.st_uid, found.st_gid) != (wanted.st_uid, wanted.st_gid):
            os.fchown(descriptor, wanted.st_uid, wanted.st_gid)
        os.fchmod(descriptor, wanted.st_mode & 0o7777)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename_without_overwriting(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without hard links. A check before is enough: no other process writes here under this lock.
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        temporary.rename(path)


def _keep_aside(path: Path, suffix: str) -> None:
    content = read_regular(path)
    names = chain([path.name + suffix], (f"{path.name}{suffix}.{number}" for number in count(1)))
    for aside in map(path.with_name, names):
        if not aside.exists():
            break
        if read_regular(aside) == content:
            return
    # Under its name only when it is whole: the next run takes what has that name for the file that was replaced.
    temporary = aside.with_name(aside.name + TEMPORARY_SUFFIX)
    temporary.unlink(missing_ok=True)
    _write(temporary, content, path)
    temporary.rename(aside)


def _ours(path: Path, error: OSError) -> PartitionError:
    advice = {
        errno.ENOSPC: "no space left on the disk: free space and run again",
        errno.EDQUOT: "the disk quota is used up: free space and run again",
        errno.EROFS: "the file system is mounted read-only: mount it read-write",
        errno.EEXIST: "exists already and was not changed. Run again",
    }
    denied = "run as the broker's user, or as root, so that the file gets the owner of its .log"
    what = advice.get(error.errno or 0) or (denied if isinstance(error, PermissionError) else str(error.strerror))
    return PartitionError(f"{path}: cannot be written: {what}")
