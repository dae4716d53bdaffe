"""What is known of a partition's leadership and stable end at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.term import Term
from sidecar.partition.wait_reason import WaitReason


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What is known of a partition's leadership and stable end at one moment.

    `stable_end_offset` (exclusive): no offset at or above it may be archived. `leader_epoch`: the epoch under which
    this broker leads, -1 if unknown. `reason`: why it may not be archived now, None if it may.
    `transactions_decided`: the stable end is the leader's last stable offset, below which no open transaction begins; else
    only replay can decide. `transaction_open`: the leader has returned the stable end, and it is lower than the high watermark.
    `cluster_start_offset`: the log start of the leader, None where no leader was asked.
    `unanswered`: the cluster says that this broker leads, which does not tell what is stable; so it is for seconds after a start.
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

    def term(self, files: PartitionFiles) -> Term:
        """The term of these facts in the directory that these files were listed in."""
        return Term(self.leader_epoch, files.directory_id, files.topic_id)
