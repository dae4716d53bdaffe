"""When the broker deletes the first segment that is not archived, over all partitions."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from sidecar.metrics.broker import BrokerMetrics
from sidecar.model import TopicPartition
from sidecar.partition.domain_events import BacklogChanged
from sidecar.partition.status import PartitionStatus


class RetentionRisk:
    """Active segments count too. It changes with each commit, since a cycle may last for minutes. Thread-safe."""

    def __init__(self, metrics: BrokerMetrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._deadlines_ms: dict[TopicPartition, int] = {}
        self._active_first_ms: int | None = None
        self._unknown: set[TopicPartition] = set()

    def checked(self, statuses: Iterable[PartitionStatus]) -> None:
        """These are all partitions."""
        with self._lock:
            self._deadlines_ms, self._unknown, active_ms = {}, set(), list[int]()
            for status in statuses:
                if status.deadline_ms is not None:
                    self._deadlines_ms[status.topic_partition] = status.deadline_ms
                if status.active_deadline_ms is not None:
                    active_ms.append(status.active_deadline_ms)
                if not status.is_retention_known:
                    self._unknown.add(status.topic_partition)
            self._active_first_ms = min(active_ms, default=None)
            self._show_first()

    def changed(self, backlog: BacklogChanged) -> None:
        """One more segment of this partition is in the archive."""
        with self._lock:
            self._deadlines_ms.pop(backlog.topic_partition, None)
            if backlog.deadline_ms is not None:
                self._deadlines_ms[backlog.topic_partition] = backlog.deadline_ms
            if backlog.oldest_pending_ms is None:
                self._unknown.discard(backlog.topic_partition)
            self._show_first()

    def _show_first(self) -> None:
        active_ms = () if self._active_first_ms is None else (self._active_first_ms,)
        first_ms = min((*self._deadlines_ms.values(), *active_ms), default=None)
        self._metrics.at_risk(first_ms, unknown=len(self._unknown))
