"""What commits say of offsets that are gone: were records deleted on purpose, or are they lost?

The leader's log start shows it, where no retention can have moved it there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sidecar import __version__
from sidecar.archive.actions import Action, DeleteRecords, LossReason, Lost
from sidecar.archive.commit import Writer
from sidecar.archive.state import PartitionState
from sidecar.commits.archive_view import ArchiveView
from sidecar.commits.stored_commits import proves_not_committed
from sidecar.errors import PartitionError, SidecarError
from sidecar.model import PartitionFiles
from sidecar.partition.domain_events import Emit, committed_events
from sidecar.partition.facts import PartitionFacts, require_leads
from sidecar.partition.plan import PartitionPlan
from sidecar.ports import HasEmit, HasFacts, HasInstance
from sidecar.retention.log_starts import LogStarts, active_below, borders_of
from sidecar.segment.log_disk import HasDisk, LogDisk


class RecordingPorts(HasDisk, HasEmit, HasFacts, HasInstance, Protocol):
    """What this takes of the world."""


@dataclass(frozen=True, slots=True)
class LogStartCheck:
    """What a leader's log start says of deleted records. What is not known is not said.

    A leader's own retention moves the log start to the base of one of its segments; only DeleteRecords moves it into one.
    But a follower gets its leader's log start, which may lie inside a segment of its own, and becomes leader later.
    So a start inside a segment counts only if it was moved there under this broker's leadership. It was seen to move, or a
    batch below it was written under this very leader epoch: no log reached up to there before that epoch. A tiered topic's start
    moves to borders of segments that earlier leaders uploaded, all of them below such a batch.
    A replica that is moved to another log dir gets the log start of the one it replaces in the same way, and under the same
    leader epoch. The segments of the replaced one were archived as they rolled: so a start where one of the archive begins
    or ends does not count, nor one inside a segment that was merged from several. What is left is a start that retention
    moved during such a move beyond all that was archived.
    What counted once goes on to count where retention has moved the start on before anything was committed.

    `state`: the archive, or its newest part, before the next commit. `read_whole`: reads all of it; called only where all else
    speaks for DeleteRecords, and `starts` has no borders. `starts`: of all checks under this leadership. Raises StoreError.

    Source: UnifiedLog.deleteOldSegments, UnifiedLog.maybeIncrementLogStartOffset, ReplicaFetcherThread.processPartitionData,
    ReplicaAlterLogDirsThread.processPartitionData.
    """

    facts: PartitionFacts
    state: PartitionState
    read_whole: Callable[[], PartitionState]
    emit: Emit

    def deleted_on_purpose(self, starts: LogStarts, end_offset: int) -> tuple[list[DeleteRecords], LogStarts]:
        """What the next commit is to say: one action or none. `end_offset`: of the archive after that commit."""
        start_offset, deleted_before_offset = starts.below_files or 0, self.state.deleted_before_offset
        if max(starts.inside or 0, deleted_before_offset) < start_offset <= (self.state.end_offset or 0):
            starts = self._with_start_below_files(starts, start_offset)
        inside = starts.inside
        if inside is None or min(inside, end_offset) <= deleted_before_offset:
            return [], starts
        before_offset, starts = self._deleted_before(starts, inside)
        return [] if before_offset is None else [DeleteRecords(min(before_offset, end_offset))], starts

    def deleted_in(
        self, hole: tuple[int, int], starts: LogStarts, files: PartitionFiles, disk: LogDisk
    ) -> tuple[int, LogStarts]:
        """Up to which offset a gap above the archive is of records that were deleted on purpose; its begin if none are.

        The log start may lie in the active segment, too: nothing has to be archived before that is known.
        """
        facts, start_offset, reported = self.facts, starts.inside, self.facts.cluster_start_offset
        if reported is not None and reported >= hole[1] > (start_offset or 0) and facts.leader_epoch >= 0:
            active = active_below(files, reported)
            if active is not None:
                starts = starts.with_read(active, facts, reported, disk, self.emit)
                start_offset = reported if starts.is_in_ours(reported) else start_offset
        if start_offset is None or start_offset <= hole[0]:
            return hole[0], starts
        before_offset, starts = self._deleted_before(starts, start_offset)
        return hole[0] if before_offset is None else min(before_offset, hole[1]), starts

    def _with_start_below_files(self, starts: LogStarts, start_offset: int) -> LogStarts:
        """Knowing whether DeleteRecords has moved the log start to where only the broker's own tier has the segments.

        Remote retention moves it to the end of a segment, which under this leader epoch is a border of the archive, too.
        Source: RemoteLogManager.cleanupExpiredRemoteLogSegments.
        """
        before_offset, starts = self._deleted_before(starts, start_offset)
        if before_offset is None or (starts.read is not None and starts.read[0] == start_offset):
            return starts
        try:
            whole = self.state if self.state.is_whole else self.read_whole()
            starts = starts.with_archived(whole, self.facts, start_offset)
        except PartitionError as error:
            return starts.with_unknown(self.facts, start_offset, error, self.emit)
        return replace(starts, inside=start_offset) if starts.is_in_ours(start_offset) else starts

    def _deleted_before(self, starts: LogStarts, start_offset: int) -> tuple[int | None, LogStarts]:
        """A log start inside a segment, None if it may have been the border of another."""
        if starts.borders is not None:
            starts = replace(starts, borders=starts.borders.up_to(self.state))
        if start_offset == starts.border:
            return None, starts
        try:
            is_border = borders_of(self.state).may_have(start_offset)
            if not is_border:
                borders = starts.borders
                if borders is None or start_offset < borders.from_offset:
                    borders = borders_of(self.read_whole())
                borders = borders.above(start_offset)  # A log start only grows: the archive is read once.
                starts, is_border = replace(starts, borders=borders), borders.may_have(start_offset)
        except PartitionError as error:
            return None, starts.with_unknown(self.facts, start_offset, error, self.emit)
        return (None, replace(starts, border=start_offset)) if is_border else (start_offset, starts)


def record_lost(
    context: RecordingPorts,
    known: ArchiveView,
    plan: PartitionPlan,
    starts: LogStarts,
    hole: tuple[int, int],
) -> tuple[PartitionState, LogStarts]:
    """Commit that the offsets above the archive's end are lost, or, up to one of them, deleted on purpose.

    Returns the state after that, and what was found out of the log's beginning. Raises CommitConflict, OutcomeUnknown,
    and the errors of `require_leads` and the store.
    """
    state, commits = known.opened()
    require_leads(plan.facts, context.facts.confirm(plan.files))
    check = LogStartCheck(plan.facts, state, commits.read, context.emit)
    deleted_end, starts = check.deleted_in(hole, starts, plan.files, context.disk)
    said: list[Action] = [*lost_below(hole, deleted_end)]
    # Whoever restores what lies below is to know, too, if nothing is ever archived above.
    if deleted_end > max(hole[0], state.deleted_before_offset):
        said.append(DeleteRecords(deleted_end))
    try:
        after = commits.append(said, writer_of(context, plan.facts), state)
    except SidecarError as error:
        if not proves_not_committed(error):
            # If it is stored, the next task finds no gap to record. Reporting twice is better than never.
            emit_committed(context, plan.facts, said)
        raise
    emit_committed(context, plan.facts, said)
    return known.recorded(after, plan.files), starts


def lost_below(gap: tuple[int, int], deleted_end: int) -> list[Lost]:
    """What a commit says of a gap: its offsets below `deleted_end` were deleted on purpose, the others are lost."""
    border = min(max(gap[0], deleted_end), gap[1])
    said = [Lost(gap[0], border, LossReason.DELETED_FIRST), Lost(border, gap[1], LossReason.NOT_ON_DISK)]
    return [found for found in said if found.base_offset < found.end_offset]


def emit_committed(context: RecordingPorts, facts: PartitionFacts, said: Sequence[Action]) -> None:
    for event in committed_events(facts.topic_partition, said, facts.leader_epoch, facts.cluster_start_offset):
        context.emit(event)


def writer_of(context: RecordingPorts, facts: PartitionFacts) -> Writer:
    return Writer(context.facts.broker_id(), facts.leader_epoch, context.instance, f"tiered-sidecar {__version__}")
