"""A partition as it is handed to a compaction job of `run`, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.archive.state import PartitionState
from sidecar.commits.commit_log import CommitConflict
from sidecar.compactor.candidate_queue import LedPartition
from sidecar.compactor.policy import Assessment
from sidecar.config import CompactionPolicy
from sidecar.errors import SidecarError
from sidecar.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Compacting:
    """A partition that is to be compacted now, up to its first uncleanable offset."""

    led: LedPartition
    policy: CompactionPolicy
    assessment: Assessment


@dataclass(frozen=True, slots=True)
class Compacted:
    """How that ended: figures of what was committed, or an error. See `PartitionCompaction.is_unknown`.

    `unkeyed`: records without key, which the compaction dropped. `malformed_versions`: those that no compaction has met before.
    """

    topic_partition: TopicPartition
    error: SidecarError | None = None
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    unkeyed: int = 0
    malformed_versions: int = 0


class DeletionUnnoted(CommitConflict):
    """Records below `before_offset` look deleted on the broker since the job began; nothing was committed."""

    def __init__(self, message: str, state: PartitionState, before_offset: int) -> None:
        super().__init__(message, state)
        self.before_offset = before_offset
