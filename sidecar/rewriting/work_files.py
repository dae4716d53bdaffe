"""Files that compactions write: flushed to the disk before they count, a full disk reported as such; where they and parts lie."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, ClassVar, Final, Protocol

from sidecar.errors import SegmentChanged
from sidecar.logformat.files import cannot_be_written, open_regular, reading, stamp_of, write_all

_STEP_BYTES: Final = 4 * 1024 * 1024


def write_file(
    path: Path, pieces: Iterable[bytes | memoryview], *, mtime_ns: int | None = None, synced: bool = True
) -> None:
    """A whole file, on the disk when this returns, or with `sync_file` later. Raises StagingFull."""
    with cannot_be_written(path), path.open("wb", buffering=0) as file:
        written = WorkFile(path, file)
        for piece in pieces:
            written.write(piece)
        if synced:
            os.fsync(file.fileno())
        if mtime_ns is not None:
            os.utime(file.fileno(), ns=(mtime_ns, mtime_ns))


@dataclass(slots=True)
class WorkFile:
    """An unbuffered file that grows. `place`: what an error names."""

    place: Path
    file: IO[bytes]
    size_bytes: int = 0

    def write(self, piece: bytes | memoryview) -> None:
        """Append all of its bytes. Raises StagingFull."""
        self.write_at(self.size_bytes, piece)
        self.size_bytes += memoryview(piece).nbytes

    def write_at(self, position: int, piece: bytes | memoryview) -> None:
        """All of its bytes at a position; from several threads at once. `size_bytes` does not follow. Raises StagingFull."""
        with cannot_be_written(self.place):
            write_all(self.file.fileno(), position, piece)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """What was written there. Raises StagingFull for a disk that does not give it back."""
        with cannot_be_written(self.place):
            found = os.pread(self.file.fileno(), size_bytes, position)
            if len(found) != size_bytes:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return found


@contextmanager
def named_when_whole(path: Path) -> Iterator[WorkFile]:
    """A file that has its name when the context has ended without an error, and is gone otherwise. Raises StagingFull."""
    with cannot_be_written(path):
        descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "w+b", buffering=0) as file:  # noqa: PTH123  a descriptor, not a path
            yield WorkFile(path, file)
        with cannot_be_written(path):
            Path(name).replace(path)
    finally:
        # Without an error it has another name by now.
        Path(name).unlink(missing_ok=True)


@contextmanager
def nameless_file(place: Path) -> Iterator[WorkFile]:
    """A temporary file in a directory, gone afterwards. Raises StagingFull."""
    with cannot_be_written(place):
        file = tempfile.TemporaryFile(dir=place, buffering=0)  # noqa: SIM115  closed below
    with file:
        yield WorkFile(place, file)


def copy_file(path: Path, target: Path, size_bytes: int) -> None:
    """The first so many bytes of a file in a new one, with its time, on the disk when this returns.

    File systems that can share blocks copy none. Raises SegmentChanged if the file has fewer, PartitionError, StagingFull.
    """
    stamp = stamp_of(path)  # before: a broker may delete the file while its copy is synced
    with cannot_be_written(target), target.open("wb", buffering=0) as file:
        copied_bytes = _copied_by_kernel(path, file.fileno(), size_bytes)
        # What the kernel leaves: it cannot do so between all file systems, and this road says which side has failed.
        written = WorkFile(target, file, copied_bytes)
        for piece in bytes_of(path, size_bytes, begin=copied_bytes):
            written.write(piece)
        os.fsync(file.fileno())
        if stamp is not None:  # else the bytes could not be read either
            os.utime(file.fileno(), ns=(stamp.mtime_ns, stamp.mtime_ns))


def _copied_by_kernel(path: Path, target: int, size_bytes: int) -> int:
    """How many of the bytes are in the target now, which was empty."""
    copied_bytes = 0
    with suppress(OSError), os.fdopen(open_regular(path), "rb", buffering=0) as file:
        while copied_bytes < size_bytes:
            count = os.copy_file_range(file.fileno(), target, size_bytes - copied_bytes)
            if not count:
                break
            copied_bytes += count
    return copied_bytes


def bytes_of(path: Path, size_bytes: int | None = None, *, begin: int = 0) -> Iterator[memoryview]:
    """The first so many bytes of a file, all by default, from byte `begin` on.

    Raises SegmentChanged if it has fewer, PartitionError.
    """
    buffer = memoryview(bytearray(_STEP_BYTES))
    vanished = "vanished while it was copied; run again"
    with reading(path, vanished), os.fdopen(open_regular(path), "rb", buffering=0) as file:
        left = (os.fstat(file.fileno()).st_size if size_bytes is None else size_bytes) - begin
        file.seek(begin)
        while left:
            count = file.readinto(buffer[: min(left, len(buffer))])
            if not count:
                raise SegmentChanged(f"{path}: became shorter while it was copied; run again")
            left -= count
            yield buffer[:count]


def free_bytes_of(directory: Path) -> int:
    """What may still be written to its file system. Raises StagingFull."""
    with cannot_be_written(directory):
        return shutil.disk_usage(directory).free


def sync_file(path: Path) -> None:
    """Have on the disk what was written before. Raises StagingFull."""
    with cannot_be_written(path), path.open("rb", buffering=0) as file:
        os.fsync(file.fileno())


class Parts(Protocol):
    """Parts by number, the number of a split in its run; goes through pickle.

    Tasks may run twice, and at the same time: a part is there when one of them has written all of it, and is never half one
    and half the other.
    """

    in_store: ClassVar[bool]
    """Whether writing a part is an upload."""

    def writing(self, number: int) -> AbstractContextManager[WorkFile]:
        """A part to be written, which is there when the context has ended without an error. Raises StagingFull, StoreError."""

    def pieces(self, number: int, size_bytes: int) -> Iterator[memoryview]:
        """The first bytes of a part in order; each piece is void when the next is asked for."""

    def forget_all(self) -> None:
        """Take away all that were written. Raises StoreError."""


@dataclass(frozen=True, slots=True)
class LocalParts:
    """Files in an existing directory that all tasks see."""

    in_store: ClassVar[bool] = False
    directory: Path

    def writing(self, number: int) -> AbstractContextManager[WorkFile]:
        return named_when_whole(self._path(number))

    def pieces(self, number: int, size_bytes: int) -> Iterator[memoryview]:
        return bytes_of(self._path(number), size_bytes)

    def forget(self, number: int) -> None:
        self._path(number).unlink()

    def forget_all(self) -> None:
        """See Parts. What cannot be removed now is with the directory."""
        for path in self.directory.glob("*.part"):
            with suppress(OSError):
                path.unlink()

    def _path(self, number: int) -> Path:
        return self.directory / f"{number:08d}.part"
