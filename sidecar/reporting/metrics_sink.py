"""Counts domain events in the metrics."""

from __future__ import annotations

from sidecar.metrics import Metrics, Stage
from sidecar.partition import domain_events as events
from sidecar.reporting.retention_risk import RetentionRisk


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
