"""Were records deleted on purpose? The leader's log start tells, where no retention can have moved it there."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.archive.actions import DeleteRecords
from sidecar.archive.state import PartitionState
from sidecar.errors import PartitionError
from sidecar.model import PartitionFiles
from sidecar.partition.archive_borders import Borders, borders_of
from sidecar.partition.facts import PartitionFacts
from sidecar.pipeline.losses.log_start_history import LogStartHistory, active_below


def deleted_on_purpose(
    facts: PartitionFacts,
    state: PartitionState,
    starts: LogStartHistory,
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
    What counted once goes on to count where retention has moved the start on before anything was committed.

    Args:
        state: the archive, or its newest part, before that commit.
        starts: has seen all looks under this leadership.
        end_offset: of the archive after that commit.
        read_whole: reads all of the archive; called only where all else speaks for DeleteRecords, and `starts` has no borders.

    Raises StoreError.
    Source: UnifiedLog.deleteOldSegments, UnifiedLog.maybeIncrementLogStartOffset, ReplicaFetcherThread.processPartitionData,
    ReplicaAlterLogDirsThread.processPartitionData.
    """
    inside = starts.inside
    if inside is None or min(inside, end_offset) <= state.deleted_before_offset:
        return []
    before_offset = _deleted_before(facts, state, starts, inside, read_whole)
    return [] if before_offset is None else [DeleteRecords(min(before_offset, end_offset))]


def deleted_in_hole(
    files: PartitionFiles,
    facts: PartitionFacts,
    state: PartitionState,
    starts: LogStartHistory,
    hole: tuple[int, int],
    read_whole: Callable[[], PartitionState],
) -> int:
    """Up to which offset a hole above the archive went with records that were deleted on purpose; its begin if none did.

    The same signs count. The log start may lie in the active segment, too: nothing has to be archived before that is known.

    Raises StoreError.
    """
    start_offset, told = starts.inside, facts.cluster_start_offset
    if told is not None and told >= hole[1] > (start_offset or 0) and facts.leader_epoch >= 0:
        active = active_below(files, told)
        start_offset = told if active is not None and starts.is_in_ours(active, facts, told) else start_offset
    if start_offset is None or start_offset <= hole[0]:
        return hole[0]
    before_offset = _deleted_before(facts, state, starts, start_offset, read_whole)
    return hole[0] if before_offset is None else min(before_offset, hole[1])


def _deleted_before(
    facts: PartitionFacts,
    state: PartitionState,
    starts: LogStartHistory,
    start_offset: int,
    read_whole: Callable[[], PartitionState],
) -> int | None:
    """A log start inside a segment, None if it may have been the border of another."""
    known = starts.borders
    if known is not None:
        starts.borders = known.up_to(state)
    if start_offset == starts.border:
        return None
    try:
        if borders_of(state).may_have(start_offset) or _all_borders(starts, start_offset, read_whole).may_have(
            start_offset
        ):
            starts.border = start_offset
            return None
    except PartitionError as error:
        starts.report_unknown(facts, start_offset, error)
        return None
    return start_offset


def _all_borders(starts: LogStartHistory, start_offset: int, read_whole: Callable[[], PartitionState]) -> Borders:
    """Of the whole archive from a log start on, which only grows: read once. Raises what reading raises."""
    known = starts.borders
    if known is None or start_offset < known.from_offset:
        known = borders_of(read_whole())
    starts.borders = known = known.above(start_offset)
    return known
