"""Values that cross the borders between stages. Frozen, plain, and in Kafka's own words."""

import os
from bisect import bisect_right
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import NewType

ObjectKey = NewType("ObjectKey", str)
"""Key of an object, relative to the root of its store; '/' separates, never at the ends."""


class EngineName(StrEnum):
    """Where records are processed. AUTO: see `sidecar.cli.engines`."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """A file as it was when it was listed. Same name with other numbers means other content (compaction, truncation).

    Fifty thousand of them may be in memory: the files of a directory share its path. Its hash is the slowest to compute, and the
    other fields tell files apart.
    """

    directory: Path = field(hash=False)
    name: str
    inode: int
    size_bytes: int
    mtime_ns: int

    @classmethod
    def of(cls, directory: Path, name: str, status: os.stat_result) -> "FileIdentity":
        return cls(directory, name, status.st_ino, status.st_size, status.st_mtime_ns)

    @property
    def path(self) -> Path:
        return self.directory / self.name

    def __str__(self) -> str:
        return f"{self.directory}/{self.name}"

    @property
    def mtime_ms(self) -> int:
        """Last write in wall-clock milliseconds, rounded down."""
        return self.mtime_ns // 1_000_000

    def has_place_of(self, other: "FileIdentity") -> bool:
        """Whether the other is, or was, at the same path."""
        return self.name == other.name and self.directory == other.directory


@dataclass(frozen=True, slots=True)
class LeaderEpoch:
    """A leader epoch and the first offset written under it."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """A rolled segment: the files of `[base_offset, end_offset)`. Files that do not exist are None.

    `end_offset` (exclusive) is the base of the next segment, not the last record's offset plus one.
    `snapshot` is `<end_offset>.snapshot`: the producer state at the segment's end.
    `start_position`: above 0 where only the rest of the file from there on is meant, which begins at `base_offset`: replicas
    roll at different offsets, and the archive may hold the beginning of the file already. Such a part has no index files.
    """

    topic_partition: TopicPartition
    log_dir: Path
    base_offset: int
    end_offset: int
    log: FileIdentity
    offset_index: FileIdentity | None
    time_index: FileIdentity | None
    transaction_index: FileIdentity | None
    snapshot: FileIdentity | None
    start_position: int = 0

    @property
    def files(self) -> tuple[FileIdentity, ...]:
        """Those that exist, the log first."""
        found = (self.offset_index, self.time_index, self.transaction_index, self.snapshot)
        return (self.log, *(file for file in found if file is not None))

    @property
    def size_bytes(self) -> int:
        """Bytes of the log: of the file from `start_position` on."""
        return self.log.size_bytes - self.start_position

    @property
    def log_name(self) -> str:
        """The file for messages; positions in them count from `start_position`."""
        return f"{self.log} (from byte {self.start_position} on)" if self.start_position else str(self.log)

    @property
    def directory(self) -> Path:
        return self.log.directory

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.base_offset}, {self.end_offset})"


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """One partition directory as listed: its rolled segments in ascending order, and its other files.

    `snapshot_offsets` names every `<offset>.snapshot` present. `unstable` is set while `.swap` files exist.
    `topic_id` is the 22-character id of `partition.metadata`, None where that file does not exist.
    `directory_id`: device and inode of the directory: a re-created topic gets another directory, but
    perhaps the inode number of the old one.
    `active_log`: the `.log` with the highest base as it was when listed.
    """

    topic_partition: TopicPartition
    log_dir: Path
    directory: Path
    topic_id: str | None
    segments: tuple[SegmentFiles, ...]
    active_base_offset: int | None
    snapshot_offsets: tuple[int, ...]
    unstable: bool
    directory_id: tuple[int, int] = (0, 0)
    active_log: FileIdentity | None = None

    @property
    def first_offset(self) -> int | None:
        """Base of the first segment, rolled or active; None where there is none."""
        return self.segments[0].base_offset if self.segments else self.active_base_offset

    def first_above(self, offset: int) -> SegmentFiles | None:
        """The first rolled segment that ends above an offset; it may begin above it, too. None if none does."""
        row = bisect_right(self.segments, offset, key=attrgetter("end_offset"))
        return self.segments[row] if row < len(self.segments) else None


class PartName(StrEnum):
    """The parts of a bundle, by the names they have in commits. `LOG` is its own object; the rest lie in `.indexes`."""

    LOG = "log"
    OFFSET_INDEX = "offset_index"
    TIME_INDEX = "time_index"
    PRODUCER_SNAPSHOT = "producer_snapshot"
    LEADER_EPOCHS = "leader_epochs"
    TRANSACTION_INDEX = "transaction_index"
    EMPTY_SNAPSHOT = "empty_snapshot"
    FLAT_LEADER_EPOCHS = "flat_leader_epochs"


@dataclass(frozen=True, slots=True)
class Part:
    """A byte range of an object and its CRC-32C."""

    name: PartName
    position: int
    size_bytes: int
    crc32c: int


class SnapshotOrigin(StrEnum):
    BROKER = "broker"
    REBUILT = "rebuilt"


@dataclass(frozen=True, slots=True)
class SnapshotProvenance:
    """How a bundle's producer snapshot came to be.

    `start_offset`: the replay began here (log start, or a trusted snapshot's offset); None if the broker's file was taken.
    `window_ms`: producers idle for longer were left out; None if nothing was left out.
    `exact`: False where the replayed segments had been cleaned before, so that state may be poorer than the broker's was.
    """

    origin: SnapshotOrigin
    exact: bool
    start_offset: int | None = None
    window_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RawBatches:
    """Checksum fields of the first and last batch that the broker's log has, or had, in `[base_offset, end_offset)`."""

    base_offset: int
    end_offset: int
    first_crc: int | None
    last_crc: int | None


@dataclass(frozen=True, slots=True)
class ArchivedSegment:
    """A segment that a commit has added: everything a reader needs to fetch and check it.

    `log_key` and `indexes_key` are relative to the partition's incarnation. `parts` has one entry per part that exists
    (an empty part has size 0; a missing transaction index has no entry). `leader_epochs` is the segment's own map, its first entry
    re-based to `base_offset`. `generation` is 0 for raw segments, 1 and up for compacted ones.
    `compacted_from`: of a compacted segment, the newest raw one that went into it; None where that is not known. Of a raw
    segment with added markers, the broker's own batches.
    `source_*` is what the file was on the broker's disk (None for compacted segments), and where in it the segment begins.
    """

    segment_id: str
    base_offset: int
    end_offset: int
    log_key: ObjectKey
    indexes_key: ObjectKey
    parts: tuple[Part, ...]
    leader_epochs: tuple[LeaderEpoch, ...]
    highest_batch_leader_epoch: int
    max_timestamp_ms: int
    batch_count: int
    snapshot: SnapshotProvenance
    generation: int = 0
    strategy: str | None = None
    strategy_parameters: dict[str, str] = field(default_factory=dict)
    source_path: str | None = None
    source_mtime_ns: int | None = None
    source_size_bytes: int | None = None
    source_position: int = 0
    first_batch_crc: int | None = None
    last_batch_crc: int | None = None
    compacted_from: RawBatches | None = None

    @property
    def is_rewritten(self) -> bool:
        """Whether it has batches that no broker wrote: a compaction's, or added markers."""
        return self.generation > 0 or self.compacted_from is not None

    @property
    def raw_batches(self) -> RawBatches | None:
        """What of it can be looked up in the broker's log: its own batches if it is raw, else those it was made of."""
        if self.is_rewritten:
            return self.compacted_from
        return RawBatches(self.base_offset, self.end_offset, self.first_batch_crc, self.last_batch_crc)

    def part(self, name: PartName) -> Part | None:
        return next((part for part in self.parts if part.name is name), None)

    @property
    def size_bytes(self) -> int:
        """Bytes of both objects."""
        return sum([part.size_bytes for part in self.parts])

    def __str__(self) -> str:
        return f"[{self.base_offset}, {self.end_offset}) {self.segment_id}"
