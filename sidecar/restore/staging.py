"""A partition's directory while it is written: next to its final place, under a name with which a broker refuses to start.

Every file is written under a temporary name, synced, and renamed; what has its name is whole. So a run that was killed goes
on where it was, and a broker cannot start from half a partition.
"""

import errno
import os
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Final

from sidecar.errors import PartitionError, StagingFull
from sidecar.host.page_cache import begin_write_out
from sidecar.host.placing import sync_directory
from sidecar.logformat.files import PositionalFile, fill, write_all
from sidecar.logformat.metadata_files import write_partition_metadata
from sidecar.logformat.names import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    STAGING_SUFFIX,
    directory_name,
    parse_directory_name,
    parse_file_name,
)
from sidecar.model import TopicPartition
from sidecar.ports import MIB
from sidecar.segment import dropped_producers

TEMPORARY_SUFFIX: Final = ".part"
NOTE_SUFFIX: Final = ".note"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NAME_MAX_BYTES: Final = 255
_WRITE_OUT_BYTES: Final = 16 * MIB
_HASH_DIGITS: Final = 16


def name_with_topic(prefix: str, topic: str, suffix: str) -> str:
    """The three as one file name. A topic for which it would be too long is cut, and a hash of the whole topic follows.

    A cut topic has only characters of topics, so a broker takes the name as it would take the whole one.
    """
    room_bytes = _NAME_MAX_BYTES - len(prefix) - len(suffix)
    if len(topic) > room_bytes:
        digits = sha256(topic.encode()).hexdigest()[:_HASH_DIGITS]
        topic = f"{topic[: room_bytes - len(digits) - 1]}.{digits}"
    return f"{prefix}{topic}{suffix}"


def staging_name(topic_partition: TopicPartition) -> str:
    """The name of the partition's staging directory. What follows its last '-' is no number: no broker starts with it."""
    return name_with_topic("", topic_partition.topic, f"-{topic_partition.partition}{STAGING_SUFFIX}")


@contextmanager
def translating(path: Path) -> Iterator[None]:
    """Errors of the operating system become ours. Raises StagingFull, PartitionError."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StagingFull(
                f"{path}: no space left on the disk, or the quota is used up: free space and run the same command "
                "again. It does not fetch complete files again"
            ) from error
        advice = str(error.strerror)
        if isinstance(error, PermissionError):
            advice = "run as the broker's user, or as root"
            if os.geteuid() == 0:
                advice += " with permission to change owners (capability CAP_CHOWN; on NFS without root_squash)"
        raise PartitionError(f"{path}: cannot be written: {advice}") from error


@dataclass(slots=True)
class NewFile:
    """A file that is being written. `path`: the name that it gets in the end; may be changed until then."""

    descriptor: int
    path: Path
    _size_bytes: int = 0
    _begun_bytes: int = 0

    def write(self, content: bytes | memoryview) -> None:
        """Append. Raises as `translating` does."""
        self.write_at(self._size_bytes, content)
        self._size_bytes += len(content)
        if (more_bytes := self._size_bytes - self._begun_bytes) >= _WRITE_OUT_BYTES:
            begin_write_out(self.descriptor, self._begun_bytes, more_bytes)
            self._begun_bytes = self._size_bytes

    def write_at(self, position: int, content: bytes | bytearray | memoryview) -> None:
        """Write all of it there. Raises as `translating` does."""
        with translating(self.path):
            write_all(self.descriptor, position, content)

    def read_at(self, position: int, size_bytes: int) -> bytearray:
        """Exactly these bytes. Raises PartitionError where the file has fewer, and as `translating` does."""
        buffer = bytearray(size_bytes)
        with translating(self.path):
            filled = fill(PositionalFile(self.descriptor), position, memoryview(buffer))
        if filled < size_bytes:
            raise PartitionError(
                f"{self.path}: ends at byte {position + filled}, expected {position + size_bytes} bytes at "
                "least: another process truncated it while it was written. Run the same command again"
            )
        return buffer


@contextmanager
def new_file(path: Path, owner: tuple[int, int] | None) -> Iterator[NewFile]:
    """A file, readable too, that gets its name when the block ends without an error.

    Args:
        owner: user and group; None: as they come.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    with translating(path):
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    file = NewFile(descriptor, path)
    with ExitStack() as closing, ExitStack() as undoing:
        closing.callback(os.close, descriptor)
        undoing.callback(_discard, temporary)
        yield file
        with translating(path):
            if owner is not None:
                os.fchown(descriptor, *owner)
            os.fsync(descriptor)
            temporary.rename(file.path)
        undoing.pop_all()


def _discard(temporary: Path) -> None:
    # The cause of the failure is reported; a file that cannot be removed does no harm.
    with suppress(OSError):
        temporary.unlink()


def owner_for(directory: Path) -> tuple[int, int] | None:
    """Whom new files below a directory must be given to, None where they are its owner's as they come."""
    status = directory.stat()
    owner = (status.st_uid, status.st_gid)
    return owner if os.geteuid() == 0 and owner != (os.geteuid(), os.getegid()) else None


