"""What keeps `run` from its work, or did: for the probes, the metrics, the status page and the log."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sidecar.clock import Clock
from sidecar.errors import (
    BrokerUnavailable,
    SettingsError,
    SidecarError,
    StagingFull,
    StateDirUnusable,
    StoreDenied,
    StoreError,
    StoreUnavailable,
)
from sidecar.event_log import EVENTS
from sidecar.metrics import Metrics
from sidecar.partition.domain_events import Emit
from sidecar.partition.wait_reason import render
from sidecar.plurals import plural
from sidecar.ports import FactsState
from sidecar.reporting.advice import advised
from sidecar.reporting.status_model import StatusModel

CLEANER_STALLED = "CleanerStalled"
RIGHT_MISSING = "RightMissing"
REPLICAS_NOT_SEEN = "ReplicasNotSeen"
START_FAILED = "StartFailed"
ALL_CONDITIONS = ("store", "first_check", "log_dirs", "broker", "leadership", "topics", "state_dir", "start")
"""The first two hold `run` back from its start on, see `conditions_at_start`; the others once it finds that they fail."""
_NOTHING_IS_PINNED = (
    "nothing in the archive changed. Nothing is pinned until the store has responded once, and retention may "
    "delete segments until then. {}, or raise the retention of the topics"
)
_BRING_BACK = "Bring the store back"
_IS_PINNED = "uploads wait. New segments of partitions whose archive was read are planned and pinned in the meantime"


class Health:
    """The loop feeds it, the HTTP server asks it. Each call returns at once and never touches disk or network. Thread-safe.

    The loop beats while it waits for work, and workers beat as their uploads move: a long upload is no stall.
    """

    def __init__(
        self, clock: Clock, *, conditions: Mapping[str, str] | None = None, redact: Callable[[str], str] = str
    ) -> None:
        """Args:
        conditions: each holds the process back until `met` is called for it; with the reason to show until then.
        redact: takes secrets out of texts, which may have come from libraries. Default: leaves them as they are.
        """
        self._clock = clock
        self._redact = redact
        self._lock = threading.Lock()
        self._beaten_s = clock.monotonic_s()
        self._unmet = {condition: redact(reason) for condition, reason in (conditions or {}).items()}
        self._awaited = frozenset(self._unmet)
        self._status: Mapping[str, Any] = {}

    def beat(self) -> None:
        with self._lock:
            self._beaten_s = self._clock.monotonic_s()

    def met(self, condition: str) -> None:
        """This no longer keeps us from our work."""
        with self._lock:
            self._unmet.pop(condition, None)
            self._awaited -= {condition}

    def unmet(self, condition: str, reason: str) -> None:
        """This keeps us from our work, for a reason that a person can read."""
        with self._lock:
            self._unmet[condition] = self._redact(reason)
            self._awaited -= {condition}

    def publish(self, **entries: Any) -> None:
        """Replace these entries of `/status`. The values must not be changed afterwards."""
        with self._lock:
            self._status = {**self._status, **entries}

    def heartbeat_age_s(self) -> float:
        with self._lock:
            return self._clock.monotonic_s() - self._beaten_s

    def not_ready(self) -> Mapping[str, str]:
        """What keeps the process from its work, by condition; empty if nothing does."""
        with self._lock:
            return dict(self._unmet)

    def awaited(self) -> frozenset[str]:
        """Conditions that nothing is known of since the start: the process waits for them, which is no fault."""
        with self._lock:
            return self._awaited

    def status(self) -> Mapping[str, Any]:
        """JSON-able: what the process is doing."""
        with self._lock:
            found = self._status
        return {name: self._redacted(value) for name, value in found.items()}

    def _redacted(self, value: Any) -> Any:
        """The value with every text in it redacted, at the time it is read."""
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, Mapping):
            return {name: self._redacted(inner) for name, inner in value.items()}
        return [self._redacted(inner) for inner in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class StalledPartition:
    topic: str
    partition: int
    first_dirty_offset: int
    dirty_bytes: int
    dirty_ratio: float
    stalled_s: int

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition}: {plural(self.dirty_bytes, 'dirty byte')} ({self.dirty_ratio:.0%}), first dirty offset "
            f"{self.first_dirty_offset} for {self.stalled_s} s"
        )


@dataclass(frozen=True, slots=True)
class CleanerReport:
    """One check. `problems`: files that could not be read."""

    partitions: int
    dirty_bytes: int
    max_dirty_ratio: float
    beyond_max_lag: int
    stalled: tuple[StalledPartition, ...]
    problems: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        if self.stalled:
            more = f" and {len(self.stalled) - 1} more" if len(self.stalled) > 1 else ""
            return (
                f"the broker's log cleaner makes no progress: {self.stalled[0]}{more}; search log-cleaner.log for "
                "'uncleanable'"
            )
        return (
            f"the broker's log cleaner: {plural(self.partitions, 'partition')}, "
            f"{plural(self.dirty_bytes, 'dirty byte')}, none stalled"
        )

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "line": self.line}


def conditions_at_start(url: str) -> dict[str, str]:
    """What `run` waits for at its start, and why. `url`: the store's."""
    return {
        "store": f"waiting for the first response of {url}",
        "first_check": "archiving begins when the store responds; until then no partition is listed, planned or pinned",
    }


