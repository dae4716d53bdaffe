"""What waits for the archive, over all partitions."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable

from sidecar.clock import Clock
from sidecar.model import TopicPartition
from sidecar.partition.domain_events import BacklogChanged
from sidecar.partition.status import PartitionStatus


class Backlog:
    """How old it is, and when the broker deletes the first segment of it; active segments count for that, too.

    It changes with each commit, since a cycle may last for minutes. Thread-safe.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[TopicPartition, PartitionStatus | BacklogChanged] = {}
        self._unknown: set[TopicPartition] = set()
        self._active_ms: list[int] = []
        self._is_checked = False

    def checked(self, statuses: Iterable[PartitionStatus]) -> None:
        """These are all partitions."""
        waiting = {status.topic_partition: status for status in statuses}
        with self._lock:
            self._is_checked, self._waiting = True, {**waiting}
            self._unknown = {name for name, status in waiting.items() if not status.is_retention_known}
            deadlines_ms = (status.active_deadline_ms for status in waiting.values())
            self._active_ms = [deadline_ms for deadline_ms in deadlines_ms if deadline_ms is not None]

    def changed(self, backlog: BacklogChanged) -> None:
        with self._lock:
            self._waiting[backlog.topic_partition] = backlog
            if not backlog.pending_segments:
                self._unknown.discard(backlog.topic_partition)

    def segments(self) -> int:
        with self._lock:
            return sum(found.pending_segments for found in self._waiting.values())

    def oldest_age_s(self) -> float:
        """0 if nothing waits."""
        with self._lock:
            oldest_ms = [
                found.oldest_pending_ms for found in self._waiting.values() if found.oldest_pending_ms is not None
            ]
        return max(0.0, (self._clock.now_ms() - min(oldest_ms)) / 1000) if oldest_ms else 0.0

    def at_risk_in_s(self) -> float:
        """+Inf while nothing is at risk, NaN while that is unknown: before the first check, too."""
        with self._lock:
            deadlines_ms = [found.deadline_ms for found in self._waiting.values() if found.deadline_ms is not None]
            first_ms = min((*deadlines_ms, *self._active_ms), default=None)
            if first_ms is None:
                return math.nan if self._unknown or not self._is_checked else math.inf
        return max(0.0, (first_ms - self._clock.now_ms()) / 1000)

    def unknown(self) -> int:
        """Partitions of which it is unknown when the broker deletes what waits."""
        return len(self._unknown)
