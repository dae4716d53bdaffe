"""Under whom, and in which log, something was seen. What is remembered of a partition holds for one term."""

from __future__ import annotations

from dataclasses import dataclass


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

    def is_one_with(self, other: Term) -> bool:
        """Whether both are one term, though the topic got its id in it.

        An upgrade of the cluster writes `partition.metadata` of a running log, under the leader epoch that it has (KIP-516).
        """
        ids = self.topic_id, other.topic_id
        here, there = (self.leader_epoch, self.directory_id), (other.leader_epoch, other.directory_id)
        return here == there and (None in ids or ids[0] == ids[1])

    def is_same_log(self, other: Term) -> bool:
        """Whether it is the same copy of the same topic's log, under whatever leader."""
        return (self.directory_id, self.topic_id) == (other.directory_id, other.topic_id)
