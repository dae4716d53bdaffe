"""Open source files: the bytes that were listed, even when the broker unlinks them meanwhile."""

import errno
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from sidecar.discovery.partition_directory import list_log_bases, read_partition_directory
from sidecar.errors import PartitionError, SegmentChanged, TooManyOpenFiles
from sidecar.logformat.files import PositionalFile, fill, is_there, open_regular, reading
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles
from sidecar.ports import OpenFiles
from sidecar.storage.source import FileSource

SMALL_FILE_BYTES_MAX = 64 * 1024 * 1024
"""An index has 10 MiB by default even when it was never trimmed; a snapshot of a million producers has 46 MB."""


def identity_of(path: Path, status: os.stat_result) -> FileIdentity:
    return FileIdentity.of(path.parent, path.name, status)


def open_listed(file: FileIdentity) -> int:
    """A read-only descriptor of the file that was listed.

    Raises SegmentChanged if it vanished, or another file has its name now; TooManyOpenFiles; PartitionError if it may not be read.
    """
    try:
        descriptor = open_regular(file.path, os.O_NOFOLLOW)
    except FileNotFoundError as error:
        raise SegmentChanged(
            f"{file.path}: vanished between listing and reading; the next scan lists it again"
        ) from error
    except OSError as error:
        _require_room(file, error)
        if error.errno == errno.EINVAL:  # What is no regular file: the text has the advice.
            raise PartitionError(f"{file.path}: {error.strerror}") from error
        raise PartitionError(
            f"{file.path}: cannot be read ({error.strerror}): run as the broker's user or a member of its group"
        ) from error
    return require_listed(BrokerFiles(), file, descriptor)


def require_listed(files: OpenFiles, file: FileIdentity, descriptor: int) -> int:
    """The descriptor, if its file is the one that was listed. Else closes it, and raises SegmentChanged or PartitionError."""
    is_listed = False
    try:
        is_listed = files.identity(file, descriptor) == file
    finally:
        if not is_listed:
            files.close(descriptor)
    if not is_listed:
        raise SegmentChanged(f"{file.path}: changed between listing and reading; the next scan lists it again")
    return descriptor


def _require_room(file: FileIdentity, error: OSError) -> None:
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        raise TooManyOpenFiles(f"{file.path}: cannot be opened ({error.strerror})") from error


@contextmanager
def opened(file: FileIdentity) -> Iterator[int]:
    descriptor = open_listed(file)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class ListedFile(PositionalFile):
    """An open file that was listed, in whose errors it is named. The caller owns the descriptor."""

    __slots__ = ("_path",)

    def __init__(self, descriptor: int, file: FileIdentity, start_position: int = 0) -> None:
        """Args: start_position: where in the file the positions of reads begin."""
        super().__init__(descriptor, start_position)
        self._path = file.path

    def __call__(self, position: int, buffer: memoryview) -> int:
        """See `ReadAt`. Raises PartitionError for a failing disk."""
        try:
            return super().__call__(position, buffer)
        except OSError as error:
            raise PartitionError(
                f"{self._path}, at byte {position}: cannot be read ({error.strerror}): check the disk; the partition stops here"
            ) from error


def read_whole(file: FileIdentity | None, limit_bytes: int = SMALL_FILE_BYTES_MAX) -> bytes | None:
    """All bytes of a small file, None if there is none or if it is larger than any such file can rightly be.

    Raises SegmentChanged when it is not the one listed, PartitionError when it cannot be read.
    """
    if file is None or file.size_bytes > limit_bytes:
        return None
    content = bytearray(file.size_bytes + 1)
    with opened(file) as descriptor:
        filled = fill(ListedFile(descriptor, file), 0, memoryview(content))
    del content[filled:]
    if len(content) != file.size_bytes:
        raise SegmentChanged(f"{file.path}: {len(content)} bytes read where {file.size_bytes} were listed")
    return bytes(content)