class HealthReporter:
    """Conditions of readiness, errors for people, and lines in the log. For one loop's thread, but for `store_silent`.

    `health`: what the probes see. `show`, `about`: show on the status page what happens to partitions, and whose page it is.
    """

    def __init__(self, clock: Clock, metrics: Metrics, health: Health, status: StatusModel | None = None) -> None:
        """Args: status: what the page renders. Default: it is not shown."""
        self._clock = clock
        self._metrics = metrics
        self._status = status or StatusModel(clock)
        self.health = health
        self.show: Emit = self._status.handle
        self.about = self._status.about
        self._cleaner_stalled = False
        self._store_lock = threading.Lock()
        self._silence: str | None = None
        self._store_error = ""
        self._is_store_usable = False
        self._topics_slip: bool | None = None

    def start_failed(self, reason: str) -> None:
        """The last start failed. It counts until this one waits for something, which is shown then, or the first check is over."""
        self._failed("start", START_FAILED, reason)

    def no_leadership(self, reason: str) -> None:
        """By the settings, nothing says which partitions this broker leads."""
        EVENTS.error("nothing_will_be_archived", reason=reason)
        self._failed("leadership", SettingsError.__name__, reason)

    def lacks_memory(self, reason: str) -> None:
        """The container's memory limit is too low for these settings. Most of the memory is for compactions: archiving goes on."""
        EVENTS.error("memory_limit_too_low", reason=reason)
        self._status.failed("memory", SettingsError.__name__, reason)

    def no_topic(self, reason: str, *, is_slip: bool) -> None:
        """No topic is chosen; "" if one is, or may be. Logs it once, and again if it becomes a slip or ceases to be one.

        `is_slip`: the patterns match no topic of the cluster. Only that keeps the process from being ready: a broker
        without a replica has nothing to do.
        """
        self.health.publish(topics={"nothing_chosen": reason})
        self._show("topics", reason if is_slip else "")
        slip = is_slip if reason else None
        is_known, self._topics_slip = slip is self._topics_slip, slip
        if is_known or slip is None:
            return
        if slip:
            EVENTS.error("no_topic_selected", reason=reason)
            self._status.failed("topics", SettingsError.__name__, reason)
        else:
            EVENTS.warning("no_topic_selected", reason=reason)

    def log_dirs_unformatted(self, error: SidecarError, next_try_s: float) -> None:
        """Next to a new broker the sidecar may be first; and a disk may be mounted late."""
        self.health.unmet("store", "not checked before the log directories are formatted")
        self._not_usable("log_dirs", error)
        self.health.met("start")
        EVENTS.error("log_dirs_not_usable", error=advised(error), next_try_s=next_try_s)

    def store_not_usable(self, error: SidecarError, next_try_s: float | None) -> None:
        """The store keeps the work from beginning. `next_try_s`: None where there will be none."""
        self.health.met("log_dirs")
        self._not_usable("store", error)
        if next_try_s is not None:
            self.health.met("start")
            remedy = "Correct the keys or permissions" if isinstance(error, StoreDenied) else _BRING_BACK
            effect = _NOTHING_IS_PINNED.format(remedy)
            EVENTS.error("store_not_usable", error=advised(error), effect=effect, next_try_s=next_try_s)

    def store_usable(self) -> None:
        """The log dirs are formatted, and the store passed its probe."""
        self._is_store_usable = True
        self.health.met("log_dirs")
        self._show_store()
        self.health.unmet("first_check", "the first check of all partitions is still running")

    def store_silent(self, why: str | None) -> None:
        """Requests wait for the store, and this is what one of them met; None once it answers again. For any thread."""
        self._silence = why
        self._show_store()
        if why is None:
            EVENTS.info("store_responding")
            return
        self._status.failed("store", StoreUnavailable.__name__, why)
        if not self._is_store_usable:
            self.health.met("start")
        EVENTS.warning(
            "store_not_responding",
            error=why,
            effect=_IS_PINNED if self._is_store_usable else _NOTHING_IS_PINNED.format(_BRING_BACK),
        )

    def cycle_failed(self, error: SidecarError, refused: SettingsError | None) -> None:
        """Not even a scan was possible. `refused`: see `FactsState`: that very error belongs to the broker's condition."""
        self._not_usable("broker" if error is refused else _condition_of(error), error)
        EVENTS.error("cycle_failed", error=advised(error))

    def cycle_ended(
        self,
        broker: FactsState,
        *,
        store_error: str = "",
        log_dir_error: str = "",
        state_dir_error: str = "",
        problems: Sequence[str] = (),
    ) -> None:
        """A cycle over all partitions has ended.

        Args:
            store_error, state_dir_error: the first of a partition; "" for none. Without room for the journal nothing is archived.
                The state directory may also be deleted.
            log_dir_error: the first of a log directory that cannot be read; "" for none.
            problems: all directories that cannot be read.
        """
        self._store_error = store_error
        self._show_store()
        away = render(broker.away)
        for condition, reason in (("log_dirs", log_dir_error), ("broker", away), ("state_dir", state_dir_error)):
            self._show(condition, reason)
        if broker.away is not None:
            self._status.failed("broker", BrokerUnavailable.__name__, away)
        for right in broker.missing_rights:
            self._status.failed("broker", RIGHT_MISSING, right)
        if broker.unseen_replicas:
            self._status.failed("log_dirs", REPLICAS_NOT_SEEN, broker.unseen_replicas)
        self.health.publish(
            round_ended_ms=self._clock.now_ms(),
            problems=list(problems),
            missing_rights=list(broker.missing_rights),
        )
        self.health.met("start")
        # Last: between two conditions a probe would see a process ready that is not, or a ready one without a status.
        self.health.met("first_check")

    def cleaner(self, report: CleanerReport) -> None:
        was_stalled, self._cleaner_stalled = self._cleaner_stalled, bool(report.stalled)
        broker = self._metrics.broker
        broker.cleaner_stalled.set(len(report.stalled))
        broker.cleaner_stalled_s.set(max((found.stalled_s for found in report.stalled), default=0))
        broker.cleaner_dirty.set(report.dirty_bytes)
        broker.cleaner_ratio.set(report.max_dirty_ratio)
        broker.cleaner_overdue.set(report.beyond_max_lag)
        self.health.publish(broker_cleaner=report.as_json())
        if self._cleaner_stalled and not was_stalled:
            EVENTS.error("broker_cleaner_stalled", finding=report.line)
            self._status.failed("broker", CLEANER_STALLED, report.line)

    def _show_store(self) -> None:
        """The loop's thread and `store_silent` must not show what the other one has replaced since."""
        with self._store_lock:
            reason = self._store_error or self._silence  # A full store answers reads.
            if not reason and not self._is_store_usable:
                reason = "the store responds again; the sidecar tests its functions"
            self._show("store", reason)

    def _show(self, condition: str, reason: str | None) -> None:
        """Why a condition is not met; nothing where it is."""
        if reason:
            self.health.unmet(condition, reason)
        else:
            self.health.met(condition)

    def _not_usable(self, condition: str, error: SidecarError) -> None:
        self._metrics.failed(type(error).__name__)
        self._failed(condition, type(error).__name__, advised(error))

    def _failed(self, condition: str, kind: str, reason: str) -> None:
        self.health.unmet(condition, reason)
        self._status.failed(condition, kind, reason)


def _condition_of(error: SidecarError) -> str:
    """What an error that ended a check keeps from being met: the disks are scanned first, and report their own errors."""
    if isinstance(error, StagingFull | StateDirUnusable):
        return "state_dir"
    if isinstance(error, StoreError):
        return "store"
    return "broker" if isinstance(error, BrokerUnavailable) else "log_dirs"
