"""Writes the log line of each domain event. The names and fields of these lines are an interface: alerts match them."""

from contextlib import suppress
from typing import Any

from sidecar.event_log import EVENTS
from sidecar.model import ArchivedSegment, SegmentFiles
from sidecar.partition import domain_events as events
from sidecar.reporting.advice import advised, loss_reason

_LOSS_IN_ARCHIVE = (
    "find out why uploads were late, or what deleted files, unless the log was restored without them. status and "
    "verify keep listing the gap"
)
_LOSS_BELOW_ARCHIVE = (
    "find out why uploads were late, or what deleted files; this log line is the only record of these offsets"
)
_MOVED_INTO_A_SEGMENT = "the log start was moved into a segment while this broker led, as only DeleteRecords does"


def fan_out(*sinks: events.Emit) -> events.Emit:
    """One `Emit` for several sinks, which get each event in this order; the log comes last.

    A sink that cannot write (OSError), such as a log whose stderr is closed, keeps the event from no other sink. Nor does it end
    the work that the event is about.
    """

    def emit(event: events.DomainEvent) -> None:
        for sink in sinks:
            with suppress(OSError):
                sink(event)

    return emit


def log_event(event: events.DomainEvent) -> None:
    """Write the line of an event, if it has one. An `Emit`."""
    match event:
        case events.SegmentCommitted(segment, entry):
            EVENTS.info("segment_committed", **_fields(segment, entry), replaced_indexes=list(event.replaced_indexes))
        case events.SnapshotMismatch(segment, entry, found):
            EVENTS.error("producer_snapshot_mismatch", **_fields(segment, entry), found=found)
        case events.OffsetsLost():
            EVENTS.error(
                "offsets_lost",
                partition=str(event.topic_partition),
                from_offset=event.from_offset,
                to_offset=event.to_offset,
                log_start_offset=event.log_start_offset,
                reason=loss_reason(event),
                action=_LOSS_IN_ARCHIVE if event.is_recorded else _LOSS_BELOW_ARCHIVE,
            )
        case events.DeletedBeforeArchived():
            EVENTS.warning(
                "deleted_before_archived",
                partition=str(event.topic_partition),
                from_offset=event.from_offset,
                to_offset=event.to_offset,
                log_start_offset=event.log_start_offset,
                reason=_MOVED_INTO_A_SEGMENT,
                action="none if that was intended: status and verify keep listing the gap, and the records cannot be recovered",
            )
        case events.RecordsDeleted():
            EVENTS.warning(
                "records_deleted",
                partition=str(event.topic_partition),
                before_offset=event.before_offset,
                log_start_offset=event.log_start_offset,
                leader_epoch=event.leader_epoch,
                reason=_MOVED_INTO_A_SEGMENT,
                action="restore skips the records below; --deleted-records restore includes them until a compaction removes them",
            )
        case events.DeletedRecordsUnknown(topic_partition, log_start_offset, error):
            EVENTS.warning(
                "deleted_records_unknown",
                partition=str(topic_partition),
                log_start_offset=log_start_offset,
                error=advised(error),
                action="archiving goes on; if records were deleted on purpose, restore with --offset-range from the log start on",
            )
        case events.LostOffsetsOnDisk(topic_partition, reason):
            EVENTS.error("lost_offsets_on_disk", partition=str(topic_partition), reason=reason)
        case events.OffsetsTakenAsCompacted(segment, offsets, reason):
            EVENTS.warning(
                "missing_offsets_accepted_as_compacted", segment=str(segment), offsets=offsets, reason=reason
            )
        case events.MarkerAdded(segment, producer_id, first_offset, marker_offset, may_be_committed=False):
            EVENTS.warning(
                "abort_marker_added",
                segment=str(segment),
                producer_id=producer_id,
                first_offset=first_offset,
                marker_offset=marker_offset,
            )
        case events.MarkerAdded(segment, producer_id, first_offset, marker_offset):
            EVENTS.error(
                "hidden_transaction_may_be_committed",
                segment=str(segment),
                producer_id=producer_id,
                first_offset=first_offset,
                marker_offset=marker_offset,
                action="the records stay in the archive, and readers of uncommitted records see them; compaction removes them",
            )
        case events.DeletesMayBeMissing(segment, away_ms):
            EVENTS.warning("deletes_may_be_missing", segment=str(segment), away_s=round(away_ms / 1000))
        case events.PinReleased(path, size_bytes, reason):
            EVENTS.error("pinned_segment_released", path=path, size_bytes=size_bytes, reason=reason)
        case events.TransactionHangs(segment, producer_id, first_offset, held_s):
            EVENTS.warning(
                "hanging_transaction",
                segment=str(segment),
                producer_id=producer_id,
                first_offset=first_offset,
                open_s=round(held_s),
                remedy="kafka-transactions.sh find-hanging shows it, its abort command ends it; until then nothing above "
                "is archived",
            )
        case events.PartitionFailed(topic_partition, error):
            EVENTS.error("partition_stopped", partition=str(topic_partition), error=advised(error))
        case events.DirectoryUnreadable(path, error):
            EVENTS.error("scan_problem", path=path, error=advised(error))
        case _:
            pass


def _fields(segment: SegmentFiles, entry: ArchivedSegment) -> dict[str, Any]:
    return {
        "topic": segment.topic_partition.topic,
        "partition": segment.topic_partition.partition,
        "base_offset": entry.base_offset,
        "end_offset": entry.end_offset,
        "segment_id": entry.segment_id,
        "size_bytes": entry.size_bytes,
        "snapshot_origin": str(entry.snapshot.origin),
    }
