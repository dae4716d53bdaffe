"""A partition directory of a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from producer_state.snapshot import stray_offsets
from producer_state.table import ProducerTable
from producer_state.window import Segment
from sidecar.broker.log_dir_state import read_file
from sidecar.errors import PartitionError, SegmentChanged
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.files import read_regular, reading
from sidecar.logformat.indexes.time_index import read_newest_timestamp_ms
from sidecar.logformat.names import CLEANER_CHECKPOINT, LOG_START_CHECKPOINT, Suffix, file_name
from sidecar.model import PartitionFiles, SegmentFiles, TopicPartition
from sidecar.segment.dropped_producers import dropped_producers
from sidecar.snapshots.tasks import LocalSegment, SegmentTask


def checkpointed(path: Path) -> Mapping[TopicPartition, int]:
    """The offsets in a checkpoint file of a log dir; none where it does not exist. Raises CorruptFile, PartitionError."""
    return read_file(path, read_offset_checkpoint) or {}


@dataclass(frozen=True, slots=True)
class DiskPartition:
    """A `PartitionLog` as it was listed. `compacted_elsewhere`: whoever asks knows that, as this directory cannot tell."""

    files: PartitionFiles
    compacted_elsewhere: bool = False

    keeps_undecided: ClassVar = False
    """See `PartitionLog`: a restore leaves empty snapshots, and the broker starts above all of those transactions."""
    begins_anew: ClassVar[frozenset[int]] = frozenset()
    """See `PartitionLog`: on disk no producer is named either."""

    @property
    def topic_partition(self) -> TopicPartition:
        return self.files.topic_partition

    @property
    def place(self) -> str:
        return str(self.files.directory)

    @property
    def first_offset(self) -> int:
        if self.files.first_offset is None:
            raise PartitionError(f"{self.topic_partition}: no segments in {self.files.directory}")
        return self.files.first_offset

    @property
    def log_start_offset(self) -> int:
        """The checkpointed one where there is one, else the first segment's base."""
        return max(
            self.first_offset, checkpointed(self.files.log_dir / LOG_START_CHECKPOINT).get(self.topic_partition, 0)
        )

    @property
    def compacted(self) -> bool:
        """See `PartitionLog`: the broker notes how far its cleaner has come; a copy without that note shows nothing.

        Trap: it notes its own cleaner only. A log that it fetched from a leader which had compacted it is not noted.
        """
        if self.compacted_elsewhere:
            return True
        noted = (self.files.log_dir / CLEANER_CHECKPOINT).exists()
        return not noted or self.topic_partition in checkpointed(self.files.log_dir / CLEANER_CHECKPOINT)

    @property
    def active_bytes(self) -> int:
        """Size of the active segment, 0 without one. Raises SegmentChanged."""
        active = self.files.active_base_offset
        return 0 if active is None else self._active(active).size_bytes

    def end_offset(self) -> int:
        """Where the log ends, by the batch headers of its active segment.

        Raises CorruptFile unless it ends with a whole batch, SegmentChanged, PartitionError.
        """
        from sidecar.logformat.batches import SegmentScanner  # loads numba

        end_offset = self.files.active_base_offset
        if end_offset is None:
            raise PartitionError(f"{self.place}: has no active segment")
        source = self._active(end_offset)
        with source.opened() as read_at:
            scanner = SegmentScanner(
                read_at, source.size_bytes, base_offset=end_offset, file=source.name, check_crc=False
            )
            for columns in scanner:
                if len(columns):
                    end_offset = int(columns.last_offset[-1]) + 1
            scanner.require_exact()
        return end_offset

    def _active(self, base_offset: int) -> LocalSegment:
        path = self.files.directory / file_name(base_offset, Suffix.LOG)
        with reading(path, "vanished while the directory was listed; run again"):
            return LocalSegment(str(path), path.stat().st_size, growing=True)

    @property
    def bases(self) -> tuple[int, ...]:
        return tuple(segment.end_offset for segment in self.files.segments)

    @property
    def snapshot_offsets(self) -> tuple[int, ...]:
        return self.files.snapshot_offsets

    @property
    def strays(self) -> frozenset[int]:
        return stray_offsets(self.snapshot_offsets, (self.first_offset, *self.bases))

    @property
    def dropped_below(self) -> int:
        return dropped_producers(self.files.directory).below_offset

    def snapshot_path(self, offset: int) -> Path:
        return self.files.directory / file_name(offset, Suffix.SNAPSHOT)

    def snapshot(self, offset: int) -> tuple[bytes, int]:
        """See `PartitionLog`. The time is the file's modification time."""
        path = self.snapshot_path(offset)
        with reading(path):
            return read_regular(path), path.stat().st_mtime_ns // 1_000_000

    def without_decided(self, table: ProducerTable) -> ProducerTable:
        """See `PartitionLog`. The broker's cleaner works below the last stable offset: what began below its note has ended.

        Or it began below the log start, to which a broker raises the note. Source: LogCleanerManager.cleanableOffsets.
        """
        from sidecar.segment.open_transactions import batches_left  # loads numba

        # Of what began in the last segment, the replay has just seen a batch. At the log's end, that is the active one.
        base = next((each.base_offset for each in self.files.segments if each.end_offset == table.end_offset), 0)
        if not table.open_transactions(base):
            return table
        cleaned_to = checkpointed(self.files.log_dir / CLEANER_CHECKPOINT).get(self.topic_partition, 0)
        begun = table.open_transactions(min(base, cleaned_to))
        left = batches_left(self.files, begun, table.end_offset)
        return table.without_transactions(begun.keys() - left)

    def recorded_exact(self, _offset: int) -> None:
        """See `PartitionLog`: a file does not say who wrote it."""

    def spans(self) -> Sequence[Segment]:
        """See `PartitionLog`. Timestamps are those of the time indexes: files that a broker wrote, and seldom lacks."""
        rolled = [Segment(each.base_offset, _newest_timestamp_ms(each)) for each in self.files.segments]
        active = self.files.active_base_offset
        return rolled if active is None else [*rolled, Segment(active)]

    def tasks(self, last_offset: int, cuts: Sequence[int]) -> tuple[SegmentTask, ...]:
        files = self.files
        tasks = [
            SegmentTask(
                LocalSegment(str(segment.log.path), segment.log.size_bytes),
                segment.base_offset,
                segment.end_offset,
                tuple(cut for cut in cuts if segment.base_offset < cut < segment.end_offset),
            )
            for segment in files.segments
            if segment.base_offset < last_offset
        ]
        active = files.active_base_offset
        if active is not None and active < last_offset:
            tasks.append(SegmentTask(self._active(active), active, None, tuple(cut for cut in cuts if cut > active)))
        for before, after in pairwise(tasks):
            if before.end_offset != after.base_offset:
                raise SegmentChanged(
                    f"{files.directory}: the segment at {before.end_offset} vanished while it was listed; run again"
                )
        return tuple(tasks)


def _newest_timestamp_ms(segment: SegmentFiles) -> int | None:
    """By the last entry of its time index; None where that cannot be believed. Never by modification time: producers set theirs."""
    if segment.time_index is None:
        return None
    try:
        return read_newest_timestamp_ms(segment.time_index.path, segment.base_offset, segment.end_offset)
    except OSError:
        return None
