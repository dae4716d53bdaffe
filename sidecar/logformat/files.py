"""Files of a log dir: opened late or without waiting (a named pipe would keep its reader for ever), read and written in place."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from sidecar.errors import PartitionError, SegmentChanged, SidecarError, StagingFull
from sidecar.logformat.names import live_partition
from sidecar.model import TopicPartition

SMALL_FILE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of a file that is read whole: indexes and checkpoints of a broker are smaller."""

_TOO_LARGE: Final = f"larger than {SMALL_FILE_BYTES_MAX} bytes, too large for a file of this name; move it away"
_WHAT: Final = "a pipe, device or socket, not a regular file; move it out of the broker's directory"

_LINK: Final = "a symbolic link; a segment's files must be regular files: move the file itself here"
_VANISHED: Final = "vanished while it was read"

SETTLED_MS: Final = 2_000
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def fill(read_at: Callable[[int, memoryview], int], position: int, buffer: memoryview) -> int:
    """How many bytes of the buffer hold the file's bytes from `position` on: all, unless the file ends before."""
    filled = 0
    while filled < len(buffer) and (count := read_at(position + filled, buffer[filled:])):
        filled += count
    return filled


def write_all(descriptor: int, position: int, content: bytes | bytearray | memoryview) -> None:
    """Write all of the bytes there; the system may take fewer at a time. Raises OSError."""
    rest = memoryview(content).cast("B")
    while len(rest):
        count = os.pwrite(descriptor, rest, position)
        position, rest = position + count, rest[count:]


@contextmanager
def reading(path: Path | str, vanished: str = "vanished; run again") -> Iterator[None]:
    """Errors of the operating system become ours. Raises SegmentChanged, whose text says `vanished`, and PartitionError."""
    try:
        yield
    except FileNotFoundError as error:
        raise SegmentChanged(f"{path}: {vanished}") from error
    except OSError as error:
        raise PartitionError(f"{path}: cannot be read: {error.strerror or error}") from error


@contextmanager
def cannot_be_written(path: Path, unless_full: type[SidecarError] = StagingFull) -> Iterator[None]:
    """Errors of the system become StagingFull, or `unless_full` where the disk is not full, with what the system says."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in _NO_ROOM
        remedy = "free some space there" if is_full else "make it writable"
        kind = StagingFull if is_full else unless_full
        raise kind(f"{path}: cannot be written: {error.strerror}; {remedy}, or name another place") from error


def is_there(path: Path) -> bool:
    """Whether a path leads to something. Raises PartitionError if that cannot be seen."""
    with reading(path):
        return path.exists()


def live_partitions(log_dir: Path) -> frozenset[TopicPartition]:
    """Those with a directory in a log dir that is not being moved or deleted. Raises OSError."""
    with os.scandir(log_dir) as entries:
        return frozenset(found for entry in entries if (found := live_partition(entry.name)))


def topics_of(log_dirs: Iterable[Path]) -> frozenset[str]:
    """The topics of all live partitions in these log dirs; a log dir that cannot be listed has none."""
    found: set[TopicPartition] = set()
    for log_dir in log_dirs:
        with suppress(OSError):
            found |= live_partitions(log_dir)
    return frozenset(each.topic for each in found)


class FileStamp(NamedTuple):
    """What changes when a file or directory is written, or replaced: by a rename, or behind a symbolic link."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int

    def is_settled(self, now_ms: int) -> bool:
        """Whether it identifies the content: two versions within one tick of the kernel's clock may have the same one."""
        return 0 <= self.mtime_ns // 1_000_000 < now_ms - SETTLED_MS


def stamp_of(path: Path) -> FileStamp | None:
    """The stamp of what a path leads to; None where that cannot be seen: who opens it learns why."""
    try:
        found = path.stat()
    except OSError:
        return None
    return FileStamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def open_regular(path: Path, flags: int = 0) -> int:
    """A read-only descriptor, the caller's to close. Raises OSError, whose `strerror` says so for what is not a regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    except OSError as error:
        if error.errno in {errno.ENXIO, errno.ENODEV}:  # A socket, or a device that is not there.
            raise OSError(errno.EINVAL, _WHAT, str(path)) from error
        if error.errno == errno.ELOOP and path.is_symlink():
            raise OSError(errno.EINVAL, _LINK, str(path)) from error
        raise
    try:
        _require_regular(descriptor, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(descriptor: int, path: Path) -> None:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, _WHAT, str(path))


def read_regular(path: Path, limit_bytes: int = -1) -> bytes:
    """The content, or as many bytes of it.

    Raises OSError as `open_regular` does, and without a limit for a file above SMALL_FILE_BYTES_MAX.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        if limit_bytes < 0 and os.fstat(file.fileno()).st_size > SMALL_FILE_BYTES_MAX:
            raise OSError(errno.EFBIG, _TOO_LARGE, str(path))
        return file.read(limit_bytes)


class LazyFile:
    """A file as `ReadAt` that is opened by its first read, so that a scan that is never begun holds no descriptor.

    `kernels_reading` reads it without calling back into Python.
    """

    start_position: Final = 0

    def __init__(self, path: Path) -> None:
        """Raises SegmentChanged if there is no such file."""
        self._path = path
        self._descriptor: int | None = None
        with reading(path, _VANISHED):
            self.size_bytes = path.stat().st_size

    @property
    def descriptor(self) -> int:
        """Open until `close`. Raises SegmentChanged or PartitionError."""
        if self._descriptor is None:
            with reading(self._path, _VANISHED):
                self._descriptor = open_regular(self._path)
        return self._descriptor

    def __call__(self, position: int, buffer: memoryview) -> int:
        """See `ReadAt`. Raises SegmentChanged or PartitionError."""
        with reading(self._path, _VANISHED):
            return os.preadv(self.descriptor, [buffer], position)

    def close(self) -> None:
        """Close the descriptor; the next read opens the file again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class PositionalFile:
    """A descriptor as `ReadAt`; the caller owns it. `kernels_reading` reads such a file without calling back into Python.

    Byte 0 for its callers is byte `start_position` of the file.
    """

    __slots__ = ("descriptor", "start_position")

    def __init__(self, descriptor: int, start_position: int = 0) -> None:
        self.descriptor = descriptor
        self.start_position = start_position

    def __call__(self, position: int, buffer: memoryview) -> int:
        """See `ReadAt`. Raises OSError."""
        return os.preadv(self.descriptor, [buffer], self.start_position + position)
