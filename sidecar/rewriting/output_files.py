"""Files that we write: flushed to the disk before they count, and a full disk told as such."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from sidecar.errors import PartitionError, SegmentChanged, StagingFull

_STEP_BYTES: Final = 4 * 1024 * 1024
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def cannot_be_written(path: Path) -> Iterator[None]:
    """Errors of the system become StagingFull, with what the system says."""
    try:
        yield
    except OSError as error:
        remedy = "free some space there" if error.errno in _NO_ROOM else "make it a place that we may write to"
        raise StagingFull(f"{path}: cannot be written: {error.strerror}; {remedy}, or name another place") from error


def write_file(
    path: Path, pieces: Iterable[bytes | memoryview], *, mtime_ns: int | None = None, synced: bool = True
) -> None:
    """A whole file, on the disk when this returns, or with `sync_file` later. Raises StagingFull."""
    with cannot_be_written(path), path.open("wb", buffering=0) as file:
        for piece in pieces:
            write_all(file, piece)
        if synced:
            os.fsync(file.fileno())
        if mtime_ns is not None:
            os.utime(file.fileno(), ns=(mtime_ns, mtime_ns))


def write_all(file: IO[bytes], piece: bytes | memoryview) -> None:
    """All bytes to an unbuffered file, which may take fewer at a time."""
    rest = memoryview(piece).cast("B")
    while len(rest):
        rest = rest[file.write(rest) :]


def bytes_of(path: Path, size_bytes: int | None = None) -> Iterator[memoryview]:
    """The first so many bytes of a file, all by default. Raises SegmentChanged if it has fewer, PartitionError."""
    buffer = memoryview(bytearray(_STEP_BYTES))
    try:
        with path.open("rb", buffering=0) as file:
            left = os.fstat(file.fileno()).st_size if size_bytes is None else size_bytes
            while left:
                count = file.readinto(buffer[: min(left, len(buffer))])
                if not count:
                    raise SegmentChanged(f"{path}: became shorter while it was copied; look again")
                left -= count
                yield buffer[:count]
    except FileNotFoundError as error:
        raise SegmentChanged(f"{path}: vanished while it was copied; look again") from error
    except OSError as error:
        raise PartitionError(f"{path}: cannot be read: {error.strerror}") from error


def sync_file(path: Path) -> None:
    """Have on the disk what was written before. Raises StagingFull."""
    with cannot_be_written(path), path.open("rb", buffering=0) as file:
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Have the names in a directory on the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
