"""Metrics of the local broker: the age of its facts, what waits and is at risk by its retention, and whether its cleaner works."""

import math
import threading
from collections.abc import Iterable
from itertools import chain

from sidecar.clock import Clock
from sidecar.metrics.declarations import Declarations
from sidecar.model import TopicPartition
from sidecar.partition.domain_events import BacklogChanged
from sidecar.partition.status import PartitionStatus


class Backlog:
    """What waits for the archive: how old it is, and when the broker deletes the first of it. Active segments count for that, too.

    It changes with each commit, since a cycle may last for minutes. Thread-safe.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[TopicPartition, PartitionStatus] = {}
        self._is_checked = False

    def checked(self, statuses: Iterable[PartitionStatus]) -> None:
        """These are all partitions."""
        with self._lock:
            self._is_checked, self._known = True, {status.topic_partition: status for status in statuses}

    def changed(self, backlog: BacklogChanged) -> None:
        with self._lock:
            if (status := self._known.get(backlog.topic_partition)) is not None:
                self._known[backlog.topic_partition] = backlog.applied_to(status)

    def _statuses(self) -> list[PartitionStatus]:
        with self._lock:
            return list(self._known.values())

    def segments(self) -> int:
        return sum(status.pending_segments for status in self._statuses())

    def oldest_age_s(self) -> float:
        """0 if nothing waits."""
        oldest_ms = [found.oldest_pending_ms for found in self._statuses() if found.oldest_pending_ms is not None]
        return max(0.0, (self._clock.now_ms() - min(oldest_ms)) / 1000) if oldest_ms else 0.0

    def at_risk_in_s(self) -> float:
        """+Inf while nothing is at risk, NaN while that is unknown: before the first check, too."""
        found = chain.from_iterable((status.deadline_ms, status.active_deadline_ms) for status in self._statuses())
        first_ms = min((deadline_ms for deadline_ms in found if deadline_ms is not None), default=None)
        if first_ms is None:
            return math.nan if self.unknown() or not self._is_checked else math.inf
        return max(0.0, (first_ms - self._clock.now_ms()) / 1000)

    def unknown(self) -> int:
        """Partitions of which it is unknown when the broker deletes what waits."""
        return sum(status.pending_segments > 0 and not status.is_retention_known for status in self._statuses())


class BrokerMetrics:
    """Thread-safe. Ages and deadlines are computed when they are asked for: they move while nothing else does."""

    def __init__(self, declarations: Declarations, backlog: Backlog) -> None:
        self.read = declarations.age(
            "broker_metadata_age_seconds",
            "Seconds since the sidecar last read leaders and last stable offsets; 0 before the first time.",
        )
        self.away = declarations.gauge(
            "broker_unreachable",
            "1 while the broker does not respond: uploads in progress end, and nothing new is planned or committed.",
        )
        self.missing_rights = declarations.gauge(
            "broker_denied_permissions",
            "Permissions that the broker denies, so that less is archived or watched. The log event "
            "`broker_permission_denied` names them. Alert above 0.",
        )
        declarations.gauge(
            "data_at_risk_in_seconds",
            "Seconds until the broker's retention deletes the first segment that is not archived, by the topics' "
            "configs. Includes idle active segments that are not pinned. 0: the broker has deleted it, or does so now. "
            "+Inf: nothing is at risk. NaN: unknown, as before the first check of a start (see "
            "`retention_unknown_partitions`). Alert when it comes near the time that an upload takes.",
        ).set_function(backlog.at_risk_in_s)
        declarations.gauge(
            "retention_unknown_partitions",
            "Leader partitions with unarchived segments whose retention is unknown: no broker is configured, or it "
            "does not report it. Nothing warns of losses there. Set broker.connection or topics.policies.",
        ).set_function(backlog.unknown)
        self.cleaner_stalled = declarations.gauge(
            "broker_cleaner_stalled",
            "Partitions that the broker's own log cleaner should clean, but whose first dirty offset has not moved "
            "for `broker.cleaner_stalled_after_s`. Alert above 0: the cleaner thread died, or it marked the "
            "partition uncleanable.",
        )
        self.cleaner_stalled_s = declarations.gauge(
            "broker_cleaner_stalled_seconds",
            "Seconds that the longest-stalled partition has been due; 0 if none is stalled.",
        )
        self.cleaner_dirty = declarations.gauge(
            "broker_cleaner_dirty_bytes", "Rolled bytes of compacted partitions that the broker has not cleaned yet."
        )
        self.cleaner_ratio = declarations.gauge(
            "broker_cleaner_max_dirty_ratio", "The largest dirty ratio of a compacted partition on this broker."
        )
        self.cleaner_overdue = declarations.gauge(
            "broker_cleaner_beyond_max_lag_partitions",
            "Partitions with dirty records older than `max.compaction.lag.ms`.",
        )
        self.pinned_deleted = declarations.gauge(
            "pinned_deleted_bytes",
            "Bytes of segments that the broker has deleted and the sidecar keeps as pinned files until they are "
            "archived. They still use the broker's disk, and are lost when this process ends. Alert above 0, and "
            "check it before a restart.",
        )
        self.unpinned_segments = declarations.gauge(
            "unpinned_segments",
            "Segments that are ready for upload and beyond the limit of pinned files, as of the last check. Retention may delete "
            "them before they are archived. Topics that keep all do not count. Alert above 0.",
        )
        self.lost = declarations.counter(
            "lost_offsets_total",
            "Offsets recorded as LOST, because they were deleted before they were archived. Includes offsets that "
            "were deleted before their partition's first commit: the archive begins above them, and only this "
            "counter and the log name them.",
        )
        self.accepted_as_compacted = declarations.counter(
            "offsets_accepted_as_compacted_total",
            "Offsets missing in the log that only the topic's cleanup.policy or an earlier cleaning explains. Counted "
            "each time such a segment is prepared.",
        )
        self.last_loss = declarations.timestamp(
            "last_loss_timestamp_seconds",
            "Unix time when this process, or an earlier one with the same `run.state_dir`, last recorded offsets "
            "as LOST; 0 if never. Alert on its age: a counter that rises before its first scrape shows no "
            "increase.",
        )
