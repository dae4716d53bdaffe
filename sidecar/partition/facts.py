"""What is known of a partition's leadership and stable end at one moment, and the term for which that holds. Pure.

Also who may write to its archive by that: the broker that leads it, as long as no later leader has committed.
"""

from dataclasses import dataclass
from enum import IntEnum

from sidecar.archive.state import PartitionState
from sidecar.errors import Fenced, SegmentChanged, StaleLeadership
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.wait_reason import LeaderUnknown, Wait, WaitReason


class Change(IntEnum):
    """What of a term is another than before. Each kind counts for more than those above it."""

    NONE = 0
    TOPIC_ID = 1
    """Only that the topic got its id: an upgrade of the cluster writes `partition.metadata` of a running log (KIP-516)."""
    LEADER_EPOCH = 2
    LOG = 3
    """Another copy of the log; also at the first time."""
    TOPIC = 4
    """Another topic of that name."""


@dataclass(frozen=True, slots=True)
class Term:
    """A leadership of one log.

    Another leader may have truncated the log, and its sidecar may have gone on with the archive. Another directory has another
    copy of the log, and another topic id is another topic. So what was seen in one term says nothing about the next.

    `leader_epoch`: -1 if unknown. `directory_id`: device and inode. `topic_id`: None where `partition.metadata` does not exist.
    """

    leader_epoch: int
    directory_id: tuple[int, int]
    topic_id: str | None

    def since(self, before: "Term | None") -> Change:
        """What has changed since an earlier term; None: there was none."""
        if before is None:
            return Change.LOG
        ids = self.topic_id, before.topic_id
        if ids[0] != ids[1] and before.topic_id is not None:
            # Also where it has none now: no log loses its id. A new topic's directory may get the inode of a deleted one's, and
            # is without an id until the broker has written `partition.metadata`.
            return Change.TOPIC
        if self.directory_id != before.directory_id:
            return Change.LOG
        if self.leader_epoch != before.leader_epoch:
            return Change.LEADER_EPOCH
        return Change.NONE if ids[0] == ids[1] else Change.TOPIC_ID

    def is_one_with(self, other: "Term") -> bool:
        """Whether both are one term, though the topic got its id in it; whichever is the later one."""
        return min(self.since(other), other.since(self)) <= Change.TOPIC_ID


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """`stable_end_offset` (exclusive): no offset at or above it may be archived. `leader_epoch`: the epoch under which this broker
    leads, -1 if unknown. `reason`: why it may not be archived now, None if it may.
    `transactions_decided`: the stable end is the leader's last stable offset, below which no open transaction begins; else
    only replay can decide. `transaction_open`: the leader has returned the stable end, and it is lower than the high watermark.
    `cluster_start_offset`: the log start of the leader, None where no leader was asked.
    `unanswered`: this broker leads, and does not show the last stable offset, or its files do not; this lasts for seconds after a
    start.
    """

    topic_partition: TopicPartition
    topic_id: str | None
    leads: bool
    leader_epoch: int
    stable_end_offset: int
    log_start_offset: int
    reason: WaitReason | None = None
    transactions_decided: bool = False
    transaction_open: bool = False
    cluster_start_offset: int | None = None
    unanswered: bool = False

    @property
    def names_no_other_leader(self) -> bool:
        """Whether this broker leads, or none does, or the answer does not say which. See `PinnedLog` for what that means."""
        is_open = self.reason is Wait.NO_LEADER or isinstance(self.reason, LeaderUnknown)
        return self.leads or self.unanswered or is_open

    @property
    def known_log_start(self) -> int:
        """The highest log start that is known: a follower's files and checkpoint lag behind what the leader reports."""
        return max(self.log_start_offset, self.cluster_start_offset or 0)

    def term(self, files: PartitionFiles) -> Term:
        return Term(self.leader_epoch, files.directory_id, files.topic_id)


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
    """Raise Fenced unless this broker still leads under the leader epoch of the plan. StaleLeadership for an older answer.

    SegmentChanged if the stable offsets end below `end_offset` now. Under one leader epoch it never falls while the leader runs:
    the topic was created again, its epochs too, or the leader restarted with a shorter log, which with ZooKeeper needs
    no new epoch.
    """
    partition = planned.topic_partition
    if 0 <= now.leader_epoch < planned.leader_epoch:
        raise StaleLeadership(
            f"{partition}: led under leader epoch {planned.leader_epoch}, and the broker that was asked before the commit still "
            f"knows {now.leader_epoch}; nothing was committed. The sidecar retries with what is uploaded"
        )
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
