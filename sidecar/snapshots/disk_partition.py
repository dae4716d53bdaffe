"""A partition directory of a broker."""

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
    """A partition directory as it was listed, as a `PartitionLog`. `compacted_elsewhere`: whoever asks knows that."""

    files: PartitionFiles
    compacted_elsewhere: bool = False

    keeps_undecided: ClassVar = False
    """Whether a restore without producers kept those in the middle of a transaction. On disk it leaves empty snapshots, and the
    broker starts above all of those transactions.
    """
    begins_anew: ClassVar[frozenset[int]] = frozenset()
    """Ends of segments above which no producer from below is known, though snapshots there name them; but for those undecided.
    On disk no producer is named either.
    """

    @property
    def topic_partition(self) -> TopicPartition:
        return self.files.topic_partition

    @property
    def place(self) -> str:
        """For people."""
        return str(self.files.directory)

    @property
    def first_offset(self) -> int:
        """Base of the first segment. Raises PartitionError where there is none."""
        if self.files.first_offset is None:
            raise PartitionError(f"{self.topic_partition}: no segments in {self.files.directory}")
        return self.files.first_offset

    @property
    def log_start_offset(self) -> int:
        """What a broker replays from; DeleteRecords may have moved it above `first_offset`. Raises PartitionError."""
        return max(
            self.first_offset, checkpointed(self.files.log_dir / LOG_START_CHECKPOINT).get(self.topic_partition, 0)
        )

    @property
    def compacted(self) -> bool:
        """Whether a log cleaner is said to have cleaned it, or this is unknown: offsets may be missing then.

        The broker notes how far its cleaner has come; a copy without that note shows nothing.

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
        """Bases of all segments above the first, and the end of the last rolled one: where tiering asks for a snapshot."""
        return tuple(segment.end_offset for segment in self.files.segments)

    @property
    def snapshot_offsets(self) -> tuple[int, ...]:
        return self.files.snapshot_offsets

    @property
    def strays(self) -> frozenset[int]:
        """Offsets of snapshots that a broker deletes unread when it starts. Raises as `first_offset`."""
        return stray_offsets(self.snapshot_offsets, (self.first_offset, *self.bases))

    @property
    def dropped_below(self) -> int:
        """Up to which offset producers were left out by a restore; 0 where none were. See `dropped_producers`."""
        return dropped_producers(self.files.directory).below_offset

    def snapshot_path(self, offset: int) -> Path:
        return self.files.directory / file_name(offset, Suffix.SNAPSHOT)

    def snapshot(self, offset: int) -> tuple[bytes, int]:
        """A snapshot's bytes, and a time (ms) not before it was written and not later than now.

        Raises SegmentChanged if it is gone, PartitionError if it cannot be read.
        """
        path = self.snapshot_path(offset)
        with reading(path):
            return read_regular(path), path.stat().st_mtime_ns // 1_000_000

    def without_decided(self, table: ProducerTable) -> ProducerTable:
        """A state without the transactions that have ended, and of which no batch is in the log below it: nothing depends on them.

        A cleaner may have taken their markers, and a broker would wait for these for ever. The cleaner works below the last stable
        offset: what began below its note has ended. Or it began below the log start, to which a broker raises the note.
        Raises SegmentChanged, PartitionError. Source: LogCleanerManager.cleanableOffsets.
        """
        from sidecar.segment.transaction_batches import batches_left  # loads numba

        # Of what began in the last segment, the replay has just seen a batch. At the log's end, that is the active one.
        base = next((each.base_offset for each in self.files.segments if each.end_offset == table.end_offset), 0)
        if begun := table.open_transactions(base):
            cleaned_to = checkpointed(self.files.log_dir / CLEANER_CHECKPOINT).get(self.topic_partition, 0)
            begun = table.open_transactions(min(base, cleaned_to))
        left = batches_left(self.files, begun, table.end_offset)
        return table.without_transactions(begun.keys() - left)

    def recorded_exact(self, _offset: int) -> None:
        """Whether a snapshot is exact by the record of whoever stored it. A file does not say who wrote it."""

    def spans(self) -> Sequence[Segment]:
        """All segments with their newest timestamps, ascending; the active one last, and its is not known.

        Timestamps are those of the time indexes: files that a broker wrote, and seldom lacks.
        """
        rolled = [Segment(each.base_offset, _newest_timestamp_ms(each)) for each in self.files.segments]
        active = self.files.active_base_offset
        return rolled if active is None else [*rolled, Segment(active)]

    def tasks(self, last_offset: int, cuts: Sequence[int]) -> tuple[SegmentTask, ...]:
        """One per segment that begins below an offset, adjacent, with the cuts inside of it.

        Raises SegmentChanged if segments have vanished.
        """
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
