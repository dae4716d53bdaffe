"""Who may write to a partition's archive: the broker that leads it, as long as no later leader has committed. Pure."""

from __future__ import annotations

from sidecar.archive.state import PartitionState
from sidecar.errors import Fenced, SegmentChanged
from sidecar.partition.facts import PartitionFacts


def require_not_fenced(facts: PartitionFacts, archive: PartitionState) -> None:
    """Raise Fenced if a writer with a higher leader epoch has committed.

    The commit log would refuse the commit too, but only after gigabytes were uploaded for it, each time again.
    """
    if facts.leader_epoch < archive.highest_leader_epoch:
        raise Fenced(
            f"{facts.topic_partition}: this broker knows leader epoch {facts.leader_epoch}, the archive below "
            f"{archive.lineage.root} has a commit under leader epoch {archive.highest_leader_epoch}: another broker leads; "
            "nothing was uploaded. If this broker does lead, its metadata or its leader-epoch-checkpoint is an older copy: connect "
            "to the broker, or set store.url to another prefix"
        )


def require_leads(planned: PartitionFacts, now: PartitionFacts, end_offset: int = 0) -> None:
    """Raise Fenced unless this broker still leads under the leader epoch of the plan.

    SegmentChanged if the stable offsets end below `end_offset` now. Under one leader epoch it never falls while the leader runs:
    the topic was created again, its epochs too, or the leader restarted with a shorter log, which with ZooKeeper needs
    no new epoch.
    """
    partition = planned.topic_partition
    if not now.leads or now.leader_epoch != planned.leader_epoch:
        raise Fenced(
            f"{partition}: leadership changed during the upload (leader epoch {planned.leader_epoch} then, "
            f"{now.leader_epoch if now.leads else 'not leading'} now); nothing was committed"
        )
    if now.stable_end_offset < end_offset:
        raise SegmentChanged(
            f"{partition}: the last stable offset was {planned.stable_end_offset} when offsets up to "
            f"{end_offset} were read, and is {now.stable_end_offset} now: the topic was re-created, or the leader "
            "restarted with a shorter log. Nothing was committed, and the sidecar retries"
        )


def effective_log_start(facts: PartitionFacts, archive: PartitionState) -> int:
    """The log start below which records must win over no other: the leader's, or that of the archive if it is higher."""
    return max(facts.known_log_start, archive.deleted_before_offset)


def require_none_deleted(
    planned: PartitionFacts, now: PartitionFacts, archive: PartitionState, base_offset: int
) -> None:
    """Raise SegmentChanged if records that took part in a group's decisions are deleted by now, or if that is unknown."""
    is_known = now.cluster_start_offset is not None or planned.cluster_start_offset is None
    start_offset = effective_log_start(now, archive)
    if not is_known or start_offset > base_offset:
        where = f"begins at {start_offset}" if is_known else "begins at an offset that the leader does not report"
        raise SegmentChanged(
            f"{planned.topic_partition}: segments from offset {base_offset} were compacted together, and now the "
            f"log {where}: a record that was deleted since may have been retained. Nothing was committed, and the "
            "segments are archived as they are"
        )
