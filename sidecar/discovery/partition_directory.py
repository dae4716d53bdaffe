"""Reads one partition directory: its rolled segments and other files; and caches it between scans."""

import os
import stat
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from sidecar.clock import Clock
from sidecar.errors import PartitionError, SegmentChanged, SettingsError
from sidecar.logformat.files import FileStamp, read_regular, reading, stamp_of
from sidecar.logformat.metadata_files import read_partition_metadata
from sidecar.logformat.names import (
    META_PROPERTIES,
    PARTITION_METADATA,
    Suffix,
    file_name,
    is_swap,
    live_partition,
    parse_file_name,
)
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles, TopicPartition

_LISTINGS = 3
_METADATA_BYTES = 4096
LIST_EVERY_S: Final = 300.0
"""A listing is the truth: whatever the directory's times say, it is listed again this often."""


@dataclass(frozen=True, slots=True)
class _Listing:
    """Offsets by suffix. `unstable`: segments are being replaced, or files came and went while listing."""

    files: Mapping[Suffix, Set[int]] = field(default_factory=dict)
    has_metadata: bool = False
    unstable: bool = False
    directory_id: tuple[int, int] = (0, 0)

    @property
    def bases(self) -> list[int]:
        """Base offsets of all `.log` files, ascending."""
        return sorted(self.files.get(Suffix.LOG, ()))


def list_log_bases(directory: Path, now_ms: int) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Device and inode of a partition directory, and the base offsets of its `.log` files now, ascending.

    Raises SegmentChanged if the directory is gone, PartitionError.
    """
    with reading(directory, "vanished; the next scan lists it again"):
        stamp = stamp_of(directory)
        if stamp is None or not stamp.is_settled(now_ms):
            return _log_bases(directory)
        return _log_bases_at(directory, stamp, int(now_ms / 1000 / LIST_EVERY_S))


def _log_bases(directory: Path) -> tuple[tuple[int, int], tuple[int, ...]]:
    listing = _settled_listing(directory)
    return listing.directory_id, tuple(listing.bases)


@lru_cache(maxsize=16)
def _log_bases_at(directory: Path, _stamp: FileStamp, _period: int) -> tuple[tuple[int, int], tuple[int, ...]]:
    """As long as the stamp is the same: every commit asks, and to list 10,000 segments takes longer than to commit one."""
    return _log_bases(directory)


def read_partition_directory(topic_partition: TopicPartition, log_dir: Path, directory: Path) -> PartitionFiles:
    """What the directory holds now. Every base offset below the highest one is that of a rolled segment.

    Files that vanish meanwhile are left out. Raises SegmentChanged if the directory itself is gone, PartitionError if it
    or one of its files cannot be read, CorruptFile for a malformed `partition.metadata`.
    """
    try:
        listing = _settled_listing(directory)
        topic_id = _topic_id(directory / PARTITION_METADATA) if listing.has_metadata else None
        bases = listing.bases
        active_log = _identity(directory, bases[-1], Suffix.LOG) if bases else None
        segments = [_segment(topic_partition, log_dir, directory, listing, *span) for span in pairwise(bases)]
    except FileNotFoundError as error:
        raise SegmentChanged(f"{topic_partition}: {directory} vanished while it was listed") from error
    except OSError as error:
        raise PartitionError(
            f"{topic_partition}: {error.filename or directory} cannot be read: {error.strerror or error}"
        ) from error
    return PartitionFiles(
        topic_partition=topic_partition,
        log_dir=log_dir,
        directory=directory,
        topic_id=topic_id,
        segments=tuple(segment for segment in segments if segment is not None),
        active_base_offset=bases[-1] if bases else None,
        snapshot_offsets=tuple(sorted(listing.files.get(Suffix.SNAPSHOT, ()))),
        unstable=listing.unstable,
        directory_id=listing.directory_id,
        active_log=active_log,
    )


def named_partition(directory: Path) -> PartitionFiles:
    """What a directory holds. Raises SettingsError if it is no partition directory, PartitionError if it cannot be read."""
    path = directory.absolute()
    with reading(path):
        is_directory = path.is_dir()
    if not is_directory:
        raise SettingsError(f"{path}: no such directory; correct the path")
    topic_partition = live_partition(path.name)
    if topic_partition is None:
        raise SettingsError(f"{path}: expected a partition directory, <topic>-<number>; give a copy the broker's name")
    return read_partition_directory(topic_partition, path.parent, path)


def require_elsewhere(out: Path, directories: Iterable[Path]) -> None:
    """Raise SettingsError for an output directory in one of these, or in any broker's log dir."""
    path = out.resolve()
    for directory in directories:
        if path.is_relative_to(directory.resolve()):
            raise SettingsError(f"--out {out} is in {directory}: this command never writes to a broker's files")
    # A broker does not start with a directory in its log dir that is no partition's.
    if any((parent / META_PROPERTIES).exists() for parent in (path, *path.parents)):
        raise SettingsError(
            f"--out {out} is in a broker's log directory: write elsewhere, and move it there while the broker "
            "is stopped"
        )


