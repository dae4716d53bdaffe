"""Metrics of the broker beside us: how fresh its facts are, what its retention threatens, and whether its cleaner works."""

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
            "broker_facts_age_seconds",
            "Seconds since leadership and stable offsets were last read; 0 before the first time.",
        ).set_function(self._read.seconds)
        self._away = declarations.gauge(
            "broker_away",
            "1 while the broker does not respond: uploads in progress end, nothing is planned or committed.",
        )
        self._missing_rights = declarations.gauge(
            "broker_missing_rights",
            "Kinds of questions that the broker does not let us ask, and without whose answers less is archived or watched; "
            "the log's `broker_right_missing` says which. Alert above 0.",
        )
        declarations.gauge(
            "data_at_risk_in_seconds",
            "Until the broker's retention deletes the first segment that is not archived, by the topics' configurations, an idle "
            "active segment that is not held open included; 0 where it has, and they are only held open; +Inf while nothing is "
            "threatened, NaN while nobody can tell (see `retention_unknown_partitions`). Alert when it comes near the time that "
            "an upload takes.",
        ).set_function(backlog.at_risk_in_s)
        declarations.gauge(
            "retention_unknown_partitions",
            "Led partitions with segments that are not archived, of which nobody knows when the broker deletes them: no broker is "
            "asked, or it does not tell. Nothing warns of losses there; name one to ask, or set topics.policies.",
        ).set_function(backlog.unknown)
        self.cleaner_stalled = declarations.gauge(
            "broker_cleaner_stalled",
            "Partitions that are due for the broker's own cleaner, and whose first dirty offset has not moved for "
            "`broker.cleaner_stalled_after_s`. Alert above 0: its thread has died, or it gave the partition up.",
        )
        self.cleaner_stalled_s = declarations.gauge(
            "broker_cleaner_stalled_seconds",
            "How long the longest-stalled partition has been due; 0 if none is stalled.",
        )
        self.cleaner_dirty = declarations.gauge(
            "broker_cleaner_dirty_bytes", "Rolled bytes of compacted partitions that the broker has not cleaned yet."
        )
        self.cleaner_ratio = declarations.gauge(
            "broker_cleaner_max_dirty_ratio", "The largest dirty ratio of a compacted partition on this broker."
        )
        self.cleaner_overdue = declarations.gauge(
            "broker_cleaner_beyond_max_lag_partitions",
            "Partitions with something dirty beyond `max.compaction.lag.ms`.",
        )
        self.held_deleted = declarations.gauge(
            "held_deleted_bytes",
            "Bytes of planned segments that the broker has deleted and that are held open until they are archived: they still take "
            "up its disk, and end with this process. Alert above 0, and look at it before a restart.",
        )
        self.unpinned_segments = declarations.gauge(
            "unpinned_segments",
            "Segments that are ready for upload and beyond the limit of pinned files, as of the last check. Retention may delete "
            "them before they are archived. Alert above 0.",
        )
        self._lost = declarations.counter(
            "lost_offsets_total",
            "Offsets recorded as LOST, because they were gone before they were archived; also those that were seen, and gone "
            "before anything of their partition was archived: its archive begins above them, and nothing else names them.",
        )
        self.taken_as_compacted = declarations.counter(
            "offsets_taken_as_compacted_total",
            "Offsets missing in the log that only the topic's cleanup.policy explains, counted each time such a "
            "segment is prepared.",
        )
        self._last_loss = declarations.gauge(
            "last_loss_timestamp_seconds",
            "When offsets were last recorded as LOST by this process, or one before it with the same `run.state_dir`; 0 if they "
            "never were. Alert on its age: a counter that rises before it is first scraped, as after a long standstill, shows no "
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
