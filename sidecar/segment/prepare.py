"""Prepares one segment for its upload: everything is read, checked and decided before the first byte is sent."""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

from sidecar.archive.bundle import assemble_indexes
from sidecar.archive.keys import fresh_id
from sidecar.archive.state import PartitionState
from sidecar.clock import HasClock
from sidecar.errors import CoverageHole
from sidecar.host.journal import Attempt
from sidecar.host.page_cache import NO_FOOTPRINT, footprint_before
from sidecar.host.pinned_files import HasPins
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.logformat.names import Suffix
from sidecar.model import PartitionFiles, SegmentFiles
from sidecar.partition.domain_events import MarkerAdded, OffsetsTakenAsCompacted
from sidecar.partition.pins import COPY_BACK
from sidecar.partition.plan import LAST_RESORT
from sidecar.partition.run_limits import HasLimits
from sidecar.ports import HasEmit, HasFacts
from sidecar.randomness import HasRandomness
from sidecar.segment.added_markers import AddedMarker, markers_may_be_gone
from sidecar.segment.bundle import PreparedSegment, check_size, fresh_attempt
from sidecar.segment.log_disk import HasDisk
from sidecar.segment.producer_snapshot import KnownState, choose_snapshot
from sidecar.segment.reading import ReadingTask, ReadSegment, SegmentReading
from sidecar.storage.bandwidth import HasBudget


class PreparePorts(HasDisk, HasClock, HasFacts, HasEmit, HasLimits, HasPins, HasBudget, HasRandomness, Protocol):
    """What this takes of the world."""

    @property
    def read_segment(self) -> ReadSegment: ...


def lost_tail(
    context: PreparePorts, segment: SegmentFiles, descriptor: int, reading: SegmentReading
) -> tuple[int, int] | None:
    """The offsets that are missing before the next segment, where no compaction explains it: a `.log` is gone between them.

    They may be all of the segment's. Then its file is empty, or the archive ends where the file does, as it does wherever
    all was archived that had been rolled. A broker rolls no empty segment: only a cleaner leaves one.
    Below the first dirty offset this broker's cleaner explains it. A log that another replica compacted, and that was fetched
    from there, has no such offset; in a restored one it is the log's start. There the batches tell. Else the topic's
    `cleanup.policy`, as far as it is known, or that there is such an offset at all, explains it, and this is reported.

    Raises CoverageHole unless such ranges are to be recorded as lost.
    Source: LogSegment.shouldRoll, LogCleanerManager.updateCheckpoints.
    """
    missing, topic = reading.missing_tail, segment.topic_partition.topic
    if missing is None:
        return None
    first_dirty_offset = context.disk.first_dirty_offset(segment.log_dir, segment.topic_partition)
    if first_dirty_offset is not None and missing[1] <= first_dirty_offset:
        return None
    # The whole file would be taken for what a cleaner left: where the archive happens to end changes nothing in that.
    if segment.start_position and context.disk.is_of_cleaned_file(segment, descriptor):
        return None
    policy = context.facts.policy(topic)
    if policy.is_compacted or first_dirty_offset is not None:
        of_policy = f"cleanup.policy has compact ({policy.origins.get('cleanup_policy')})"
        of_entry = f"the broker's cleaner was here before, though its first dirty offset is {first_dirty_offset}"
        context.emit(OffsetsTakenAsCompacted(segment, missing, of_policy if policy.is_compacted else of_entry))
        return None
    if not context.policy.record_lost:
        raise CoverageHole(
            f"{segment.topic_partition}: offsets [{missing[0]}, {missing[1]}) are missing in {segment.directory}: "
            f"{_what_is_there(segment, missing[0])}, the next segment begins at {missing[1]}, and nothing says that the log was "
            f"ever compacted. {_what_is_gone(segment, missing[0])}. If another replica compacted the log, say so in "
            f"topics.policies: {{pattern: {topic}, cleanup_policy: compact}}. {LAST_RESORT}",
            hole=missing,
        )
    return missing


def _what_is_there(segment: SegmentFiles, missing_from: int) -> str:
    if missing_from > segment.base_offset:
        return f"the last batch of {segment.log.name} ends at offset {missing_from - 1}"
    if segment.start_position:
        return f"{segment.log.path} has no batch from offset {missing_from} on, where the archive ends"
    return f"{segment.log.path} is empty"


