"""Prepares one segment for its upload: everything is read, checked and decided before the first byte is sent."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import structlog

from sidecar.archive.bundle import INDEXES_BYTES_MAX, assemble_indexes, log_part
from sidecar.archive.keys import indexes_key, log_key
from sidecar.archive.state import PartitionState
from sidecar.errors import CoverageHole, PartitionError
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import ArchivedSegment, Part, PartitionFiles, RawBatches, SegmentFiles
from sidecar.pipeline.compaction.copies import CompactedCopy
from sidecar.pipeline.journal import Attempt
from sidecar.pipeline.page_cache import NO_FOOTPRINT, CacheFootprint, footprint_before, give_back
from sidecar.pipeline.producer_snapshot import (
    ChosenSnapshot,
    KnownState,
    choose_snapshot,
    state_at_archive_end,
    state_at_log_start,
)
from sidecar.pipeline.reading import SegmentReading, read_segment
from sidecar.pipeline.seams import cleaner_was_here
from sidecar.pipeline.tools import Tools
from sidecar.storage import FileSource

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PreparedSegment:
    """A segment that may be uploaded. `descriptor` is open until `close`: the bytes outlive an unlink by the broker.

    `lost`: offsets `[from, to)` at its end that are nowhere on disk, and are to be recorded so by the same commit.
    `footprint`: what of it was not in the page cache before.
    `copy`: its compacted copy, which is archived instead; `descriptor` and `indexes` are of that.
    """

    segment: SegmentFiles
    descriptor: int
    reading: SegmentReading
    snapshot: ChosenSnapshot
    indexes: bytes
    index_parts: tuple[Part, ...]
    attempt: Attempt
    lost: tuple[int, int] | None = None
    copy: CompactedCopy | None = None
    footprint: CacheFootprint = NO_FOOTPRINT

    @property
    def log_source(self) -> FileSource:
        """The bytes of the `.log` object."""
        if self.copy is not None:
            return FileSource(self.descriptor, self.copy.size_bytes, str(self.copy.path))
        segment = self.segment
        return FileSource(self.descriptor, segment.size_bytes, str(segment.log.path), segment.start_position)

    def archived(self, log_crc32c: int) -> ArchivedSegment:
        """The entry for the commit, once the checksum of the `.log` object is known."""
        segment, epochs = self.segment, self.reading.leader_epochs
        built = self.reading.built if self.copy is None else self.copy.built
        covered = epochs.covers(segment.base_offset)
        end_offset = segment.end_offset if self.lost is None else self.lost[0]
        return ArchivedSegment(
            segment_id=self.attempt.segment_id,
            base_offset=segment.base_offset,
            end_offset=end_offset,
            log_key=self.attempt.log_key,
            indexes_key=self.attempt.indexes_key,
            parts=(log_part(self.log_source.size_bytes, log_crc32c), *self.index_parts),
            leader_epochs=(
                epochs.entries_for_segment(segment.base_offset, segment.end_offset)
                if covered
                else epochs.in_range(segment.base_offset, segment.end_offset).entries
            ),
            # Of the log as it was: compaction may have taken all batches of an epoch.
            highest_batch_leader_epoch=self.reading.built.leader_epochs.latest_epoch,
            max_timestamp_ms=built.max_timestamp_ms,
            batch_count=built.batch_count,
            snapshot=self.snapshot.provenance,
            generation=0 if self.copy is None else 1,
            strategy=None if self.copy is None else self.copy.strategy,
            strategy_parameters={} if self.copy is None else self.copy.strategy_parameters,
            source_path=str(segment.log.path) if self.copy is None else None,
            source_mtime_ns=segment.log.mtime_ns if self.copy is None else None,
            source_size_bytes=segment.log.size_bytes if self.copy is None else None,
            source_position=segment.start_position,
            first_batch_crc=built.first_batch_crc,
            last_batch_crc=built.last_batch_crc,
            compacted_from=None if self.copy is None else self._raw_batches(end_offset),
        )

    def _raw_batches(self, end_offset: int) -> RawBatches:
        built = self.reading.built
        return RawBatches(self.segment.base_offset, end_offset, built.first_batch_crc, built.last_batch_crc)

    def close(self) -> None:
        """Give the descriptor back, and the page cache that only we have filled."""
        give_back(self.descriptor, self.footprint)
        os.close(self.descriptor)


def with_copy(prepared: PreparedSegment, copy: CompactedCopy, segment_id: str, root: str) -> PreparedSegment:
    """The same segment, archived as its compacted copy: with the copy's indexes, and the log's own snapshot and epochs.

    Args:
        segment_id: a fresh one. The attempt never resembles one of the raw segment, so that no restart takes it for that.

    Raises PartitionError; then the given one is still open.
    """
    segment = prepared.segment
    indexes, parts = assemble_indexes(
        copy.built.offset_index,
        copy.built.time_index,
        prepared.snapshot.content,
        prepared.reading.leader_epochs.text_for_bundle(segment.end_offset),
        copy.built.transaction_index or None,
    )
    _check_size(segment, len(indexes))
    try:
        descriptor = os.open(copy.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise PartitionError(
            f"{copy.path}: the compacted copy of {segment} cannot be read: {error.strerror}"
        ) from error
    status = os.fstat(descriptor)
    attempt = replace(
        _fresh_attempt(root, segment, segment_id, prepared.attempt.begun_ms),
        inode=status.st_ino,
        size_bytes=copy.size_bytes,
        mtime_ns=-1,
    )
    prepared.close()
    return replace(
        prepared,
        footprint=NO_FOOTPRINT,
        descriptor=descriptor,
        indexes=indexes,
        index_parts=parts,
        attempt=attempt,
        copy=copy,
    )


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where the preparation of a partition stands: producer state and largest timestamp at the next segment's base."""

    known: KnownState
    largest_timestamp_ms: int