def _settled_listing(directory: Path) -> _Listing:
    # A listing during renames may miss a file under both names; a segment missed in the middle would stretch the range of
    # the one before it. The directory's mtime changes with every rename, but kernels before 6.13 count it in ticks of some
    # milliseconds, and a cleaner needs no longer for all its renames: the next listing has what one has missed. Long listings may
    # both miss a file, which a cleaner renames twice: then the mtime changes. Source: LocalLog.replaceSegments.
    before, listing = directory.stat(), _list(directory)
    for _ in range(_LISTINGS - 1):
        again, after = _list(directory), directory.stat()
        directory_id = (after.st_dev, after.st_ino)
        if again == listing and (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino):
            return replace(again, directory_id=directory_id)
        before, listing = after, again
    return replace(listing, unstable=True, directory_id=directory_id)


def _list(directory: Path) -> _Listing:
    files: dict[Suffix, set[int]] = {}
    has_metadata = unstable = False
    with os.scandir(directory) as entries:
        for entry in entries:
            found = parse_file_name(entry.name)
            if found is not None:
                files.setdefault(found.suffix, set()).add(found.offset)
            elif entry.name == PARTITION_METADATA:
                has_metadata = True
            else:
                unstable = unstable or is_swap(entry.name)
    return _Listing(files, has_metadata, unstable)


def _segment(
    topic_partition: TopicPartition,
    log_dir: Path,
    directory: Path,
    listing: _Listing,
    base_offset: int,
    end_offset: int,
) -> SegmentFiles | None:
    def identity(suffix: Suffix, offset: int) -> FileIdentity | None:
        return _identity(directory, offset, suffix) if offset in listing.files.get(suffix, ()) else None

    log = identity(Suffix.LOG, base_offset)
    if log is None:
        # Deleted since the listing. The one before it keeps its end: that was the truth a moment ago.
        return None
    return SegmentFiles(
        topic_partition=topic_partition,
        log_dir=log_dir,
        base_offset=base_offset,
        end_offset=end_offset,
        log=log,
        offset_index=identity(Suffix.OFFSET_INDEX, base_offset),
        time_index=identity(Suffix.TIME_INDEX, base_offset),
        transaction_index=identity(Suffix.TRANSACTION_INDEX, base_offset),
        snapshot=identity(Suffix.SNAPSHOT, end_offset),
    )


def _identity(directory: Path, offset: int, suffix: Suffix) -> FileIdentity | None:
    name = file_name(offset, suffix)
    try:
        found = os.stat(os.path.join(directory, name))  # noqa: PTH116, PTH118 - a Path for each costs more
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise PartitionError(f"{directory / name} is not a regular file; move it out of the broker's directory")
    return FileIdentity.of(directory, name, found)


