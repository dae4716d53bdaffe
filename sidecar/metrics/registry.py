"""The metrics, their help texts, and the events that move them."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial

from prometheus_client.exposition import choose_encoder
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from sidecar import __version__
from sidecar.clock import Clock, SystemClock
from sidecar.errors import CoverageHole, StagingFull, StagingTooSmall
from sidecar.metrics.broker import BrokerMetrics
from sidecar.metrics.compaction import CompactionMetrics
from sidecar.metrics.declarations import Declarations
from sidecar.metrics.process import ConfigMetrics, WorkDirMetrics
from sidecar.metrics.store import StoreMetrics
from sidecar.model import ArchivedSegment, SnapshotOrigin, TopicPartition
from sidecar.partition.status import PartitionCondition, PartitionStatus

SNAPSHOT_RESULTS = ("equal", "permissible", "wrong", "corrupt", "absent")


class Stage(StrEnum):
    """Stages of a segment's journey that are counted."""

    UPLOADED = "uploaded"
    COMMITTED = "committed"


class Metrics(Declarations):
    """All metrics of one process. Thread-safe; ages are computed when they are asked for, so a stall shows at once."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._oldest_pending_ms: dict[TopicPartition, int] = {}
        self._pending_count = 0
        self._stopped = 0
        super().__init__()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

        info = self.gauge("build_info", "Version of the sidecar and of Python; always 1.", "version", "python")
        info.labels(__version__, platform.python_version()).set(1)
        self._segments = self.counter(
            "segments_total", "Segments that came through a stage (ok) or failed in it.", "stage", "result"
        )
        self._bytes = self.counter("bytes_total", "Bytes of segments, with their indexes, that came through.", "stage")
        self._upload_duration = self.histogram(
            "upload_duration_seconds", "From the first byte sent of a segment until its objects were checked."
        )
        self._pending = self.gauge(
            "pending_segments", "Rolled segments of led partitions that are not in the archive yet."
        )
        self.gauge(
            "oldest_pending_segment_age_seconds",
            "Since the last write to the oldest of them, 0 if there is none. Must stay well below the topics' retention.",
        ).set_function(self._oldest_pending_age_s)
        self._partitions = self.gauge("partitions", "Partitions by what they are doing, as of the last check.", "state")
        self._last_success = self.gauge(
            "last_success_timestamp_seconds",
            "When a check last ended without any partition stopped, or last archived a segment while none is; 0 before the first.",
        )
        self._errors = self.counter("errors_total", "Errors by class name, as documented in sidecar/errors.py.", "kind")
        self._snapshots = self.counter(
            "snapshots_total",
            "Producer snapshots archived: the broker's own, or rebuilt because it was missing or wrong.",
            "origin",
        )
        self._conformance = self.counter(
            "snapshot_conformance_total",
            "Archived segments by how the broker's snapshot compares with the replayed state: equal, permissible, wrong, corrupt "
            "or absent. For the last three the bundle carries ours.",
            "result",
        )
        self._unfinished = self.gauge(
            "unfinished_attempts",
            "Uploads in the journal that are in no commit: left by attempts that ended before theirs, as of the last check.",
        )
        self._not_ready = self.gauge(
            "not_ready",
            "1 while this keeps the process from its work, as /readyz tells it. Alert when one stays 1: little or nothing is "
            "archived for as long; /readyz, the page and the log say why.",
            "condition",
        )
        self._show_zeros()
        self.broker = BrokerMetrics(self, self._clock)
        self.compaction = CompactionMetrics(self, self._clock)
        self.store = StoreMetrics(self)
        self.work_dirs = WorkDirMetrics(self)
        self.config = ConfigMetrics(self, self._clock)
        self.http_turned_away = self.counter(
            "http_turned_away_total",
            "Clients of the HTTP port that got no answer: `http.max_connections` were being served and as many as may waited, "
            "or they had sent no request when others came.",
        )

    def watch_readiness(self, not_ready: Callable[[], Mapping[str, str]], conditions: Iterable[str]) -> None:
        """Show what keeps the process from its work, asked for anew each time. `conditions`: all that there are."""
        for condition in conditions:
            self._not_ready.labels(condition).set_function(partial(_is_unmet, not_ready, condition))

    def checked(self, statuses: Iterable[PartitionStatus]) -> None:
        """A check of the disks is over, and found these. Resets the counts of partitions, except those that are stopped."""
        conditions = dict.fromkeys(PartitionCondition, 0)
        oldest_ms, pending = dict[TopicPartition, int](), 0
        for status in statuses:
            if status.condition is not None:
                conditions[status.condition] += 1
            pending += status.pending_segments
            if status.oldest_pending_ms is not None:
                oldest_ms[status.topic_partition] = status.oldest_pending_ms
        with self._lock:
            self._oldest_pending_ms, self._pending_count = oldest_ms, pending
            self._pending.set(pending)
        for condition, count in conditions.items():
            if condition is not PartitionCondition.STOPPED:
                self._partitions.labels(condition).set(count)

    def uploaded(self, size_bytes: int, duration_s: float) -> None:
        self._segments.labels(Stage.UPLOADED, "ok").inc()
        self._bytes.labels(Stage.UPLOADED).inc(size_bytes)
        self._upload_duration.observe(duration_s)

    def committed(self, entry: ArchivedSegment, conformance: str) -> None:
        """A segment is in the archive. `conformance`: how the broker's snapshot compared, "absent" or "corrupt" if none could."""
        self._segments.labels(Stage.COMMITTED, "ok").inc()
        self._bytes.labels(Stage.COMMITTED).inc(entry.size_bytes)
        self._snapshots.labels(entry.snapshot.origin).inc()
        self._conformance.labels(conformance).inc()
        with self._lock:
            self._pending_count = max(0, self._pending_count - 1)
            self._pending.set(self._pending_count)
            if not self._pending_count:
                self._oldest_pending_ms = {}

    def left_pending(self, topic_partition: TopicPartition, oldest_ms: int | None) -> None:
        """One more of a partition's segments was archived. `oldest_ms`: last write of the oldest that is left, None for none."""
        with self._lock:
            self._oldest_pending_ms.pop(topic_partition, None)
            if oldest_ms is not None:
                self._oldest_pending_ms[topic_partition] = oldest_ms

    def failed(self, kind: str) -> None:
        """Something went wrong. `kind`: class name of the error."""
        self._errors.labels(kind).inc()

    def segment_failed(self, stage: Stage) -> None:
        """A segment did not come through this stage; the error itself is counted where it ends."""
        self._segments.labels(stage, "failed").inc()

    def cycle_ended(self, stopped: int) -> None:
        """A check has ended; `stopped` partitions or directories need a person or another try."""
        self._stopped = stopped
        self._partitions.labels(PartitionCondition.STOPPED).set(stopped)
        if not stopped:
            self._last_success.set(self._clock.now_ms() / 1000)

    def cycle_progressed(self, stopped: int, *, archived: bool = False) -> None:
        """Work has got on; so many stopped since the last check. Those that stopped before it may stop again.

        Args:
            archived: by a segment that is in the archive now.
        """
        stopped = max(self._stopped, stopped)
        self._partitions.labels(PartitionCondition.STOPPED).set(stopped)
        if archived and not stopped:
            self._last_success.set(self._clock.now_ms() / 1000)

    def unfinished_attempts(self, count: int) -> None:
        self._unfinished.set(count)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """The page for Prometheus and its content type, in the format that the `Accept` header prefers."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self.registry), content_type

    def _oldest_pending_age_s(self) -> float:
        with self._lock:
            oldest_ms = min(self._oldest_pending_ms.values(), default=None)
        return 0.0 if oldest_ms is None else max(0.0, (self._clock.now_ms() - oldest_ms) / 1000)

    def _show_zeros(self) -> None:
        """A series that begins at its first event hides that event from `rate()`."""
        for stage in Stage:
            self._bytes.labels(stage)
            for result in ("ok", "failed"):
                self._segments.labels(stage, result)
        for origin in SnapshotOrigin:
            self._snapshots.labels(origin)
        for condition in PartitionCondition:
            self._partitions.labels(condition)
        for result in SNAPSHOT_RESULTS:
            self._conformance.labels(result)
        for error in (CoverageHole, StagingFull, StagingTooSmall):
            self._errors.labels(error.__name__)


def _is_unmet(not_ready: Callable[[], Mapping[str, str]], condition: str) -> float:
    return float(condition in not_ready())
