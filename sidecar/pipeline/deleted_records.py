"""Were records deleted on purpose? The leader's log start tells, where no retention can have moved it there."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from sidecar.archive.actions import Action, DeleteRecords
from sidecar.archive.state import PartitionState
from sidecar.errors import PartitionError
from sidecar.model import PartitionFiles, SegmentFiles, TopicPartition
from sidecar.pipeline.archive_borders import Borders, borders_of
from sidecar.pipeline.batch_search import leader_epoch_below
from sidecar.ports import PartitionFacts
from sidecar.topic_policy import TopicPolicy

_log = structlog.get_logger(__name__)


class LogStarts:
    """Where the leader's log began when this broker was first seen to lead, under each leader epoch and in each directory.

    `border`: a log start of that time that is one of the archive's borders. `unknown`: one that could not be looked into.
    `borders`: those of the whole archive that a log start may still meet under this leadership, once they had to be read.
    """

    def __init__(self) -> None:
        self._seen: tuple[int, tuple[int, int]] | None = None
        self._first_start_offset: int | None = None
        self.border: int | None = None
        self.unknown: int | None = None
        self.borders: Borders | None = None

    def see(self, facts: PartitionFacts, directory_id: tuple[int, int]) -> None:
        """What a look at the partition told. A log that is moved to another log dir keeps the leader epoch, not the borders."""
        if (facts.leader_epoch, directory_id) != self._seen:
            self._seen = facts.leader_epoch, directory_id
            self._first_start_offset = self.border = self.borders = None
        if facts.leads and self._first_start_offset is None:
            self._first_start_offset = facts.cluster_start_offset

    def has_moved(self, facts: PartitionFacts) -> bool:
        """Whether the log start of these facts is higher than it was, under one and the same leader epoch of ours."""
        first, now = self._first_start_offset, facts.cluster_start_offset
        return (
            self._seen is not None
            and facts.leader_epoch == self._seen[0]
            and first is not None
            and now is not None
            and now > first
        )


def deleted_on_purpose(
    files: PartitionFiles,
    facts: PartitionFacts,
    policy: TopicPolicy,
    state: PartitionState,
    starts: LogStarts,
    end_offset: int,
    read_whole: Callable[[], PartitionState],
) -> list[DeleteRecords]:
    """What the next commit is to say of deleted records: one action or none. What is not known is not said.

    A leader's own retention moves the log start to the base of one of its segments; only DeleteRecords moves it into one.
    But a follower takes over its leader's log start, which may lie inside a segment of its own, and becomes leader later.
    So a start inside a segment counts only if it was moved there under this broker's leadership: it was seen to move, or a
    batch below it was written under this very leader epoch, before which no log reached up to there. A tiered topic's start
    moves to borders of segments that earlier leaders uploaded, all of them below such a batch.
    A replica that is moved to another log dir takes over the log start of the one it replaces just so, and under the same
    leader epoch. The segments of the replaced one were archived as they rolled: so a start where one of the archive begins
    or ends does not count, nor one inside a segment that was merged from several. What is left is a start that retention
    moved during such a move beyond all that was archived.

    Args:
        state: the archive, or its newest part, before that commit.
        end_offset: of the archive after that commit.
        read_whole: reads all of the archive; called only where all else speaks for DeleteRecords, and `starts` has no borders.

    Raises StoreError.
    Source: UnifiedLog.deleteOldSegments, UnifiedLog.maybeIncrementLogStartOffset, ReplicaFetcherThread.processPartitionData,
    ReplicaAlterLogDirsThread.processPartitionData.
    """
    start_offset = facts.cluster_start_offset
    if start_offset is None or min(start_offset, end_offset) <= state.deleted_before_offset:
        return []
    inside = next((found for found in files.segments if found.base_offset < start_offset < found.end_offset), None)
    if inside is None or not _is_moved_into(inside, start_offset, facts, policy, state, starts, read_whole):
        return []
    return [DeleteRecords(min(start_offset, end_offset))]


def is_hole_deleted(
    files: PartitionFiles,
    facts: PartitionFacts,
    policy: TopicPolicy,
    state: PartitionState,
    starts: LogStarts,
    end_offset: int,
    read_whole: Callable[[], PartitionState],
) -> bool:
    """Whether what is missing above the archive went with records that were deleted on purpose, by the same signs.

    The log start may lie in the active segment, too: nothing has to be archived before that is known.

    Args:
        end_offset: of what is missing.

    Raises StoreError.
    """
    start_offset = facts.cluster_start_offset
    if start_offset is None or start_offset < end_offset:
        return False
    inside = next((found for found in files.segments if found.base_offset < start_offset < found.end_offset), None)
    inside = inside or _active_below(files, start_offset)
    return inside is not None and _is_moved_into(inside, start_offset, facts, policy, state, starts, read_whole)


def _active_below(files: PartitionFiles, start_offset: int) -> SegmentFiles | None:
    """The active segment, as one that ends behind an offset inside of it; None if it does not begin below."""
    log, base_offset = files.active_log, files.active_base_offset
    if log is None or base_offset is None or base_offset >= start_offset:
        return None
    name, end_offset = files.topic_partition, start_offset + 1
    return SegmentFiles(name, files.log_dir, base_offset, end_offset, log, None, None, None, None)


def _is_moved_into(
    inside: SegmentFiles,
    start_offset: int,
    facts: PartitionFacts,
    policy: TopicPolicy,
    state: PartitionState,
    starts: LogStarts,
    read_whole: Callable[[], PartitionState],
) -> bool:
    if starts.borders is not None:
        starts.borders = starts.borders.up_to(state)
    if facts.leader_epoch < 0 or start_offset == starts.border:
        return False
    is_seen = starts.has_moved(facts) and not policy.unanswered and not policy.remote_storage_enable
    try:
        if not is_seen and leader_epoch_below(inside, start_offset) != facts.leader_epoch:
            return False
        if borders_of(state).may_have(start_offset) or _all_borders(starts, start_offset, read_whole).may_have(
            start_offset
        ):
            starts.border = start_offset
            return False
    except PartitionError as error:
        # What lies below the archive's end must not keep what lies above it from being archived.
        if start_offset != starts.unknown:
            starts.unknown = start_offset
            _tell_unknown(facts, error)
        return False
    return True


def _all_borders(starts: LogStarts, start_offset: int, read_whole: Callable[[], PartitionState]) -> Borders:
    """Of the whole archive from a log start on, which only grows: read once. Raises what reading raises."""
    known = starts.borders
    if known is None or start_offset < known.from_offset:
        known = borders_of(read_whole())
    starts.borders = known.above(start_offset)
    return starts.borders


def tell_deleted(
    partition: TopicPartition, said: Iterable[Action], leader_epoch: int, log_start_offset: int | None = None
) -> None:
    """A commit of ours says that records were deleted: nobody may find that out by a restore only.

    Args:
        said: all that it says.
        log_start_offset: of the leader, None where it is not known any more.
    """
    for action in said:
        if isinstance(action, DeleteRecords):
            _log.warning(
                "records_deleted",
                partition=str(partition),
                before_offset=action.before_offset,
                log_start_offset=log_start_offset,
                leader_epoch=leader_epoch,
                reason="the log start was moved into a segment while this broker led, as only DeleteRecords does",
                action="restore leaves out what lies below; restore --deleted-records restore brings it back",
            )


def tell_hole_deleted(facts: PartitionFacts, hole: tuple[int, int]) -> None:
    """A commit of ours names a hole that is no loss: nobody may take it for one, nor overlook it."""
    _log.warning(
        "deleted_before_archived",
        partition=str(facts.topic_partition),
        from_offset=hole[0],
        to_offset=hole[1],
        log_start_offset=facts.cluster_start_offset,
        reason="the log start was moved into a segment above while this broker led, as only DeleteRecords does",
        action="none if that was meant: status and verify will go on to name the hole, and nothing can bring it back",
    )


def _tell_unknown(facts: PartitionFacts, error: PartitionError) -> None:
    _log.warning(
        "deleted_records_unknown",
        partition=str(facts.topic_partition),
        log_start_offset=facts.cluster_start_offset,
        error=str(error),
        action="archiving goes on; if records were deleted on purpose, restore with --offset-range from the log start on",
    )
