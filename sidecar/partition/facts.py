"""What is known of a partition's leadership and stable end at one moment, and the term for which that holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

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

    def since(self, before: Term | None) -> Change:
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

    def is_one_with(self, other: Term) -> bool:
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
