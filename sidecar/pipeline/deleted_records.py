"""Were records deleted on purpose? The leader's log start tells, where no retention can have moved it there."""

from __future__ import annotations

import structlog

from sidecar.archive.actions import DeleteRecords
from sidecar.archive.state import PartitionState
from sidecar.model import PartitionFiles
from sidecar.pipeline.batch_search import leader_epoch_below
from sidecar.ports import PartitionFacts
from sidecar.topic_policy import TopicPolicy

_log = structlog.get_logger(__name__)


class LogStarts:
    """Where the leader's log began when this broker was first seen to lead, under each of its leader epochs."""

    def __init__(self) -> None:
        self._leader_epoch = -1
        self._first_start_offset: int | None = None

    def see(self, facts: PartitionFacts) -> None:
        """What a look at the partition told."""
        if facts.leader_epoch != self._leader_epoch:
            self._leader_epoch, self._first_start_offset = facts.leader_epoch, None
        if facts.leads and self._first_start_offset is None:
            self._first_start_offset = facts.cluster_start_offset

    def has_moved(self, facts: PartitionFacts) -> bool:
        """Whether the log start of these facts is higher than it was, under one and the same leader epoch of ours."""
        first, now = self._first_start_offset, facts.cluster_start_offset
        return facts.leader_epoch == self._leader_epoch and first is not None and now is not None and now > first


def deleted_on_purpose(
    files: PartitionFiles,
    facts: PartitionFacts,
    policy: TopicPolicy,
    state: PartitionState,
    starts: LogStarts,
    end_offset: int,
) -> list[DeleteRecords]:
    """What the next commit is to say of deleted records: one action or none. What is not known for certain is not said.

    A leader's own retention moves the log start to the base of one of its segments; only DeleteRecords moves it into one.
    But a follower takes over its leader's log start, which may lie inside a segment of its own, and becomes leader later.
    So a start inside a segment counts only if it was moved there under this broker's leadership: it was seen to move, or a
    batch below it was written under this very leader epoch, before which no log reached up to there. A tiered topic's start
    moves to borders of segments that earlier leaders uploaded, all of them below such a batch.

    Args:
        state: the archive, or its newest part.
        end_offset: of the archive after that commit.

    Raises SegmentChanged or PartitionError where a segment cannot be read.
    Source: UnifiedLog.deleteOldSegments, UnifiedLog.maybeIncrementLogStartOffset, ReplicaFetcherThread.processPartitionData.
    """
    start_offset = facts.cluster_start_offset
    if start_offset is None or facts.leader_epoch < 0 or min(start_offset, end_offset) <= state.deleted_before_offset:
        return []
    inside = next((found for found in files.segments if found.base_offset < start_offset < found.end_offset), None)
    if inside is None:
        return []
    is_seen = starts.has_moved(facts) and not policy.unanswered and not policy.remote_storage_enable
    if not is_seen and leader_epoch_below(inside, start_offset) != facts.leader_epoch:
        return []
    return [DeleteRecords(min(start_offset, end_offset))]


def tell_deleted(facts: PartitionFacts, said: list[DeleteRecords]) -> None:
    """A commit says that records were deleted: nobody may find that out by a restore only."""
    for action in said:
        _log.warning(
            "records_deleted",
            partition=str(facts.topic_partition),
            before_offset=action.before_offset,
            log_start_offset=facts.cluster_start_offset,
            leader_epoch=facts.leader_epoch,
            reason="the log start was moved into a segment while this broker led, as only DeleteRecords does",
            action="restore leaves out what lies below; restore --deleted-records restore brings it back",
        )
