"""The metrics, their help texts, and the domain events that move them."""

import math
import platform
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Protocol

from prometheus_client.exposition import choose_encoder
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from sidecar import __version__
from sidecar.clock import Clock, SystemClock
from sidecar.errors import CoverageHole, StagingFull, StagingTooSmall
from sidecar.metrics.broker import Backlog, BrokerMetrics
from sidecar.metrics.compaction import CompactionMetrics
from sidecar.metrics.declarations import Declarations
from sidecar.metrics.store import StoreMetrics
from sidecar.model import SnapshotOrigin
from sidecar.partition import domain_events as events
from sidecar.partition.status import PartitionCondition

SNAPSHOT_RESULTS = ("equal", "permissible", "wrong", "corrupt", "absent")


class Stage(StrEnum):
    UPLOADED = "uploaded"
    COMMITTED = "committed"


class ReloadResult(StrEnum):
    """How an attempt ended. REFUSED: something changed that needs a restart; INVALID: the settings are wrong."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    INVALID = "invalid"


class ConfigMetrics:
    """Thread-safe."""

    def __init__(self, declare: Declarations) -> None:
        self._reloads = declare.counter(
            "config_reloads_total",
            "Attempts to apply changed settings, by result: applied, unchanged, refused (needs a restart), invalid.",
            result=ReloadResult,
        )
        self._stale = declare.gauge(
            "config_stale",
            "1 while the settings file differs from the settings in effect: the change was rejected or is "
            "invalid. Alert after minutes.",
        )
        self._pending = declare.gauge(
            "config_pending",
            "1 while changed settings wait for the next check of the disks.",
        )
        self._loaded = declare.timestamp(
            "config_loaded_timestamp_seconds", "Unix time when the settings in effect were applied."
        )
        self._loaded.now()

    def shown(self, *, stale: bool, pending: bool) -> None:
        self._stale.set(stale)
        self._pending.set(pending)

    def reloaded(self, result: ReloadResult) -> None:
        self._reloads.labels(result).inc()
        if result is ReloadResult.APPLIED:
            self._loaded.now()


def free_ratio(path: Path) -> float:
    """Free fraction, 0 to 1, of the file system where `path` is, or will be."""
    for existing in (path, *path.absolute().parents):
        with suppress(OSError):
            found = shutil.disk_usage(existing)  # What root alone may use is neither free nor used.
            return found.free / (found.used + found.free) if found.used + found.free else math.nan
    return math.nan


class Metrics(Declarations):
    """All metrics of one process, a sink of domain events. Thread-safe.

    Ages are computed when they are asked for, so a stall shows at once.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self._backlog = backlog = Backlog(clock)
        self._stopped = 0
        super().__init__(clock)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

        info = self.gauge("build_info", "Version of the sidecar and of Python; always 1.", version=(), python=())
        info.labels(__version__, platform.python_version()).set(1)
        self._starts = self.counter(
            "starts_total",
            "Starts in this process that became ready. More than 1 only with --retry-start: the work failed after a "
            "start, or a setting changed that needs a restart.",
        )
        self._segments = self.counter(
            "segments_total",
            "Segments that passed a stage (ok) or failed in it.",
            stage=Stage,
            result=("ok", "failed"),
        )
        self._bytes = self.counter("bytes_total", "Bytes of segments and indexes that passed a stage.", stage=Stage)
        self._upload_duration = self.histogram(
            "upload_duration_seconds",
            "Seconds from the first byte sent of a segment until the sidecar has checked its objects.",
        )
        self.gauge(
            "pending_segments", "Rolled segments of leader partitions that are not in the archive yet."
        ).set_function(backlog.segments)
        self.gauge(
            "oldest_pending_segment_age_seconds",
            "Seconds since the last write to the oldest unarchived segment; 0 if there is none. Must stay well "
            "below the topics' retention.",
        ).set_function(backlog.oldest_age_s)
        self._partitions = self.gauge(
            "partitions", "Partitions by state, as of the last check.", state=PartitionCondition
        )
        self._last_success = self.timestamp(
            "last_success_timestamp_seconds",
            "Unix time of the last success: a check ended with no partition stopped and a store that responds, or "
            "a segment was archived while no partition was stopped. 0 before the first.",
        )
        self._errors = self.counter(
            "errors_total",
            "Errors by class name, as in docs/reference/exit-codes.md.",
            kind=[error.__name__ for error in (CoverageHole, StagingFull, StagingTooSmall)],
        )
        self._snapshots = self.counter(
            "snapshots_total",
            "Producer snapshots archived: the broker's own, or rebuilt because it was missing or wrong.",
            origin=SnapshotOrigin,
        )
        self._conformance = self.counter(
            "snapshot_conformance_total",
            "Archived segments by how the broker's snapshot compares with the replayed state: equal, permissible, "
            "wrong, corrupt or absent. For the last three the archive has the rebuilt snapshot.",
            result=SNAPSHOT_RESULTS,
        )
        self._unfinished = self.gauge(
            "unfinished_attempts",
            "Uploads in the journal that no commit names, left by attempts that ended before their commit, as "
            "of the last check.",
        )
        self._not_ready = self.gauge(
            "not_ready",
            "1 while this condition blocks the process, as /readyz reports. Alert when one stays 1: little or "
            "nothing is archived meanwhile. /readyz, the status page and the log have the reason.",
            condition=(),
        )
        self.broker = BrokerMetrics(self, backlog)
        self.compaction = CompactionMetrics(self)
        self.store = StoreMetrics(self)
        self._free_ratio = self.gauge(
            "work_dir_free_ratio",
            "Free fraction, 0 to 1, of the file system of a work directory: state (journal of uploads) or staging "
            "(compaction). Does not include the sizeLimit of a Kubernetes emptyDir.",
            directory=(),
        )
        self.config = ConfigMetrics(self)
        self.http_refused_connections = self.counter(
            "http_refused_connections_total",
            "Clients of the HTTP port that got no answer, because `http.max_connections` were served and the queue "
            "was full, or because they had sent no request when others came.",
        )

    def watch_readiness(self, not_ready: Callable[[], Mapping[str, str]], conditions: Iterable[str]) -> None:
        """Show the conditions that block the process, read at each scrape. `conditions`: all that there are."""
        for condition in conditions:
            self._not_ready.labels(condition).set_function(partial(lambda name: float(name in not_ready()), condition))

    def watch_work_dir(self, directory: str, path: Path) -> None:
        """Show the room where `path` is, or will be, at each scrape: a full disk stops compaction and uploads."""
        self._free_ratio.labels(directory).set_function(partial(free_ratio, path))

    def started(self, count: int) -> None:
        """This many more starts became ready. Each start has metrics of its own, which begin with the count of those before."""
        self._starts.inc(count)

    def handle(self, event: events.DomainEvent) -> None:
        """Count an event. An `Emit`."""
        match event:
            case events.SegmentUploaded():
                self._came_through(Stage.UPLOADED, event.size_bytes)
                self._upload_duration.observe(event.duration_s)
            case events.SegmentUploadFailed():
                self._segments.labels(Stage.UPLOADED, "failed").inc()
            case events.SegmentCommitted(_, entry, snapshot_result):
                self._came_through(Stage.COMMITTED, entry.size_bytes)
                self._snapshots.labels(entry.snapshot.origin).inc()
                self._conformance.labels(snapshot_result).inc()
            case events.CommitFailed():
                self._segments.labels(Stage.COMMITTED, "failed").inc()
            case events.OffsetsLost():
                self.broker.lost.inc(event.to_offset - event.from_offset)
                self.broker.last_loss.now()
            case events.OffsetsTakenAsCompacted():
                self.broker.accepted_as_compacted.inc(event.offsets[1] - event.offsets[0])
            case events.PinsChecked(unpinned):
                self.broker.unpinned_segments.set(sum(unpinned.values()))
            case events.BacklogChanged():
                self._backlog.changed(event)
            case events.PartitionsChecked(statuses):
                self._backlog.checked(statuses)
                conditions = Counter(status.condition for status in statuses)
                for condition in set(PartitionCondition) - {PartitionCondition.STOPPED}:
                    self._partitions.labels(condition).set(conditions[condition])
            case events.PartitionFailed():
                self.failed(type(event.error).__name__)
            case events.BrokerFactsRead():
                self.broker.read.at_ms = event.read_ms
                self.broker.away.set(event.is_away)
                self.broker.missing_rights.set(event.missing_rights)
            case events.CycleProgressed():
                # Those that stopped in the cycle before may stop again.
                self._show_stopped(max(self._stopped, event.stopped), archived=event.archived)
            case events.CycleEnded():
                self._stopped = event.stopped
                self._show_stopped(event.stopped, archived=not event.is_store_silent)
                self._unfinished.set(event.unfinished_attempts)
            case _:
                pass

    def failed(self, kind: str) -> None:
        """Something went wrong. `kind`: class name of the error."""
        self._errors.labels(kind).inc()

    def _came_through(self, stage: Stage, size_bytes: int) -> None:
        self._segments.labels(stage, "ok").inc()
        self._bytes.labels(stage).inc(size_bytes)

    def _show_stopped(self, count: int, *, archived: bool) -> None:
        self._partitions.labels(PartitionCondition.STOPPED).set(count)
        if archived and not count:
            self._last_success.now()

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """The page for Prometheus and its content type, in the format that the `Accept` header prefers."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self.registry), content_type


class HasMetrics(Protocol):
    @property
    def metrics(self) -> Metrics: ...
