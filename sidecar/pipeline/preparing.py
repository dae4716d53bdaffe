"""Prepares one segment for its upload: everything is read, checked and decided before the first byte is sent."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from sidecar.archive.bundle import assemble_indexes
from sidecar.archive.keys import fresh_id
from sidecar.archive.state import PartitionState
from sidecar.host.journal import Attempt
from sidecar.host.page_cache import NO_FOOTPRINT, footprint_before
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import PartitionFiles, SegmentFiles
from sidecar.pipeline.bundle import PreparedSegment, check_size, fresh_attempt
from sidecar.pipeline.losses.missing_offsets import lost_tail
from sidecar.pipeline.tools import Tools
from sidecar.segment.producer_snapshot import (
    KnownState,
    choose_snapshot,
    state_at_archive_end,
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
    known = (
        state_at_archive_end(tools.store, state, tools.disk.dropped_producers(files.directory))
        if state.end_offset == base_offset
        else None
    )
    return LogPosition(known or tools.disk.producers_at(files, base_offset), min(largest_ms, tools.clock.now_ms()))


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

    Where its last offsets are lost, the segment ends before them, and the position is the one behind them.

    Raises the errors of `read_segment`, `open_listed` and `lost_tail`.
    """
    descriptor = tools.held.take(segment.log)
    with ExitStack() as closing:
        closing.callback(tools.disk.close, descriptor)
        footprint = footprint_before(descriptor, segment.log.size_bytes) if tools.policy.spares_cache else NO_FOOTPRINT
        reading = tools.read_segment(
            segment,
            descriptor,
            position.known.table,
            checkpoint,
            log_start_offset=log_start_offset,
            index_interval_bytes=tools.policy.index_interval_bytes,
            taken=tools.budget.reads.take,
        )
        lost = lost_tail(tools, segment, descriptor, reading)
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
            cut_offset=None if lost is None else lost[0],
        )
        indexes, parts = assemble_indexes(
            reading.offset_index,
            reading.time_index,
            snapshot.content,
            reading.leader_epochs.text_for_bundle(segment.end_offset if lost is None else lost[0]),
            reading.transaction_index,
        )
        check_size(segment, len(indexes))
        attempt = resumed or fresh_attempt(root, segment, fresh_id(tools.randomness), now_ms)
        closing.pop_all()  # From here on the prepared segment closes it.
    prepared = PreparedSegment(
        segment, descriptor, reading, snapshot, indexes, parts, attempt, tools.disk, lost, footprint=footprint
    )
    return prepared, LogPosition(known, largest_ms)
