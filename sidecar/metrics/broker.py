"""Metrics of the local broker: the age of its facts, the data at risk by its retention, and whether its cleaner works."""

from __future__ import annotations

from sidecar.clock import Clock
from sidecar.metrics.backlog import Backlog
from sidecar.metrics.declarations import Declarations, Since


class BrokerMetrics:
    """Thread-safe. Ages and deadlines are computed when they are asked for: they move while nothing else does."""

    def __init__(self, declarations: Declarations, clock: Clock, backlog: Backlog) -> None:
        self._clock = clock
        self._read = Since(clock)
        declarations.gauge(
            "broker_metadata_age_seconds",
            "Seconds since the sidecar last read leadership and stable offsets; 0 before the first time.",
        ).set_function(self._read.seconds)
        self._away = declarations.gauge(
            "broker_unreachable",
            "1 while the broker does not respond: uploads in progress end, and nothing new is planned or committed.",
        )
        self._missing_rights = declarations.gauge(
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
        self.held_deleted = declarations.gauge(
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
        self._lost = declarations.counter(
            "lost_offsets_total",
            "Offsets recorded as LOST, because they were deleted before they were archived. Includes offsets that "
            "were deleted before their partition's first commit: the archive begins above them, and only this "
            "counter and the log name them.",
        )
        self.accepted_as_compacted = declarations.counter(
            "offsets_accepted_as_compacted_total",
            "Offsets missing in the log, for which the topic's cleanup.policy is the only explanation. Counted "
            "each time such a segment is prepared.",
        )
        self._last_loss = declarations.gauge(
            "last_loss_timestamp_seconds",
            "Unix time when this process, or an earlier one with the same `run.state_dir`, last recorded offsets "
            "as LOST; 0 if never. Alert on its age: a counter that rises before its first scrape shows no "
            "increase.",
        )

    def facts(self, read_ms: int | None, *, is_away: bool = False, missing_rights: int = 0) -> None:
        """How fresh the facts of this cycle are. `read_ms`: None before the first time."""
        self._read.at_ms = read_ms
        self._away.set(is_away)
        self._missing_rights.set(missing_rights)

    def offsets_lost(self, count: int) -> None:
        self._lost.inc(count)
        self.last_loss(self._clock.now_ms())

    def last_loss(self, at_ms: int) -> None:
        """When offsets were last recorded as LOST, by this process or one before it."""
        self._last_loss.set(at_ms / 1000)