def _topic_id(path: Path) -> str | None:
    try:
        return read_partition_metadata(read_regular(path, _METADATA_BYTES), str(path))
    except FileNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class _Known:
    """`stamp`: of the directory before it was listed; None if that does not stand for its content."""

    stamp: FileStamp | None
    listed_s: float
    files: PartitionFiles


class ListingCache:
    """Reads partition directories like `read_partition_directory`, and remembers what cannot have changed.

    Files that come, go or are renamed change the mtime of their directory, and so do rolls, deletions, truncations, the
    cleaner's swaps and the checkpoints of leader epochs. Sizes and times are read again where files may still be written in
    place: of the active segment and the newest rolled one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[Path, _Known] = {}

    def read(self, topic_partition: TopicPartition, log_dir: Path, directory: Path) -> PartitionFiles:
        """See `read_partition_directory`, also for what it raises."""
        stamp = stamp_of(directory)
        known = self._known.get(directory)
        if (
            known is not None
            and stamp is not None
            and stamp == known.stamp
            and self._clock.monotonic_s() - known.listed_s < LIST_EVERY_S
        ):
            looked_at = _looked_at_again(known.files)
            if looked_at is not None:
                return looked_at
        files = read_partition_directory(topic_partition, log_dir, directory)
        if known is not None:
            files = _sharing(files, known.files)
        is_settled = stamp is not None and stamp.is_settled(self._clock.now_ms())
        believed = stamp if is_settled and not files.unstable else None
        self._known[directory] = _Known(believed, self._clock.monotonic_s(), files)
        return files

    def doubt(self, directories: Iterable[Path]) -> None:
        """A file in each of these was not what was listed: they are listed at the next read, also where nothing came or went."""
        for known in filter(None, map(self._known.get, directories)):
            self._known[known.files.directory] = replace(known, stamp=None)

    def keep_only(self, directories: Iterable[Path]) -> None:
        kept = set(directories)
        self._known = {directory: known for directory, known in self._known.items() if directory in kept}


def _sharing(files: PartitionFiles, known: PartitionFiles) -> PartitionFiles:
    """The same with the segments that were known already, as far as they are equal: two scans may be in memory at once."""
    before = {segment.base_offset: segment for segment in known.segments}
    segments = (before.get(segment.base_offset, segment) for segment in files.segments)
    shared = tuple(old if old == new else new for old, new in zip(segments, files.segments, strict=True))
    return known if (found := replace(files, segments=shared)) == known else found


def _looked_at_again(files: PartitionFiles) -> PartitionFiles | None:
    """The same with fresh sizes and times of what may be written in place.

    None where a file is not what it was, or cannot be read: listing the directory shows which.
    """
    try:
        active = None if files.active_log is None else _fresh(files.active_log)
        newest = tuple(map(_refreshed, files.segments[-1:]))
    except OSError:
        return None
    if active is files.active_log and (not newest or newest[0] is files.segments[-1]):
        return files
    return replace(files, active_log=active, segments=(*files.segments[:-1], *newest))


def _refreshed(segment: SegmentFiles) -> SegmentFiles:
    """The same object where none of its files has changed."""
    found = {file: _fresh(file) for file in segment.files}
    if all(fresh is file for file, fresh in found.items()):
        return segment
    return replace(
        segment,
        log=found[segment.log],
        offset_index=segment.offset_index and found[segment.offset_index],
        time_index=segment.time_index and found[segment.time_index],
        transaction_index=segment.transaction_index and found[segment.transaction_index],
        snapshot=segment.snapshot and found[segment.snapshot],
    )


def _fresh(file: FileIdentity) -> FileIdentity:
    """The file's identity now; the same object where it is what it was. Raises FileNotFoundError, also if it is no file now."""
    found = os.stat(os.path.join(file.directory, file.name))  # noqa: PTH116, PTH118 - a Path for each costs more
    if not stat.S_ISREG(found.st_mode):
        raise FileNotFoundError(file.path)
    if (found.st_ino, found.st_size, found.st_mtime_ns) == (file.inode, file.size_bytes, file.mtime_ns):
        return file
    return FileIdentity.of(file.directory, file.name, found)
