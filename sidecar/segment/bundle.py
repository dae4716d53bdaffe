"""A segment that is ready to be uploaded: its sources, its parts and what its commit will say of it."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from sidecar.archive.bundle import INDEXES_BYTES_MAX, assemble_indexes, log_part
from sidecar.archive.keys import indexes_key, log_key
from sidecar.errors import PartitionError
from sidecar.host.journal import Attempt
from sidecar.host.listed_files import BrokerFiles
from sidecar.host.page_cache import NO_FOOTPRINT, CacheFootprint, give_back
from sidecar.logformat.indexes.rebuild import BuiltIndexes
from sidecar.model import ArchivedSegment, Part, RawBatches, SegmentFiles
from sidecar.ports import OpenFiles, UploadSource
from sidecar.segment.added_markers import AddedMarker, SplicedSource
from sidecar.segment.producer_snapshot import ChosenSnapshot
from sidecar.segment.reading import SegmentReading
from sidecar.storage.source import FileSource


@dataclass(frozen=True, slots=True)
class CompactedCopy:
    """A segment compacted within its group: its batches in a file of ours, what the check of it found, and how it was done."""

    path: Path
    size_bytes: int
    crc32c: int
    built: BuiltIndexes
    strategy: str
    strategy_parameters: dict[str, str]


@dataclass(frozen=True, slots=True)
class PreparedSegment:
    """A segment that may be uploaded. `descriptor` is open until `close`: the bytes outlive an unlink by the broker.

    `lost`: offsets `[from, to)` at its end that are nowhere on disk, and are to be recorded so by the same commit.
    `files`: whose the descriptor is. `footprint`: what of it was not in the page cache before.
    `copy`: its compacted copy, which is archived instead; `descriptor` and `indexes` are of that.
    `added`: markers that are archived with it. `of_broker`: what its batches are without them.
    """

    segment: SegmentFiles
    descriptor: int
    reading: SegmentReading
    snapshot: ChosenSnapshot
    indexes: bytes
    index_parts: tuple[Part, ...]
    attempt: Attempt
    files: OpenFiles
    of_broker: BuiltIndexes
    lost: tuple[int, int] | None = None
    copy: CompactedCopy | None = None
    footprint: CacheFootprint = NO_FOOTPRINT
    added: tuple[AddedMarker, ...] = ()

    @property
    def log_source(self) -> UploadSource:
        if self.copy is not None:
            return FileSource(self.descriptor, self.copy.size_bytes, str(self.copy.path))
        segment = self.segment
        source = self.files.source(self.descriptor, segment.size_bytes, str(segment.log), segment.start_position)
        return SplicedSource(source, self.added) if self.added else source

    @property
    def log_crc32c(self) -> int:
        """CRC-32C of the `.log` object: of all its bytes, as they were checked."""
        return self.reading.log_crc32c if self.copy is None else self.copy.crc32c

    def archived(self) -> ArchivedSegment:
        """The entry for the commit, once both objects are in the store."""
        segment, epochs = self.segment, self.reading.leader_epochs
        of_raw = self.of_broker
        built = self.reading.built if self.copy is None else self.copy.built
        end_offset = segment.end_offset if self.lost is None else self.lost[0]
        raw = RawBatches(segment.base_offset, end_offset, of_raw.first_batch_crc, of_raw.last_batch_crc)
        return ArchivedSegment(
            segment_id=self.attempt.segment_id,
            base_offset=segment.base_offset,
            end_offset=end_offset,
            log_key=self.attempt.log_key,
            indexes_key=self.attempt.indexes_key,
            parts=(log_part(self.log_source.size_bytes, self.log_crc32c), *self.index_parts),
            leader_epochs=epochs.in_range(segment.base_offset, end_offset).entries,
            highest_batch_leader_epoch=built.leader_epochs.latest_epoch,
            max_timestamp_ms=built.max_timestamp_ms,
            batch_count=built.batch_count,
            snapshot=self.snapshot.provenance,
            generation=0 if self.copy is None else 1,
            strategy=None if self.copy is None else self.copy.strategy,
            strategy_parameters={} if self.copy is None else self.copy.strategy_parameters,
            source_path=str(segment.log) if self.copy is None else None,
            source_mtime_ns=segment.log.mtime_ns if self.copy is None else None,
            source_size_bytes=segment.log.size_bytes if self.copy is None else None,
            source_position=segment.start_position,
            first_batch_crc=built.first_batch_crc,
            last_batch_crc=built.last_batch_crc,
            compacted_from=raw if self.copy is not None or self.added else None,
        )

    def close(self) -> None:
        """Give the descriptor back, and the page cache that only we have filled."""
        give_back(self.descriptor, self.footprint)
        self.files.close(self.descriptor)


def with_copy(prepared: PreparedSegment, copy: CompactedCopy, segment_id: str, root: str) -> PreparedSegment:
    """The same segment, archived as its compacted copy: with the copy's indexes, and the log's own snapshot and epochs.

    Args:
        segment_id: a fresh one. The attempt never resembles one of the raw segment, so that no restart takes it for that.

    The given one stays open: the caller closes it. Raises PartitionError.
    """
    segment = prepared.segment
    if prepared.added:
        raise PartitionError(
            f"{segment}: markers that the broker's cleaner took are added to it, and its copy lacks them"
        )
    indexes, parts = assemble_indexes(
        copy.built.offset_index,
        copy.built.time_index,
        prepared.snapshot.content,
        prepared.reading.leader_epochs.text_for_bundle(segment.end_offset),
        copy.built.transaction_index or None,
    )
    check_size(segment, len(indexes))
    try:
        descriptor = os.open(copy.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise PartitionError(
            f"{copy.path}: the compacted copy of {segment} cannot be read: {error.strerror}"
        ) from error
    status = os.fstat(descriptor)
    attempt = replace(
        fresh_attempt(root, segment, segment_id, prepared.attempt.begun_ms),
        inode=status.st_ino,
        size_bytes=copy.size_bytes,
        mtime_ns=-1,
    )
    return replace(
        prepared,
        footprint=NO_FOOTPRINT,
        descriptor=descriptor,
        indexes=indexes,
        index_parts=parts,
        attempt=attempt,
        files=BrokerFiles(),
        copy=copy,
    )


def check_size(segment: SegmentFiles, indexes_bytes: int) -> None:
    """Raise PartitionError for an `.indexes` object that no reader would take."""
    if indexes_bytes > INDEXES_BYTES_MAX:
        raise PartitionError(
            f"{segment}: indexes and snapshot take {indexes_bytes} bytes, readers accept at most {INDEXES_BYTES_MAX}. Nothing "
            f"was uploaded"
        )


def fresh_attempt(root: str, segment: SegmentFiles, segment_id: str, now_ms: int) -> Attempt:
    """The entry for the journal of an upload under an id that was never used."""
    return Attempt(
        segment_id=segment_id,
        root=root,
        base_offset=segment.base_offset,
        end_offset=segment.end_offset,
        log_key=log_key(segment.base_offset, segment_id),
        indexes_key=indexes_key(segment.base_offset, segment_id),
        inode=segment.log.inode,
        size_bytes=segment.size_bytes,
        mtime_ns=segment.log.mtime_ns,
        begun_ms=now_ms,
    )
