"""The partition directories of a broker, as its disks have them.

Single batches are found by their offsets, with a few reads where an offset index says where to begin.
"""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from sidecar.archive.continuity import LocalBatch
from sidecar.broker.log_dir_state import read_file
from sidecar.errors import CorruptFile, PartitionError
from sidecar.host.listed_files import (
    BrokerFiles,
    ListedFile,
    ensure_unchanged,
    listed_anew,
    opened,
    read_unless_deleted,
)
from sidecar.host.log_dir_fingerprint import fingerprint_of
from sidecar.logformat.batches import HEADERS_WINDOW_BYTES, ScanEnd, SegmentScanner, scan_file
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.files import LazyFile
from sidecar.logformat.indexes.offset_index import read_offset_index
from sidecar.logformat.indexes.time_index import ENTRY
from sidecar.logformat.leader_epochs import LeaderEpochs, read_leader_epochs
from sidecar.logformat.names import CLEANER_CHECKPOINT, LEADER_EPOCH_CHECKPOINT, Suffix, file_name
from sidecar.logformat.window import ReadAt
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles, TopicPartition
from sidecar.segment.added_markers import added_markers
from sidecar.segment.dropped_producers import dropped_producers
from sidecar.segment.open_transactions import look_ahead, undecided
from sidecar.segment.producer_snapshot import state_at_log_start
from sidecar.segment.reading import WINDOW_BYTES
from sidecar.segment.replaying import shows_cleaning

_BATCHES = 1024


def _batches(segment: SegmentFiles, offset: int) -> Iterator[LocalBatch]:
    """The last one that ends below `offset`, and all from there on; perhaps some before."""
    with closing(LazyFile(segment.log.path)) as file:
        for columns in _scan(segment, offset, file):
            begin = max(0, int(np.searchsorted(columns.last_offset, offset)) - 1)
            fields = (columns.base_offset, columns.last_offset, columns.crc, columns.leader_epoch)
            yield from map(LocalBatch, *(field[begin:].tolist() for field in fields))


def _scan(segment: SegmentFiles, offset: int, read_at: ReadAt) -> SegmentScanner:
    """Headers of the segment, from a batch on that ends at or below `offset`, or from the file's beginning."""
    return _headers(segment, read_at, _start_position(segment, offset, read_at), max_batches=_BATCHES, check_crc=False)


def _headers(segment: SegmentFiles, read_at: ReadAt, start_position: int, **options: Any) -> SegmentScanner:
    return SegmentScanner(
        read_at,
        segment.log.size_bytes,
        base_offset=segment.base_offset,
        file=str(segment.log.path),
        start_position=start_position,
        window_bytes=HEADERS_WINDOW_BYTES,
        **options,
    )


def _start_position(segment: SegmentFiles, offset: int, read_at: ReadAt) -> int:
    content = read_unless_deleted(segment.offset_index, segment.log)
    if not content:
        return 0
    try:
        indexed_offset, position = read_offset_index(content, segment.base_offset).lookup(offset)
    except CorruptFile:
        return 0
    if not 0 < position < segment.log.size_bytes:
        return 0
    # An index is only used where a batch, complete by its checksum, is at that position and ends below the offset it gives.
    first = next(iter(_headers(segment, read_at, position, max_batches=1)), None)
    return position if first is not None and int(first.last_offset[0]) <= indexed_offset else 0


