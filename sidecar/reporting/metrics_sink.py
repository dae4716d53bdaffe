"""Counts domain events in the metrics."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from sidecar.metrics import Metrics, Stage
from sidecar.metrics.broker import BrokerMetrics
from sidecar.model import TopicPartition
from sidecar.partition import domain_events as events
from sidecar.partition.domain_events import BacklogChanged
from sidecar.partition.status import PartitionStatus


class RetentionRisk:
    """When the broker deletes the first segment that is not archived, over all partitions; active segments count too.

    It changes with each commit, since a cycle may last for minutes. Thread-safe.
    """

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


class MetricsSink:
    """Thread-safe."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._risk = RetentionRisk(metrics.broker)

    def handle(self, event: events.DomainEvent) -> None:
        """Count an event. An `Emit`."""
        metrics = self._metrics
        match event:
            case events.SegmentUploaded():
                metrics.uploaded(event.size_bytes, event.duration_s)
            case events.SegmentUploadFailed():
                metrics.segment_failed(Stage.UPLOADED)
            case events.SegmentCommitted():
                metrics.committed(event.entry, event.snapshot_result)
            case events.CommitFailed():
                metrics.segment_failed(Stage.COMMITTED)
            case events.OffsetsLost():
                metrics.broker.offsets_lost(event.to_offset - event.from_offset)
            case events.OffsetsTakenAsCompacted():
                metrics.broker.taken_as_compacted(event.offsets[1] - event.offsets[0])
            case events.BacklogChanged():
                metrics.left_pending(event.topic_partition, event.oldest_pending_ms)
                self._risk.changed(event)
            case events.PartitionsChecked():
                metrics.checked(event.statuses)
                self._risk.checked(event.statuses)
            case events.PartitionFailed():
                metrics.failed(type(event.error).__name__)
            case events.BrokerFactsRead():
                metrics.broker.facts(event.read_ms, is_away=event.is_away, missing_rights=event.missing_rights)
            case events.CycleProgressed():
                metrics.cycle_progressed(event.stopped, archived=event.archived)
            case events.CycleEnded():
                metrics.cycle_ended(event.stopped)
                metrics.unfinished_attempts(event.unfinished_attempts)
            case _:
                pass