def _what_is_gone(segment: SegmentFiles, missing_from: int) -> str:
    if missing_from == segment.base_offset and not segment.start_position:
        return f"{segment.log.name} has lost its content. Make another in-sync replica the leader, if one has it"
    return f"Usually {missing_from:020d}.{Suffix.LOG} was deleted; or {segment.log.name} has lost its end. {COPY_BACK}"


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The state of the preparation of a partition: producer state and largest timestamp at the next segment's base."""

    known: KnownState
    largest_timestamp_ms: int


def prepare_segment(
    context: PreparePorts,
    files: PartitionFiles,
    archived: PartitionState,
    segment: SegmentFiles,
    position: LogPosition,
    checkpoint: LeaderEpochs | None,
    log_start_offset: int,
    resumed: Attempt | None,
) -> tuple[PreparedSegment, LogPosition]:
    """Read and check a segment, settle its indexes, epochs and producer snapshot.

    Args:
        files: of the partition, as they were listed.
        archived: what the archive holds below the segment.
        resumed: an earlier attempt whose `.log` object is complete; its segment id is used again.

    Where its last offsets are lost, the segment ends before them, and the position is the one behind them.

    Raises the errors of `read_segment`, `open_listed`, `lost_tail` and `added_markers`.
    """
    descriptor = context.pinned.take(segment.log)
    with ExitStack() as closing:
        closing.callback(context.disk.close, descriptor)
        footprint = (
            footprint_before(descriptor, segment.log.size_bytes) if context.policy.spares_cache else NO_FOOTPRINT
        )
        table, interval_bytes = position.known.table, context.policy.index_interval_bytes
        task = ReadingTask(segment, table, checkpoint, log_start_offset, interval_bytes)
        reading = context.read_segment(task, descriptor, context.budget.reads.take)
        of_broker, lost = reading.built, lost_tail(context, segment, descriptor, reading)
        now_ms = context.clock.now_ms()
        added: tuple[AddedMarker, ...] = ()
        if reading.looks_cleaned and lost is None and archived.segments:
            # Without a known value none is assumed: the topic may have a small one, and aborted records must stay hidden.
            retention_ms = context.facts.policy(segment.topic_partition.topic).delete_retention_ms or 0
            lacking = markers_may_be_gone(table, archived, now_ms - retention_ms)
            added = context.disk.added_markers(files, segment, descriptor, lacking, checkpoint)
        for marker in added:
            offset, may_be_committed = marker.place.offset, marker.may_be_committed
            context.emit(MarkerAdded(segment, marker.producer_id, marker.first_offset, offset, may_be_committed))
        if added:
            reading = context.read_segment(replace(task, added=added), descriptor, context.budget.reads.take)
        largest_ms = max(position.largest_timestamp_ms, reading.built.max_timestamp_ms)
        snapshot, known = choose_snapshot(
            segment,
            position.known,
            reading,
            # Records may be from the future, and this clock may be ahead: the last write bounds both.
            log_time_ms=min(largest_ms, now_ms, segment.log.mtime_ms),
            now_ms=now_ms,
            producer_id_expiration_ms=context.policy.expiration_ms(context.facts.policy(segment.topic_partition.topic)),
            log_start_offset=log_start_offset,
            cut_offset=None if lost is None else lost[0],
        )
        indexes, parts = assemble_indexes(
            reading.indexes.offset_index,
            reading.indexes.time_index,
            snapshot.content,
            reading.leader_epochs.text_for_bundle(segment.end_offset if lost is None else lost[0]),
            reading.indexes.transaction_index,
        )
        check_size(segment, len(indexes))
        attempt = (None if added else resumed) or fresh_attempt(
            archived.lineage.root, segment, fresh_id(context.randomness), now_ms
        )
        closing.pop_all()  # From here on the prepared segment closes it.
    prepared = PreparedSegment(
        segment,
        descriptor,
        reading,
        snapshot,
        indexes,
        parts,
        attempt,
        context.disk,
        of_broker,
        lost,
        footprint=footprint,
        added=added,
    )
    return prepared, LogPosition(known, largest_ms)