class LocalDisk(BrokerFiles):
    """Implements `sidecar.segment.log_disk.LogDisk`."""

    listed_again = staticmethod(listed_anew)
    require_unchanged = staticmethod(ensure_unchanged)
    fingerprint = staticmethod(fingerprint_of)
    dropped_producers = staticmethod(dropped_producers)
    producers_at = staticmethod(state_at_log_start)
    look_ahead = staticmethod(look_ahead)
    added_markers = staticmethod(added_markers)
    undecided = staticmethod(undecided)

    def batch_in(self, segment: SegmentFiles, base_offset: int, end_offset: int, *, last: bool) -> LocalBatch | None:
        found: LocalBatch | None = None
        for batch in _batches(segment, end_offset - 1 if last else base_offset):
            if base_offset <= batch.last_offset < end_offset:
                found = batch
            if batch.last_offset >= end_offset or (found is not None and not last):
                break
        return found

    def leader_epoch_below(self, segment: SegmentFiles, offset: int) -> int | None:
        below = takewhile(lambda batch: batch.base_offset < offset, _batches(segment, offset - 1))
        return next((batch.leader_epoch for batch in deque(below, maxlen=1)), None)

    def cut(self, segment: SegmentFiles, base_offset: int, descriptor: int) -> SegmentFiles | None:
        """See `LogDisk`. Its indexes are to be rebuilt: those of the file count positions and offsets from the file's beginning."""
        scanner = _scan(segment, base_offset, ListedFile(descriptor, segment.log))
        position: int | None = None
        for columns in scanner:
            rows = np.flatnonzero(columns.last_offset >= base_offset)
            if rows.size:
                first = rows[0]
                # Without a record count it is a compressed set of a format before v2: its first offset is not known here.
                if columns.base_offset[first] >= base_offset and columns.record_count[first] >= 0:
                    position = int(columns.position[first])
                break
        else:
            position = segment.log.size_bytes if scanner.end is ScanEnd.EXACT else None
        if position is None:
            return None
        without_indexes = replace(segment, offset_index=None, time_index=None, transaction_index=None)
        return replace(without_indexes, base_offset=base_offset, start_position=position)

    def with_snapshot(self, segment: SegmentFiles, files: PartitionFiles) -> SegmentFiles:
        """See `LogDisk`. Source: ProducerStateManager.takeSnapshot in UnifiedLog.roll; the new active segment keeps it."""
        if segment.end_offset not in files.snapshot_offsets:
            return segment
        name = file_name(segment.end_offset, Suffix.SNAPSHOT)
        try:
            status = (files.directory / name).lstat()
        except OSError:
            return segment  # It has gone since; the state is replayed then.
        return replace(segment, snapshot=FileIdentity.of(files.directory, name, status))

    def leader_epochs(self, files: PartitionFiles) -> LeaderEpochs | None:
        return read_file(files.directory / LEADER_EPOCH_CHECKPOINT, read_leader_epochs)

    def first_dirty_offset(self, log_dir: Path, topic_partition: TopicPartition) -> int | None:
        """See `LogDisk`. Source: LogCleanerManager.updateCheckpoints, cleanableOffsets, doneCleaning."""
        try:
            noted = (read_file(log_dir / CLEANER_CHECKPOINT, read_offset_checkpoint) or {}).get(topic_partition)
            # Its first cleaning may have replaced segments, and is noted when it ends.
            is_begun = noted is None and any((log_dir / str(topic_partition)).glob("*.cleaned"))
            return 0 if is_begun else noted
        except (PartitionError, OSError):
            return 0  # A healthy partition must not stop over it.

    def largest_timestamp_ms(self, segment: SegmentFiles) -> int:
        """See `LogDisk`. Source: LogSegment.largestTimestamp."""
        index, entry_bytes = segment.time_index, ENTRY.itemsize
        if index is not None and index.size_bytes >= entry_bytes:
            # What this is for is a forecast; an unreadable file is reported when it is archived.
            with suppress(PartitionError, OSError, ValueError), opened(index) as descriptor:
                position = index.size_bytes // entry_bytes * entry_bytes - entry_bytes
                (entry,) = np.frombuffer(os.pread(descriptor, entry_bytes, position), ENTRY)
                timestamp_ms = int(entry["timestamp_ms"])
                if timestamp_ms >= 0:
                    return timestamp_ms
        return segment.log.mtime_ms

    def first_timestamp_ms(self, active: FileIdentity, base_offset: int) -> int:
        with suppress(PartitionError):
            options = {"check_crc": False, "window_bytes": HEADERS_WINDOW_BYTES, "max_batches": 1}
            for first in scan_file(active.path, base_offset=base_offset, **options):
                return int(first.max_timestamp_ms[0])
        return -1

    def newest_record(self, active: FileIdentity, base_offset: int) -> tuple[int, int]:
        largest_ms, end_offset = -1, base_offset
        # Its tail may be half written.
        for columns in scan_file(active.path, base_offset=base_offset, check_crc=False):
            largest_ms = max(largest_ms, int(columns.max_timestamp_ms.max()))
            end_offset = int(columns.last_offset[-1]) + 1
        return largest_ms, end_offset

    def is_of_cleaned_file(self, segment: SegmentFiles, descriptor: int) -> bool:
        """See `LogDisk`. Reads the file up to where the segment begins in it."""
        expected_offset = int(segment.log.path.stem)
        scanner = SegmentScanner(
            ListedFile(descriptor, segment.log),
            segment.start_position,
            base_offset=expected_offset,
            file=str(segment.log.path),
            check_crc=False,
            window_bytes=WINDOW_BYTES,
        )
        for columns in scanner:
            if shows_cleaning(columns, expected_offset):
                return True
            expected_offset = int(columns.last_offset[-1]) + 1
        return False
