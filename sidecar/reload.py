"""Changed settings for a process that runs: all of them, or none; most hold from the next check on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from sidecar.clock import Clock
from sidecar.config import Settings
from sidecar.config.changes import SettingsSource, changes_between, fingerprint
from sidecar.config.loading import LoadedSettings
from sidecar.doctor.machine import memory_needed_bytes
from sidecar.errors import SettingsError
from sidecar.event_log import EVENTS
from sidecar.host.limits import memory_limit_bytes, processors
from sidecar.logformat.files import FileStamp
from sidecar.metrics import Metrics
from sidecar.metrics.registry import ReloadResult
from sidecar.ports import MIB
from sidecar.reporting.health_reporter import Health

Adopt = Callable[[Settings], Event]


@dataclass(frozen=True, slots=True)
class _Pending:
    """Settings that were handed over and do not hold yet. `changed`: paths of what is different."""

    loaded: LoadedSettings
    changed: tuple[str, ...]
    since_ms: int
    taken_over: Event


def lacks_memory(settings: Settings) -> str:
    """Why these settings may need more memory than this container has, "" if they do not or there is no limit."""
    limit = memory_limit_bytes()
    needed = memory_needed_bytes(settings, processors())
    if limit is None or needed <= limit:
        return ""
    return (
        f"these settings may take {needed // MIB} MiB, this container has {limit // MIB} MiB: raise its limit, "
        "which restarts the pod (with the chart, change its values, and apply the recipe to the brokers again)"
    )


@dataclass(eq=False)
class SettingsReload:
    """Checks the settings file, reads it when it has changed, and decides.

    `adopt`: applies settings; its event is set when they are in effect. Called by the thread that calls `look`.
    `may_restart`: whether settings that need a restart get one. Default: they are refused.
    """

    source: SettingsSource
    adopt: Adopt
    metrics: Metrics
    health: Health
    clock: Clock
    may_restart: Callable[[], bool] = lambda: False
    restart_due: bool = field(default=False, init=False)
    _read: FileStamp | None = field(init=False)
    _seen: FileStamp | None = field(init=False)
    _running: LoadedSettings = field(init=False)
    _pending: _Pending | None = field(default=None, init=False)
    _refused: dict[str, Any] | None = field(default=None, init=False)
    _generation: int = field(default=1, init=False)
    _loaded_ms: int = field(init=False)

    def __post_init__(self) -> None:
        """Show the settings that hold."""
        self._read = self._seen = self.source.loaded_state
        self._running, self._loaded_ms = self.source.loaded, self.clock.now_ms()
        self._publish()

    def look(self, *, asked: bool = False) -> None:
        """Read the file again if it has changed since it was last read, and not since the last check: it may be half written.

        Args:
            asked: somebody wants it read whether it has changed or not.
        """
        self._settle()
        seen, self._seen = self._seen, self.source.state()
        if asked or (self._seen != self._read and self._seen == seen):
            self._read = self._seen
            self._reload("asked for" if asked else "the file has changed")
            self._settle()

    def _settle(self) -> None:
        """Whether what was handed over holds by now."""
        pending = self._pending
        if pending is None or not pending.taken_over.is_set():
            return
        self._pending, self._running = None, pending.loaded
        self._generation += 1
        self._loaded_ms = self.clock.now_ms()
        self.metrics.config.reloaded(ReloadResult.APPLIED)
        EVENTS.info("config_reloaded", settings=pending.changed, generation=self._generation)
        self._publish()

    def _reload(self, why: str) -> None:
        try:
            loaded = self.source.read()
        except SettingsError as error:
            remedy = "correct the settings; the old settings stay in effect"
            self._refuse(ReloadResult.INVALID, str(error), remedy)
            return
        wanted = self._running if self._pending is None else self._pending.loaded
        reloadable, fixed = changes_between(wanted, loaded)
        cores = processors()
        needs_more = memory_needed_bytes(loaded.settings, cores) > memory_needed_bytes(wanted.settings, cores)
        lacking = lacks_memory(loaded.settings) if needs_more else ""
        if fixed and self.may_restart():
            EVENTS.info("config_restart", why=why, settings=fixed)
            self.restart_due = True
        elif fixed:
            remedy = "restart to apply; the old settings stay in effect"
            self._refuse(ReloadResult.REFUSED, "these need a restart", remedy, fixed)
        elif lacking:
            self._refuse(ReloadResult.REFUSED, lacking, "the old settings stay in effect", reloadable)
        elif reloadable:
            EVENTS.info("config_reload_pending", why=why, settings=reloadable)
            self.source.set_up_logs(loaded)
            taken_over = self.adopt(loaded.settings)
            self._pending = _Pending(loaded, reloadable, self.clock.now_ms(), taken_over)
            self._refused = None
            self._publish()
        else:
            EVENTS.info("config_unchanged", why=why)
            self.metrics.config.reloaded(ReloadResult.UNCHANGED)
            self._refused = None
            self._publish()

    def _refuse(self, result: ReloadResult, reason: str, remedy: str, settings: tuple[str, ...] = ()) -> None:
        EVENTS.error("config_reload_refused", reason=reason, settings=settings, remedy=remedy)
        self.metrics.config.reloaded(result)
        which = {"settings": settings} if settings else {}
        self._refused = {"at_ms": self.clock.now_ms(), "reason": reason, **which}
        self._publish()

    def _publish(self) -> None:
        pending = self._pending
        self.metrics.config.shown(stale=self._refused is not None, pending=pending is not None)
        self.health.publish(
            config={
                "generation": self._generation,
                "fingerprint": fingerprint(self._running),
                "loaded_ms": self._loaded_ms,
                "stale": self._refused is not None,
                "refused": self._refused,
                "pending": pending and {"since_ms": pending.since_ms, "fingerprint": fingerprint(pending.loaded)},
            }
        )
