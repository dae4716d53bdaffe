"""What is known of partition directories between scans, so that one in which nothing came or went is not listed again."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sidecar.clock import Clock
from sidecar.discovery.partition_directory import read_partition_directory
from sidecar.logformat.regular_file import FileStamp, stamp_of
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles, TopicPartition

LIST_EVERY_S: Final = 300.0
"""A listing is the truth: whatever the directory's times say, it is made anew this often."""


@dataclass(frozen=True, slots=True)
class _Known:
    """`stamp`: of the directory before it was listed; None if that does not stand for its content."""

    stamp: FileStamp | None
    listed_s: float
    files: PartitionFiles


class ListingCache:
    """Reads partition directories like `read_partition_directory`, and remembers what cannot have changed.

    Files that come, go or are renamed change the mtime of their directory, and so do rolls, deletions, truncations, the
    cleaner's swaps and the checkpoints of leader epochs. Sizes and times are read anew where files may still be written in
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

    def keep_only(self, directories: Iterable[Path]) -> None:
        kept = set(directories)
        self._known = {directory: known for directory, known in self._known.items() if directory in kept}


def _sharing(files: PartitionFiles, known: PartitionFiles) -> PartitionFiles:
    """The same with the segments that were known already, as far as they are equal: two scans may be held at once."""
    before = {segment.base_offset: segment for segment in known.segments}
    segments = (before.get(segment.base_offset, segment) for segment in files.segments)
    shared = tuple(old if old == new else new for old, new in zip(segments, files.segments, strict=True))
    return known if (found := replace(files, segments=shared)) == known else found


def _looked_at_again(files: PartitionFiles) -> PartitionFiles | None:
    """The same with fresh sizes and times of what may be written in place; None where a file is not what it was."""
    try:
        active = None if files.active_log is None else _identity(files.active_log)
        newest = tuple(map(_segment, files.segments[-1:]))
    except (FileNotFoundError, NotARegularFile):
        return None
    if active is files.active_log and (not newest or newest[0] is files.segments[-1]):
        return files
    return replace(files, active_log=active, segments=(*files.segments[:-1], *newest))


class NotARegularFile(Exception):
    """Something else stands under the name of a file that was listed."""


def _segment(segment: SegmentFiles) -> SegmentFiles:
    """The same object where none of its files has changed."""
    found = {file: _identity(file) for file in segment.files}
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


def _identity(file: FileIdentity) -> FileIdentity:
    """The file's identity now; the same object where it is what it was."""
    found = os.stat(os.path.join(file.directory, file.name))  # noqa: PTH116, PTH118 - a Path for each costs more
    if not stat.S_ISREG(found.st_mode):
        raise NotARegularFile(file.path)
    if (found.st_ino, found.st_size, found.st_mtime_ns) == (file.inode, file.size_bytes, file.mtime_ns):
        return file
    return FileIdentity.of(file.directory, file.name, found)