def read_unless_deleted(
    file: FileIdentity | None, log: FileIdentity | None = None, limit_bytes: int = SMALL_FILE_BYTES_MAX
) -> bytes | None:
    """`read_whole`, but None too where the broker has deleted the file.

    `log`: the broker deletes the file with this one only, whose bytes an open descriptor still has.
    """
    try:
        return read_whole(file, limit_bytes)
    except SegmentChanged:
        if any(is_there(found.path) for found in (file, log) if found is not None):
            raise
        return None


def listed_anew(files: PartitionFiles) -> PartitionFiles:
    """The partition as its directory is now. Raises SegmentChanged if that is another one, or PartitionError."""
    found = read_partition_directory(files.topic_partition, files.log_dir, files.directory)
    if found.directory_id != files.directory_id or found.topic_id not in {None, files.topic_id}:
        raise SegmentChanged(f"{files.directory}: was replaced since it was listed; the next scan lists it again")
    return replace(found, topic_id=files.topic_id)


def ensure_unchanged(segment: SegmentFiles, listed: PartitionFiles, now_ms: int) -> None:
    """Raise SegmentChanged unless the segment is still that part of the log that it was when it was listed.

    Its files must be the same, its end must still be the base of the next segment, and no segment may begin inside. Only
    retention is no change: it takes whole segments from the log's beginning while our descriptor still holds the bytes.
    """
    for file in segment.files:
        with reading(file.path):
            try:
                found = file.path.stat()
            except FileNotFoundError:
                now_ms = 0  # Some file systems do not change a directory's times for a rename: it is listed.
                continue
        if identity_of(file.path, found) != file:
            raise _changed(segment, f"{file.path} is another file or has grown or shrunk")
    directory_id, bases = list_log_bases(listed.directory, now_ms)
    if directory_id != listed.directory_id or not bases:
        raise _changed(segment, f"{listed.directory} is another directory, or has no log any more")
    log_start, last = bases[0], bases[-1]
    file_base_offset = int(segment.log.path.stem)
    if file_base_offset not in bases and log_start <= file_base_offset:
        raise _changed(segment, f"{segment.log.path} is gone, but the log still begins at {log_start}")
    if segment.end_offset not in bases and log_start <= segment.end_offset:
        raise _changed(segment, f"no segment begins at its end any more; the log has [{log_start}, {last}]")
    if inside := bases[bisect_right(bases, file_base_offset) : bisect_left(bases, segment.end_offset)]:
        raise _changed(segment, f"a segment now begins at {inside[0]}, inside it")


def _changed(segment: SegmentFiles, how: str) -> SegmentChanged:
    return SegmentChanged(
        f"{segment} changed while it was being archived: {how}. Nothing was committed; the next scan lists it again"
    )


class BrokerFiles:
    """Implements `sidecar.ports.OpenFiles`."""

    open = staticmethod(open_listed)
    close = staticmethod(os.close)

    def duplicate(self, file: FileIdentity, descriptor: int) -> int:
        try:
            return os.dup(descriptor)
        except OSError as error:
            _require_room(file, error)
            raise

    def identity(self, file: FileIdentity, descriptor: int) -> FileIdentity:
        with reading(file.path):
            return identity_of(file.path, os.fstat(descriptor))

    def is_unlinked(self, file: FileIdentity, descriptor: int) -> bool:
        with reading(file.path):
            return os.fstat(descriptor).st_nlink == 0

    def has_its_name(self, file: FileIdentity) -> bool:
        with suppress(OSError):
            try:
                return file.path.stat().st_ino == file.inode
            except FileNotFoundError:
                return not file.directory.is_dir()
        return True

    def free_share(self, freed_bytes: int, file: FileIdentity, descriptor: int) -> float:
        with reading(file.path):
            found = os.fstatvfs(descriptor)
        return (found.f_bavail + freed_bytes / found.f_frsize) / max(1, found.f_blocks)

    def source(self, descriptor: int, size_bytes: int, name: str, start_position: int = 0) -> FileSource:
        return FileSource(descriptor, size_bytes, name, start_position)
