"""Metrics of compaction and of gc. Alert on progress: on the age of due work."""

from dataclasses import dataclass

from sidecar.metrics.declarations import Declarations


@dataclass(frozen=True, slots=True)
class Weighed:
    """Partitions that may be compacted, as of a check. `due`, `quarantined`: how many.

    `oldest_due_ms`: since when the first of those that are due has been.
    """

    due: int = 0
    oldest_due_ms: int | None = None
    cleanable_bytes: int = 0
    max_dirty_ratio: float = 0.0
    quarantined: int = 0
    quarantined_bytes: int = 0


class CompactionMetrics:
    """Fed by the compaction worker of `run`. Thread-safe; the age is computed when it is asked for."""

    def __init__(self, declare: Declarations) -> None:
        self._found = Weighed()
        declare.gauge(
            "compaction_due_partitions",
            "Partitions that are due for compaction and not compacted yet, quarantined ones included.",
        ).set_function(lambda: self._found.due)
        self._oldest_due = declare.age(
            "compaction_oldest_due_age_seconds",
            "Seconds since the longest-waiting partition became due; 0 if none waits. Alert on this. Counts from "
            "the start of this process at most.",
        )
        declare.gauge(
            "compaction_cleanable_bytes", "Dirty bytes of leader partitions: never compacted, and old enough to be."
        ).set_function(lambda: self._found.cleanable_bytes)
        declare.gauge(
            "compaction_quarantined_partitions", "Partitions whose last compaction failed; `/status` has the reason."
        ).set_function(lambda: self._found.quarantined)
        declare.gauge(
            "compaction_quarantined_bytes",
            "Dirty bytes of partitions whose last compaction failed: old enough to be compacted, and never were.",
        ).set_function(lambda: self._found.quarantined_bytes)
        declare.gauge(
            "compaction_max_dirty_ratio",
            "The largest dirty ratio, 0 to 1, of a leader partition whose topic is compacted.",
        ).set_function(lambda: self._found.max_dirty_ratio)
        self._last_check = declare.timestamp(
            "compaction_last_check_timestamp_seconds",
            "Unix time when the compaction thread last checked which partitions are due; 0 before the first "
            "time. A running job delays it.",
        )
        self.running = declare.gauge("compaction_running", "1 while partitions are being compacted.")
        self._last_success = declare.timestamp(
            "compaction_last_success_timestamp_seconds",
            "Unix time when a partition was last compacted; 0 before the first.",
        )
        self._partitions = declare.counter(
            "compaction_partitions_total", "Compactions of partitions, by result.", result=("ok", "failed")
        )
        self._bytes = declare.counter(
            "compaction_bytes_total", "Bytes of logs that compaction has read, and retained.", side=("before", "after")
        )
        self._records = declare.counter(
            "compaction_records_total", "Records that compaction has read, and retained.", side=("before", "after")
        )
        self._invalid_records = declare.counter(
            "compaction_invalid_records_total",
            "Records that compaction dropped because they have no key (unkeyed), and records with a malformed version, which lose "
            "to each record of their key that has a valid one (malformed_version). The log and /status name the topics.",
            kind=("unkeyed", "malformed_version"),
        )
        self._uncompacted = declare.counter(
            "compaction_uncompacted_segments_total",
            "Segments of topics with `before_upload` that were archived without compaction. The log has the "
            "reason, /status the reasons by topic.",
            reason=(),
        )
        self.duration = declare.histogram(
            "compaction_job_duration_seconds", "Duration of compaction jobs, of one partition or of several."
        )
        self._removed = declare.counter("gc_objects_total", "Objects that gc deleted because no reader can need them.")
        self.uploads_aborted = declare.counter(
            "gc_uploads_aborted_total", "Multipart uploads aborted after a day without completion."
        )
        self._gc_success = declare.timestamp(
            "gc_last_success_timestamp_seconds", "Unix time when gc in `run` last ended without an error; 0 before."
        )

    def went_uncompacted(self, reason: str, segments: int) -> None:
        self._uncompacted.labels(reason).inc(segments)

    def weighed(self, found: Weighed) -> None:
        self._found, self._oldest_due.at_ms = found, found.oldest_due_ms
        self._last_check.now()

    def restarted(self) -> None:
        """The settings have changed: what was found under the earlier ones counts no longer."""
        self._found, self._oldest_due.at_ms = Weighed(), None

    def compacted(self, bytes_before: int, bytes_after: int, records_before: int, records_after: int) -> None:
        self._partitions.labels("ok").inc()
        self._last_success.now()
        for side, size_bytes, records in (
            ("before", bytes_before, records_before),
            ("after", bytes_after, records_after),
        ):
            self._bytes.labels(side).inc(size_bytes)
            self._records.labels(side).inc(records)

    def invalid_records(self, unkeyed: int, malformed_versions: int) -> None:
        self._invalid_records.labels("unkeyed").inc(unkeyed)
        self._invalid_records.labels("malformed_version").inc(malformed_versions)

    def failed(self) -> None:
        self._partitions.labels("failed").inc()

    def garbage_removed(self, objects: int) -> None:
        self._removed.inc(objects)
        self._gc_success.now()
