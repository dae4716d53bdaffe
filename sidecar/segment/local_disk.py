"""The partition directories of a broker, as its disks have them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from sidecar.errors import CorruptFile, PartitionError, SegmentChanged
from sidecar.host.listed_files import BrokerFiles, ListedFile, ensure_unchanged, listed_anew, opened
from sidecar.host.log_dir_fingerprint import SourceMark, mark_of
from sidecar.logformat.batches import SegmentScanner, scan_file
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.few_headers import NotFew, few_headers
from sidecar.logformat.lazy_file import LazyFile
from sidecar.logformat.leader_epochs import LeaderEpochs, read_leader_epochs
from sidecar.logformat.names import Suffix, file_name
from sidecar.logformat.regular_file import read_regular
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles, TopicPartition
from sidecar.segment import batch_search, open_transactions
from sidecar.segment.dropped_producers import Dropped, dropped_producers
from sidecar.segment.open_transactions import OpenTransactions
from sidecar.segment.producer_snapshot import KnownState, state_at_log_start
from sidecar.segment.reading import WINDOW_BYTES, shows_cleaning

NS_PER_MS: Final = 1_000_000
_TIME_INDEX_ENTRY: Final = struct.Struct(">qi")


class LocalDisk(BrokerFiles):
    """Implements `sidecar.segment.log_disk.LogDisk`."""

    def listed_again(self, files: PartitionFiles) -> PartitionFiles:
        return listed_anew(files)

    def require_unchanged(self, segment: SegmentFiles, listed: PartitionFiles) -> None:
        ensure_unchanged(segment, listed)

    def fingerprint(self, files: PartitionFiles) -> SourceMark:
        return mark_of(files)

    def with_snapshot(self, segment: SegmentFiles, files: PartitionFiles) -> SegmentFiles:
        """See `LogDisk`. Source: ProducerStateManager.takeSnapshot in UnifiedLog.roll; the new active segment keeps it."""
        if segment.snapshot is not None or segment.end_offset not in files.snapshot_offsets:
            return segment
        name = file_name(segment.end_offset, Suffix.SNAPSHOT)
        try:
            status = (files.directory / name).lstat()
        except OSError:
            return segment  # It has gone since; the state is replayed then.
        return replace(segment, snapshot=FileIdentity.of(files.directory, name, status))

    def leader_epochs(self, files: PartitionFiles) -> LeaderEpochs | None:
        path = files.directory / "leader-epoch-checkpoint"
        try:
            return read_leader_epochs(read_regular(path), str(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PartitionError(
                f"{path}: cannot be read ({error.strerror}): run as the broker's user or group"
            ) from error

    def was_cleaned(self, log_dir: Path, topic_partition: TopicPartition) -> bool:
        """See `LogDisk`. Source: LogCleanerManager.updateCheckpoints."""
        path = log_dir / "cleaner-offset-checkpoint"
        try:
            return topic_partition in read_offset_checkpoint(read_regular(path), str(path))
        except FileNotFoundError:
            return False
        except (CorruptFile, OSError):
            return True  # A healthy partition must not stop over it.

    def dropped_producers(self, directory: Path) -> Dropped:
        return dropped_producers(directory)

    def producers_at(self, files: PartitionFiles, base_offset: int) -> KnownState:
        return state_at_log_start(files, base_offset)

    def largest_timestamp_ms(self, segment: SegmentFiles) -> int:
        """See `LogDisk`. Source: LogSegment.largestTimestamp."""
        written_ms = segment.log.mtime_ns // NS_PER_MS
        index = segment.time_index
        if index is None or index.size_bytes < _TIME_INDEX_ENTRY.size:
            return written_ms
        position = index.size_bytes // _TIME_INDEX_ENTRY.size * _TIME_INDEX_ENTRY.size - _TIME_INDEX_ENTRY.size
        try:
            with opened(index) as descriptor:
                entry = os.pread(descriptor, _TIME_INDEX_ENTRY.size, position)
        except (SegmentChanged, PartitionError, OSError):
            return written_ms  # What this is for is a forecast; an unreadable file is reported when it is archived.
        if len(entry) != _TIME_INDEX_ENTRY.size:
            return written_ms
        timestamp_ms: int = _TIME_INDEX_ENTRY.unpack(entry)[0]
        return timestamp_ms if timestamp_ms >= 0 else written_ms

    def first_timestamp_ms(self, active: FileIdentity, base_offset: int) -> int:
        """See `LogDisk`. Without the kernels."""
        with suppress(NotFew, PartitionError), closing(LazyFile(active.path)) as file:
            for header in few_headers(file.read_at, 0, file.size_bytes, base_offset):
                return header.max_timestamp
        return -1

    def newest_record(self, active: FileIdentity, base_offset: int) -> tuple[int, int]:
        largest_ms, end_offset = -1, base_offset
        for columns in scan_file(active.path, base_offset=base_offset, check_crc=False):
            largest_ms = max(largest_ms, int(columns.max_timestamp_ms.max()))
            end_offset = int(columns.last_offset[-1]) + 1
        return largest_ms, end_offset

    def log_end_offset(self, active: FileIdentity, base_offset: int) -> int:
        return batch_search.log_end_offset(active, base_offset)

    def batch_crc(self, segment: SegmentFiles, base_offset: int, end_offset: int, *, last: bool) -> int | None:
        return batch_search.batch_crc(segment, base_offset, end_offset, last=last)

    def first_record_batch(self, log: FileIdentity, segment_base: int, base_offset: int, end_offset: int) -> int | None:
        return batch_search.first_record_batch(log, segment_base, base_offset, end_offset)

    def leader_epoch_below(self, segment: SegmentFiles, offset: int) -> int | None:
        return batch_search.leader_epoch_below(segment, offset)

    def cut(self, segment: SegmentFiles, base_offset: int) -> SegmentFiles | None:
        return batch_search.cut_segment(segment, base_offset)

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

    def look_ahead(
        self,
        files: PartitionFiles,
        waiting: OpenTransactions,
        stable_end_offset: int,
        beat: Callable[[], None],
        taken: Callable[[int], None],
    ) -> OpenTransactions | None:
        return open_transactions.look_ahead(files, waiting, stable_end_offset, beat, taken)
