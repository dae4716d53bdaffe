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
        self._segments: dict[TopicPartition, int] = {}
        self._oldest_ms: dict[TopicPartition, int] = {}
        self._deadlines_ms: dict[TopicPartition, int] = {}
        self._unknown: set[TopicPartition] = set()
        self._active_ms: list[int] = []
        self._is_checked = False

    def checked(self, statuses: Iterable[PartitionStatus]) -> None:
        """These are all partitions."""
        with self._lock:
            self._is_checked = True
            self._segments, self._oldest_ms, self._deadlines_ms = {}, {}, {}
            self._unknown, self._active_ms = set(), []
            for status in statuses:
                self._waits(status)
                if status.active_deadline_ms is not None:
                    self._active_ms.append(status.active_deadline_ms)
                if not status.is_retention_known:
                    self._unknown.add(status.topic_partition)

    def changed(self, backlog: BacklogChanged) -> None:
        with self._lock:
            self._waits(backlog)
            if not backlog.pending_segments:
                self._unknown.discard(backlog.topic_partition)

    def _waits(self, what: PartitionStatus | BacklogChanged) -> None:
        for known, figure in (
            (self._segments, what.pending_segments or None),
            (self._oldest_ms, what.oldest_pending_ms),
            (self._deadlines_ms, what.deadline_ms),
        ):
            known.pop(what.topic_partition, None)
            if figure is not None:
                known[what.topic_partition] = figure

    def segments(self) -> int:
        with self._lock:
            return sum(self._segments.values())

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
