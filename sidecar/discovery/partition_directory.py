"""Reads one partition directory: its rolled segments and what else stands in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from sidecar.errors import PartitionError, SegmentChanged
from sidecar.logformat.names import PARTITION_METADATA, Suffix, is_in_flight, parse_file_name
from sidecar.logformat.partition_metadata import read_partition_metadata
from sidecar.logformat.regular_file import read_regular
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles, TopicPartition

_LISTINGS = 3
_METADATA_BYTES = 4096


@dataclass(frozen=True, slots=True)
class _Listing:
    """Entries by suffix and offset. `unstable`: a compaction is under way, or files came and went while listing."""

    files: Mapping[Suffix, Mapping[int, os.DirEntry[str]]] = field(default_factory=dict)
    has_metadata: bool = False
    unstable: bool = False
    directory_id: tuple[int, int] = (0, 0)

    @property
    def bases(self) -> list[int]:
        """Base offsets of all `.log` files, ascending."""
        return sorted(self.files.get(Suffix.LOG, {}))


@dataclass(frozen=True, slots=True)
class LogBases:
    """Which `.log` files stand in a partition directory, ascending by base offset, and which directory that is."""

    directory_id: tuple[int, int]
    bases: tuple[int, ...]


def list_log_bases(directory: Path) -> LogBases:
    """A fresh look at the `.log` files. Raises SegmentChanged if the directory is gone, PartitionError."""
    try:
        listing = _settled_listing(directory)
    except FileNotFoundError as error:
        raise SegmentChanged(f"{directory} vanished; the next scan decides anew") from error
    except OSError as error:
        raise PartitionError(f"{directory} cannot be read: {error.strerror or error}") from error
    return LogBases(listing.directory_id, tuple(listing.bases))


def read_partition_directory(topic_partition: TopicPartition, log_dir: Path, directory: Path) -> PartitionFiles:
    """What the directory holds now. Every base offset below the highest one is that of a rolled segment.

    Files that vanish meanwhile are left out. Raises SegmentChanged if the directory itself is gone, PartitionError if it
    or one of its files cannot be read, CorruptFile for a malformed `partition.metadata`.
    """
    try:
        listing = _settled_listing(directory)
        topic_id = _topic_id(directory / PARTITION_METADATA) if listing.has_metadata else None
        bases = listing.bases
        active = listing.files[Suffix.LOG][bases[-1]] if bases else None
        active_log = None if active is None else _identity(directory, active)
        segments = [
            _segment(topic_partition, log_dir, directory, listing, base_offset, end_offset)
            for base_offset, end_offset in pairwise(bases)
        ]
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
        snapshot_offsets=tuple(sorted(listing.files.get(Suffix.SNAPSHOT, {}))),
        unstable=listing.unstable,
        directory_id=listing.directory_id,
        active_log=active_log,
    )


def _settled_listing(directory: Path) -> _Listing:
    # A listing during renames may miss a file under both names; a segment missed in the middle would stretch the range of
    # the one before it. The directory's own mtime tells of every rename.
    before = directory.stat()
    for _ in range(_LISTINGS):
        listing = _list(directory)
        after = directory.stat()
        directory_id = (after.st_dev, after.st_ino)
        if (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino):
            return replace(listing, directory_id=directory_id)
        before = after
    return replace(listing, unstable=True, directory_id=directory_id)


def _list(directory: Path) -> _Listing:
    files: dict[Suffix, dict[int, os.DirEntry[str]]] = {}
    has_metadata = unstable = False
    with os.scandir(directory) as entries:
        for entry in entries:
            found = parse_file_name(entry.name)
            if found is not None:
                files.setdefault(found.suffix, {})[found.offset] = entry
            elif entry.name == PARTITION_METADATA:
                has_metadata = True
            else:
                unstable = unstable or is_in_flight(entry.name)
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
        entry = listing.files.get(suffix, {}).get(offset)
        return None if entry is None else _identity(directory, entry)

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


def _identity(directory: Path, entry: os.DirEntry[str]) -> FileIdentity | None:
    try:
        found = entry.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise PartitionError(f"{entry.path} is no regular file; move it out of the broker's directory")
    return FileIdentity.of(directory, entry.name, found)


def _topic_id(path: Path) -> str | None:
    try:
        return read_partition_metadata(read_regular(path, _METADATA_BYTES), str(path))
    except FileNotFoundError:
        return None
