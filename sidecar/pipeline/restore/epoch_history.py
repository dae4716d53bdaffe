"""The leader epochs of all that is restored, also where the broker's own checkpoint no longer reached down to it.

A broker cuts its checkpoint at its log's start. What an archive holds below was noted with the segments, when they were archived.
"""

from __future__ import annotations

from sidecar.logformat.leader_epochs import LeaderEpochs, epochs_of, read_leader_epochs
from sidecar.model import ArchivedSegment, LeaderEpoch, PartName
from sidecar.pipeline.restore.plan import PartitionPlan
from sidecar.pipeline.restore.segment_check import fetch_parts
from sidecar.ports import ObjectStore


def epoch_history(store: ObjectStore, plan: PartitionPlan, latest: bytes, start_offset: int) -> LeaderEpochs:
    """The epochs from the restored log's start on, as far as the last segment knows them. Raises CorruptFile, StoreError.

    Message formats below v2 have no epoch, and none is made up for them.

    Args:
        latest: the last segment's checkpoint. From where it begins on, it alone tells.
        start_offset: of the restored log.
    """
    checkpoint = read_leader_epochs(latest)
    if checkpoint.covers(start_offset):
        return checkpoint
    earlier: list[LeaderEpoch] = []
    archived_to = start_offset
    for segment in (found.segment for found in plan.segments):
        if archived_to < segment.base_offset and not checkpoint.covers(archived_to):
            earlier += _in_hole(store, plan, segment, archived_to)
        earlier += segment.leader_epochs
        archived_to = segment.end_offset
    below = [entry for entry in earlier if not checkpoint.covers(entry.start_offset)]
    return epochs_of((entry.epoch, entry.start_offset) for entry in (*below, *checkpoint.entries))


def _in_hole(
    store: ObjectStore, plan: PartitionPlan, segment: ArchivedSegment, hole_offset: int
) -> tuple[LeaderEpoch, ...]:
    """The epochs of the offsets that are lost below a segment: its own map begins at its base, its checkpoint may know more."""
    parts = fetch_parts(store, plan.state.lineage.root, segment)
    return read_leader_epochs(parts[PartName.LEADER_EPOCHS]).in_range(hole_offset, segment.base_offset).entries