class StagedPartition:
    """One partition's staging directory. `directory` while it is made, `final` when it is done."""

    def __init__(self, log_dir: Path, topic_partition: TopicPartition) -> None:
        self.final = log_dir / directory_name(topic_partition)
        self.directory = log_dir / staging_name(topic_partition)

    @cached_property
    def _owner(self) -> tuple[int, int] | None:
        return owner_for(self.final.parent)

    def hold(self) -> None:
        """Create the directory if it does not exist: no broker starts while it is there. Raises StagingFull, PartitionError."""
        with translating(self.directory), ExitStack() as undoing:
            if not self.directory.is_dir():
                self.directory.mkdir()
                undoing.callback(self.directory.rmdir)
            if self._owner is not None:
                os.chown(self.directory, *self._owner)
            undoing.pop_all()

    def begin(self, kept: frozenset[str], topic_id: str | None) -> None:
        """Go on in the directory with those of its files that are kept.

        Args:
            topic_id: for `partition.metadata`, None for none. It is written first: the empty log that may have named
                the id is gone before this directory takes its place.

        Raises StagingFull, PartitionError.
        """
        self._clear(kept | ({PARTITION_METADATA} if topic_id is not None else set()))
        if topic_id is not None:
            self.place(PARTITION_METADATA, write_partition_metadata(topic_id))
        sync_directory(self.directory)
        sync_directory(self.directory.parent)

    def _clear(self, kept: frozenset[str]) -> None:
        with translating(self.directory):
            for path in self.directory.iterdir():
                if path.name in kept:
                    continue
                if not is_own_file(path.name):
                    raise PartitionError(
                        f"{path}: not a file of a restore, but {self.directory} is only for those. Move it away"
                    )
                path.unlink()

    def place(self, name: str, content: bytes) -> None:
        """Create or replace a small file. Raises StagingFull, PartitionError."""
        with self.incoming(name) as file:
            file.write(content)

    def incoming(self, name: str) -> AbstractContextManager[NewFile]:
        return new_file(self.directory / name, self._owner)

    def sizes(self) -> dict[str, int]:
        with translating(self.directory):
            return {path.name: path.stat().st_size for path in self.directory.iterdir()}

    def remove(self, names: frozenset[str]) -> None:
        with translating(self.directory):
            for name in names:
                (self.directory / name).unlink(missing_ok=True)

    def files(self) -> dict[str, int]:
        """Sizes in bytes, by name, of what stays when the directory has its final name, without notes."""
        return {name: size_bytes for name, size_bytes in self.sizes().items() if not name.endswith(NOTE_SUFFIX)}

    def swap_in(self) -> None:
        """Give the directory its final name, in place of the empty log that may be there. Raises PartitionError."""
        sync_directory(self.directory)
        with translating(self.final):
            if self.final.exists():
                for path in self.final.iterdir():
                    path.unlink()
            self.directory.rename(self.final)
        sync_directory(self.final.parent)

    @property
    def directory_id(self) -> int:
        """The inode, which the directory keeps when it gets its final name."""
        with translating(self.directory):
            return self.directory.stat().st_ino


def forget(directory: Path) -> None:
    """Remove the notes from a final directory. Raises PartitionError."""
    with translating(directory):
        for path in directory.glob(f"*{NOTE_SUFFIX}"):
            path.unlink()
    sync_directory(directory)


def unfinished(log_dir: Path, topic: str) -> dict[str, TopicPartition]:
    """The topic's staging directories, by name. Raises PartitionError."""
    with translating(log_dir):
        names = sorted(path.name for path in log_dir.glob(f"*{STAGING_SUFFIX}"))
    found = {name: staged_partition(name, topic) for name in names}
    return {name: partition for name, partition in found.items() if partition is not None}


def staged_partition(name: str, topic: str) -> TopicPartition | None:
    """The partition of the topic whose staging directory has this name, None if it is of none."""
    parsed = parse_directory_name(name.removesuffix(STAGING_SUFFIX))
    if parsed is None:
        return None
    partition = TopicPartition(topic, parsed.topic_partition.partition)
    return partition if staging_name(partition) == name else None


def what_stays(log_dir: Path, names: Collection[str]) -> str:
    """What these staging directories mean for the broker, and what to do."""
    return (
        f"{', '.join(names)} in {log_dir} {('stay' if len(names) > 1 else 'stays')}, and no broker starts in a log dir with "
        "unfinished directories. Run the same command again to continue, or remove the named directories"
    )


def is_own_file(name: str) -> bool:
    """Whether a restore writes files of this name into a staging directory."""
    whole = name.removesuffix(TEMPORARY_SUFFIX)
    return (
        parse_file_name(whole) is not None
        or whole in {LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, dropped_producers.NAME}
        or whole.endswith(NOTE_SUFFIX)
    )
