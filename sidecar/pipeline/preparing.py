"""Prepares one segment for its upload: everything is read, checked and decided before the first byte is sent."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass

import structlog

from sidecar.archive.bundle import assemble_indexes
from sidecar.archive.state import PartitionState
from sidecar.errors import CoverageHole
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import PartitionFiles, SegmentFiles
from sidecar.pipeline.bundle import PreparedSegment, check_size, fresh_attempt
from sidecar.pipeline.journal import Attempt
from sidecar.pipeline.page_cache import NO_FOOTPRINT, footprint_before
from sidecar.pipeline.producer_snapshot import (
    KnownState,
    choose_snapshot,
    state_at_archive_end,
    state_at_log_start,
)
from sidecar.pipeline.reading import SegmentReading, read_segment
from sidecar.pipeline.seams import cleaner_was_here
from sidecar.pipeline.tools import Tools

_log = structlog.get_logger(__name__)


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
    with ExitStack() as closing:
        closing.callback(os.close, descriptor)
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
        check_size(segment, len(indexes))
        attempt = resumed or fresh_attempt(root, segment, tools.new_id(), now_ms)
        closing.pop_all()  # From here on the prepared segment closes it.
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
        tools.metrics.broker.taken_as_compacted(missing[1] - missing[0])
        return None
    if not tools.policy.record_lost:
        raise CoverageHole(
            f"{segment}: its last batch ends at offset {missing[0] - 1}, the next segment begins at {missing[1]}, and nothing says "
            f"that the log was ever compacted: a .log file is missing in {segment.directory}. Restore it from a replica, or set "
            f"run.record_lost to record the range as LOST and go on. If another replica compacted the log, say so in "
            f"topics.policies: {{pattern: {topic}, cleanup_policy: compact}}",
            hole=missing,
        )
    return missing
