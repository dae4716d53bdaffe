"""What is lost unless it is archived in time: told anew as segments are archived, since a round may last for minutes."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.status import PartitionStatus
from sidecar.pipeline.partition import PartitionArchiver
from sidecar.pipeline.tools import Tools


class Outlook:
    """When the broker deletes the first segment that is not archived, of all partitions, active ones included. Thread-safe."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._lock = threading.Lock()
        self._deadlines_ms: dict[TopicPartition, int] = {}
        self._active_first_ms: int | None = None
        self._unknown: set[TopicPartition] = set()

    def looked(self, looks: Iterable[PartitionStatus]) -> None:
        """A look at the disks is over, and these are all partitions."""
        with self._lock:
            self._deadlines_ms, self._unknown, self._active_first_ms = {}, set(), None
            for look in looks:
                if look.deadline_ms is not None:
                    self._deadlines_ms[look.topic_partition] = look.deadline_ms
                if look.active_deadline_ms is not None:
                    self._active_first_ms = min(
                        self._active_first_ms or look.active_deadline_ms, look.active_deadline_ms
                    )
                if not look.is_retention_known:
                    self._unknown.add(look.topic_partition)
            self._tell()

    def archived(self, archiver: PartitionArchiver, files: PartitionFiles) -> None:
        """One more segment of this partition is in the archive."""
        topic_partition, pending = files.topic_partition, archiver.pending(files)
        deadline_ms = archiver.deadline_ms(files)
        self._tools.metrics.left_pending(topic_partition, pending)
        self._tools.board.threatened(topic_partition, deadline_ms, sum(gone.size_bytes for gone in archiver.held.gone))
        with self._lock:
            self._deadlines_ms.pop(topic_partition, None)
            if deadline_ms is not None:
                self._deadlines_ms[topic_partition] = deadline_ms
            if not pending:
                self._unknown.discard(topic_partition)
            self._tell()

    def _tell(self) -> None:
        active_ms = () if self._active_first_ms is None else (self._active_first_ms,)
        first_ms = min((*self._deadlines_ms.values(), *active_ms), default=None)
        self._tools.metrics.broker.at_risk(first_ms, unknown=len(self._unknown))
