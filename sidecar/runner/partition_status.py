"""The status of a partition for people: from its files, and from the result of its last task or plan."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter

from sidecar.errors import CoverageHole, PartitionError
from sidecar.model import PartitionFiles, SegmentFiles, TopicPartition
from sidecar.partition.domain_events import BacklogChanged
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.retention import AT_RISK_MS, deletion_deadline_ms
from sidecar.partition.status import PartitionCondition, PartitionOutcome, PartitionStatus
from sidecar.reporting.advice import advised
from sidecar.runner.context import RunContext

AT_RISK_SEGMENTS_MAX = 256


def status_of(
    context: RunContext,
    files: PartitionFiles,
    gone: tuple[SegmentFiles, ...],
    archived_end_offset: int | None,
    plan: PartitionPlan | None,
    outcome: PartitionOutcome | None,
    stable_end_offset: int | None,
) -> PartitionStatus:
    """The partition as it is now.

    Args:
        gone: segments of which nothing but a descriptor of ours is left; ascending.
        archived_end_offset: exclusive end of the archive, None if there is none, or none is known.
        plan: what was found to do; None where nothing could be found.
        outcome: how its task or its planning ended; None before its task.
        stable_end_offset: exclusive end of the stable offsets, None if it was never known.
    """
    gone = above(gone, archived_end_offset)
    # Pins outlive an answer that names no leader, such as that of a broker that denies Describe.
    leads = plan is None or plan.facts.leads or bool(gone)
    listed = above(files.segments, archived_end_offset) if leads else ()
    at_risk_end_offset = _at_risk_end_offset(context, files, listed) or (gone[-1].end_offset if gone else None)
    policy = context.facts.policy(files.topic_partition.topic)
    error = plan.error if outcome is None and plan is not None else outcome.error if outcome is not None else None
    reason = outcome.reason if outcome is not None else plan.reason if plan is not None else None
    # The active segment is at least as long as its stable part.
    local_ends = [offset for offset in (files.active_base_offset, stable_end_offset) if offset is not None]
    status = PartitionStatus(
        topic_partition=files.topic_partition,
        leads=leads,
        local_start_offset=gone[0].base_offset if gone else files.first_offset,
        local_end_offset=max(local_ends, default=None),
        archived_end_offset=archived_end_offset,
        at_risk_end_offset=at_risk_end_offset,
        is_retention_known=not listed or policy.is_retention_known,
        hole=error.hole if isinstance(error, CoverageHole) else None,
        reason=reason,
        error=None if error is None else type(error).__name__,
        error_text="" if error is None else advised(error),
        condition=None if plan is None else _condition_of(plan),
    )
    return backlog_of(context, files, gone, listed).applied_to(status)


def backlog_of(
    context: RunContext, files: PartitionFiles, gone: Sequence[SegmentFiles], listed: Sequence[SegmentFiles]
) -> BacklogChanged:
    """What waits: these segments, of which `gone` are only pinned."""
    pending = (*gone, *listed)
    return BacklogChanged(
        files.topic_partition,
        pending_segments=len(pending),
        pending_bytes=sum([segment.size_bytes for segment in pending]),
        oldest_pending_ms=min(pending, key=attrgetter("log.mtime_ns")).log.mtime_ms if pending else None,
        deadline_ms=first_deadline_ms(context, files, gone, listed),
        pinned_deleted_bytes=sum(segment.size_bytes for segment in gone),
    )


def _condition_of(plan: PartitionPlan) -> PartitionCondition:
    if not plan.facts.leads:
        return PartitionCondition.NOT_LED
    if plan.segments:
        return PartitionCondition.READY
    return PartitionCondition.WAITING if plan.waiting else PartitionCondition.IDLE


def status_of_unreadable(topic_partition: TopicPartition, error: PartitionError) -> PartitionStatus:
    """A partition of which not even the files can be listed. Its leader is unknown: it may be this broker."""
    return PartitionStatus(topic_partition, True, None, None, error=type(error).__name__, error_text=advised(error))


def above(segments: tuple[SegmentFiles, ...], archived_end_offset: int | None) -> tuple[SegmentFiles, ...]:
    """Those that reach above the archive; ascending as they came. `archived_end_offset`: None if it has nothing."""
    end_offset = -1 if archived_end_offset is None else archived_end_offset
    return segments[bisect_right(segments, end_offset, key=attrgetter("end_offset")) :]


def first_deadline_ms(
    context: RunContext, files: PartitionFiles, gone: Sequence[SegmentFiles], listed: Sequence[SegmentFiles]
) -> int | None:
    """When the broker deletes the first of these, None for never, or if there is none; now, where it has deleted some."""
    if gone:
        return context.clock.now_ms()
    return segment_deadline_ms(context, files, listed[0]) if listed else None


def segment_deadline_ms(context: RunContext, files: PartitionFiles, segment: SegmentFiles) -> int | None:
    """When the broker deletes a segment that is there; None for never, or if it is not known."""
    policy = context.facts.policy(files.topic_partition.topic)
    if policy.local_limit_ms is None and policy.local_limit_bytes is None:
        return None
    return deletion_deadline_ms(
        files, segment, policy, context.disk.largest_timestamp_ms(segment), context.clock.now_ms()
    )


def _at_risk_end_offset(context: RunContext, files: PartitionFiles, listed: Sequence[SegmentFiles]) -> int | None:
    """The end of those that the broker deletes soon, None if it deletes none so soon."""
    soon_ms, end_offset = context.clock.now_ms() + AT_RISK_MS, None
    for segment in islice(listed, AT_RISK_SEGMENTS_MAX):
        deadline_ms = segment_deadline_ms(context, files, segment)
        if deadline_ms is None or deadline_ms >= soon_ms:
            break
        end_offset = segment.end_offset
    return end_offset