def position_at(
    tools: Tools, files: PartitionFiles, base_offset: int, state: PartitionState, largest_ms: int
) -> LogPosition:
    """The position at the first segment to be archived, from what is archived below it, else from the local log.

    Args:
        largest_ms: the largest timestamp that is archived, -1 for none.
    """
    known = state_at_archive_end(tools.store, state) if state.end_offset == base_offset else None
    return LogPosition(known or state_at_log_start(files, base_offset), min(largest_ms, tools.clock.now_ms()))


def prepare_segment(
    tools: Tools,
    root: str,
    segment: SegmentFiles,
    position: LogPosition,
    checkpoint: LeaderEpochs | None,
    log_start_offset: int,
    resumed: Attempt | None,
) -> tuple[PreparedSegment, LogPosition]:
    """Read and check a segment, settle its indexes, epochs and producer snapshot.

    Args:
        resumed: an earlier attempt whose `.log` object is complete; its segment id is used again.

    Raises the errors of `read_segment` and `open_listed`.
    """
    descriptor = tools.held.take(segment.log)
    try:
        footprint = footprint_before(descriptor, segment.log.size_bytes) if tools.policy.spares_cache else NO_FOOTPRINT
        reading = read_segment(
            segment,
            descriptor,
            position.known.table,
            checkpoint,
            log_start_offset=log_start_offset,
            index_interval_bytes=tools.policy.index_interval_bytes,
        )
        lost = _lost_tail(tools, segment, reading)
        now_ms = tools.clock.now_ms()
        largest_ms = max(position.largest_timestamp_ms, min(reading.built.max_timestamp_ms, now_ms))
        snapshot, known = choose_snapshot(
            segment,
            position.known,
            reading,
            log_time_ms=largest_ms,
            now_ms=now_ms,
            producer_id_expiration_ms=tools.policy.expiration_ms(tools.facts.policy(segment.topic_partition.topic)),
            log_start_offset=log_start_offset,
        )
        indexes, parts = assemble_indexes(
            reading.offset_index,
            reading.time_index,
            snapshot.content,
            reading.leader_epochs.text_for_bundle(segment.end_offset),
            reading.transaction_index,
        )
        _check_size(segment, len(indexes))
        attempt = resumed or _fresh_attempt(root, segment, tools.new_id(), now_ms)
    except BaseException:
        os.close(descriptor)
        raise
    prepared = PreparedSegment(
        segment, descriptor, reading, snapshot, indexes, parts, attempt, lost, footprint=footprint
    )
    return prepared, LogPosition(known, largest_ms)


def _lost_tail(tools: Tools, segment: SegmentFiles, reading: SegmentReading) -> tuple[int, int] | None:
    """The offsets that are missing before the next segment, where no compaction explains it: a `.log` is gone between them.

    A log that was compacted by another replica, and fetched from there, has no note of this broker's cleaner: there the
    topic's `cleanup.policy` decides, as far as it is known.
    Raises CoverageHole unless such ranges are to be recorded as lost.
    """
    missing, topic = reading.missing_tail, segment.topic_partition.topic
    if (
        missing is None
        or missing[0] == segment.base_offset
        or cleaner_was_here(segment.log_dir, segment.topic_partition)
    ):
        return None
    policy = tools.facts.policy(topic)
    if policy.is_compacted:
        why = f"cleanup.policy has compact ({policy.origins['cleanup_policy']})"
        _log.warning("missing_offsets_taken_as_compacted", segment=str(segment), offsets=missing, reason=why)
        return None
    if not tools.policy.record_lost:
        raise CoverageHole(
            f"{segment}: its last batch ends at offset {missing[0] - 1}, the next segment begins at {missing[1]}, and nothing says "
            f"that the log was ever compacted: a .log file is missing in {segment.directory}. Restore it from a replica, or set "
            f"run.record_lost to record the range as LOST and go on. If another replica compacted the log, say so in "
            f"topics.policies: {{pattern: {topic}, cleanup_policy: compact}}"
        )
    return missing


def _check_size(segment: SegmentFiles, indexes_bytes: int) -> None:
    if indexes_bytes > INDEXES_BYTES_MAX:
        raise PartitionError(
            f"{segment}: indexes and snapshot take {indexes_bytes} bytes, readers take {INDEXES_BYTES_MAX}"
        )


def _fresh_attempt(root: str, segment: SegmentFiles, segment_id: str, now_ms: int) -> Attempt:
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
