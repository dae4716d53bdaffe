"""What an error of the operating system means for a store, for directories and other fsspec file systems."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from sidecar.errors import (
    ObjectExists,
    ObjectMissing,
    SidecarError,
    StoreDenied,
    StoreError,
    StoreUnavailable,
    StoreUnsafe,
)

_READING = {"open", "read", "stat", "list"}
_READ_RIGHTS = "give this process's user permission to read there"
_WRITE_RIGHTS = "give this process's user permission to read and write there"

_ADVICE: dict[int, tuple[type[SidecarError], str]] = {
    errno.EEXIST: (ObjectExists, "the key exists already"),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), (ObjectMissing, "no such object")),
    **dict.fromkeys((errno.EACCES, errno.EPERM), (StoreDenied, _WRITE_RIGHTS)),
    errno.EROFS: (StoreDenied, "mount it read-write"),
    errno.ENOSPC: (
        StoreUnavailable,
        "no part of the object was kept. Free space on the archive's file system",
    ),
    errno.EDQUOT: (
        StoreUnavailable,
        "the disk quota is used up; no part of the object was kept. Raise it, or free space",
    ),
    errno.EFBIG: (
        StoreUnavailable,
        "the file is larger than the file system or the process's limit (ulimit -f) allows",
    ),
    errno.ENAMETOOLONG: (
        StoreError,
        "the name is too long for this file system; use a shorter store.url, or another file system",
    ),
    errno.ESTALE: (StoreUnavailable, "the network file system lost this directory; check its mount"),
    errno.EIO: (StoreUnavailable, "the device failed; check the system log"),
    errno.EMFILE: (StoreUnavailable, "too many open files; raise the limit (ulimit -n)"),
    errno.ENFILE: (StoreUnavailable, "too many open files on this machine; raise its limit (sysctl fs.file-max)"),
    **dict.fromkeys(
        (errno.ENOTSUP, errno.EMLINK),
        (
            StoreUnsafe,
            "the file system has no hard links, which atomic creation needs; use another one, or an object store",
        ),
    ),
}


@contextmanager
def translating_os_errors(operation: str, key: str, where: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise os_error(error, operation, key, where) from error


def os_error(
    error: OSError, operation: str, key: str, where: str, otherwise: type[SidecarError] = StoreUnavailable
) -> SidecarError:
    """Our error for one of the operating system's (or of an fsspec file system that raises like it).

    `otherwise`: for what the table does not know, such as a lost connection.
    """
    kind, advice = _ADVICE.get(_number(error), (otherwise, "see the file system's messages"))
    if advice == _WRITE_RIGHTS and operation in _READING:
        advice = _READ_RIGHTS
    return kind(f"{operation} {key or '/'} at {where}: {error.strerror or error or type(error).__name__}; {advice}")


def _number(error: OSError) -> int:
    """The error's number; file systems in Python often raise the class alone."""
    if error.errno is not None:
        return error.errno
    classes: tuple[tuple[type[OSError], int], ...] = (
        (FileExistsError, errno.EEXIST),
        (FileNotFoundError, errno.ENOENT),
        (NotADirectoryError, errno.ENOTDIR),
        (PermissionError, errno.EACCES),
    )
    return next((number for kind, number in classes if isinstance(error, kind)), 0)
