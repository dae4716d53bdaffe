"""Goes on above offsets that are gone from the disk: the archive says so first, and so do log and metrics."""

from __future__ import annotations

from functools import partial

from sidecar.archive.actions import Lost
from sidecar.archive.state import PartitionState
from sidecar.errors import OutcomeUnknown
from sidecar.model import SegmentFiles
from sidecar.pipeline.deleted_records import is_hole_deleted, tell_hole_deleted
from sidecar.pipeline.fencing import require_leadership, writer_of
from sidecar.pipeline.known_archive import KnownArchive
from sidecar.pipeline.lost_offsets import DELETED_FIRST, NOT_ON_DISK, tell_lost
from sidecar.pipeline.plan import PartitionPlan
from sidecar.pipeline.sources import ensure_unchanged
from sidecar.pipeline.tools import Tools


def pass_over(
    tools: Tools, known: KnownArchive, plan: PartitionPlan, segment: SegmentFiles, lost: tuple[int, int]
) -> None:
    """Record a segment as lost of which there is nothing. Raises SegmentChanged, and what `record_lost` raises."""
    ensure_unchanged(segment, plan.files)
    if known.opened()[0].end_offset is not None:
        record_lost(tools, known, plan, lost)
        return
    if lost[1] <= known.told_lost_below:
        return  # At an earlier try: no commit of this one has come through since.
    known.told_lost_below = lost[1]
    # No archive names what is missing before it begins.
    reason = f"{NOT_ON_DISK}; the archive begins behind them"
    tell_lost(tools, segment.topic_partition, [Lost(*lost, reason)], plan.facts.cluster_start_offset)


def record_lost(tools: Tools, known: KnownArchive, plan: PartitionPlan, hole: tuple[int, int]) -> PartitionState:
    """Commit that the offsets above the archive's end are lost, or were deleted on purpose; the state after that.

    Raises CommitConflict, OutcomeUnknown, and the errors of `require_leadership` and the store.
    """
    state, commits = known.opened()
    require_leadership(tools, plan.files, plan.facts)
    policy = tools.facts.policy(plan.files.topic_partition.topic)
    if is_hole_deleted(plan.files, plan.facts, policy, state, known.starts, hole[1], commits.read):
        lost, tell = [Lost(*hole, DELETED_FIRST)], partial(tell_hole_deleted, plan.facts, hole)
    else:
        lost = [Lost(*hole, NOT_ON_DISK)]
        tell = partial(tell_lost, tools, plan.files.topic_partition, lost, plan.facts.cluster_start_offset)
    try:
        after = commits.append(lost, writer_of(tools, plan.facts), state)
    except OutcomeUnknown:
        tell()  # It may stand: the next look finds no hole to record then. Better told twice than not at all.
        raise
    tell()
    tools.board.grown(plan.files.topic_partition, after.segments, after.holes)
    known.position = None
    return known.keep(after, plan.files)
