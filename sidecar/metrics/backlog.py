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
        self._segments = 0
        self._oldest_ms: dict[TopicPartition, int] = {}
        self._deadlines_ms: dict[TopicPartition, int] = {}
        self._unknown: set[TopicPartition] = set()
        self._active_ms: list[int] = []
        self._is_checked = False

    def checked(self, statuses: Iterable[PartitionStatus]) -> None:
        """These are all partitions."""
        with self._lock:
            self._is_checked = True
            self._segments, self._oldest_ms, self._deadlines_ms = 0, {}, {}
            self._unknown, self._active_ms = set(), []
            for status in statuses:
                self._segments += status.pending_segments
                self._waits(status.topic_partition, status.oldest_pending_ms, status.deadline_ms)
                if status.active_deadline_ms is not None:
                    self._active_ms.append(status.active_deadline_ms)
                if not status.is_retention_known:
                    self._unknown.add(status.topic_partition)

    def committed(self) -> None:
        """One more segment is in the archive."""
        with self._lock:
            self._segments = max(0, self._segments - 1)
            if not self._segments:
                self._oldest_ms = {}

    def changed(self, backlog: BacklogChanged) -> None:
        with self._lock:
            self._waits(backlog.topic_partition, backlog.oldest_pending_ms, backlog.deadline_ms)
            if backlog.oldest_pending_ms is None:
                self._unknown.discard(backlog.topic_partition)

    def _waits(self, topic_partition: TopicPartition, oldest_ms: int | None, deadline_ms: int | None) -> None:
        for known, at_ms in ((self._oldest_ms, oldest_ms), (self._deadlines_ms, deadline_ms)):
            known.pop(topic_partition, None)
            if at_ms is not None:
                known[topic_partition] = at_ms

    def segments(self) -> int:
        return self._segments

    def oldest_age_s(self) -> float:
        """0 if nothing waits."""
        with self._lock:
            oldest_ms = min(self._oldest_ms.values(), default=None)
        return 0.0 if oldest_ms is None else max(0.0, (self._clock.now_ms() - oldest_ms) / 1000)

    def at_risk_in_s(self) -> float:
        """+Inf while nothing is at risk, NaN while that is unknown: before the first check, too."""
        with self._lock:
            first_ms = min((*self._deadlines_ms.values(), *self._active_ms), default=None)
            if first_ms is None:
                return math.nan if self._unknown or not self._is_checked else math.inf
        return max(0.0, (first_ms - self._clock.now_ms()) / 1000)

    def unknown(self) -> int:
        """Partitions of which it is unknown when the broker deletes what waits."""
        return len(self._unknown)
