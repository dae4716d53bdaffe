"""Goes on above offsets that are gone from the disk: the archive says so first, and so do log and metrics."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.archive.actions import Action, DeleteRecords, LossReason, Lost
from sidecar.archive.state import PartitionState
from sidecar.commits.put_once import proves_not_committed
from sidecar.errors import SidecarError
from sidecar.model import SegmentFiles
from sidecar.partition.domain_events import OffsetsLost, committed_events
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import PartitionPlan
from sidecar.pipeline.fencing import require_leadership, writer_of
from sidecar.pipeline.known_archive import KnownArchive
from sidecar.pipeline.losses.deleted_records import deleted_in_hole
from sidecar.pipeline.tools import Tools


def pass_over(
    tools: Tools, known: KnownArchive, plan: PartitionPlan, segment: SegmentFiles, lost: tuple[int, int]
) -> None:
    """Record a segment as lost of which there is nothing. Raises SegmentChanged, and what `record_lost` raises."""
    tools.disk.require_unchanged(segment, plan.files)
    if known.opened()[0].end_offset is not None:
        record_lost(tools, known, plan, lost)
        return
    if lost[1] <= known.told_lost_below:
        return  # At an earlier try: no commit of this one has come through since.
    known.told_lost_below = lost[1]
    reason = f"{LossReason.NOT_ON_DISK}; the archive begins behind them"
    found = OffsetsLost(segment.topic_partition, *lost, reason, plan.facts.cluster_start_offset, is_recorded=False)
    tools.emit(found)


def record_lost(tools: Tools, known: KnownArchive, plan: PartitionPlan, hole: tuple[int, int]) -> PartitionState:
    """Commit that the offsets above the archive's end are lost, or, up to one of them, deleted on purpose; the state after that.

    Raises CommitConflict, OutcomeUnknown, and the errors of `require_leadership` and the store.
    """
    state, commits = known.opened()
    require_leadership(tools, plan.files, plan.facts)
    said = _what_is_said(state, known, plan, hole, commits.read)
    try:
        after = commits.append(said, writer_of(tools, plan.facts), state)
    except SidecarError as error:
        if not proves_not_committed(error):
            # If it is stored, the next turn finds no gap to record. Reporting twice is better than never.
            _emit(tools, plan.facts, said)
        raise
    _emit(tools, plan.facts, said)
    return known.recorded(after, plan.files)


def _what_is_said(
    state: PartitionState,
    known: KnownArchive,
    plan: PartitionPlan,
    hole: tuple[int, int],
    read_whole: Callable[[], PartitionState],
) -> list[Action]:
    deleted_end = deleted_in_hole(plan.files, plan.facts, state, known.starts, hole, read_whole)
    said: list[Action] = []
    if deleted_end > hole[0]:
        said.append(Lost(hole[0], deleted_end, LossReason.DELETED_FIRST))
    if deleted_end < hole[1]:
        said.append(Lost(deleted_end, hole[1], LossReason.NOT_ON_DISK))
    # Whoever restores what lies below is to know, too, if nothing is ever archived above.
    if deleted_end > max(hole[0], state.deleted_before_offset):
        said.append(DeleteRecords(deleted_end))
    return said


def _emit(tools: Tools, facts: PartitionFacts, said: list[Action]) -> None:
    for event in committed_events(facts.topic_partition, said, facts.leader_epoch, facts.cluster_start_offset):
        tools.emit(event)
