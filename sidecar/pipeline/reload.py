"""Changed settings for a process that runs: all of them, or none, and never in the middle of a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from sidecar.clock import Clock
from sidecar.config import Settings
from sidecar.config.changes import SettingsSource, changes_between, fingerprint
from sidecar.config.loading import LoadedSettings
from sidecar.errors import SettingsError
from sidecar.http import Health
from sidecar.metrics import Metrics
from sidecar.metrics.config import ReloadResult

_log = structlog.get_logger(__name__)

Adopt = Callable[[Settings], None]


class SettingsReload:
    """Looks at the settings file, reads it when it is another one, and decides."""

    def __init__(self, source: SettingsSource, adopt: Adopt, metrics: Metrics, health: Health, clock: Clock) -> None:
        """Show the settings that hold.

        Args:
            adopt: takes settings over; called by the thread that calls `look`.
        """
        self._source = source
        self._adopt = adopt
        self._metrics = metrics
        self._health = health
        self._clock = clock
        self._read = self._seen = source.loaded_state
        self._running = source.loaded
        self._generation = 1
        self._loaded_ms = clock.now_ms()
        self._publish()

    def look(self, *, asked: bool = False) -> None:
        """Read the file anew if it has changed since it was last read, and not since the last look: it may be half written.

        Args:
            asked: somebody wants it read whether it has changed or not.
        """
        seen, self._seen = self._seen, self._source.state()
        if asked or (self._seen != self._read and self._seen == seen):
            self._read = self._seen
            self._reload("asked for" if asked else "the file has changed")

    def _reload(self, why: str) -> None:
        try:
            loaded = self._source.read()
        except SettingsError as error:
            _log.error("config_reload_refused", reason=str(error), remedy="correct the settings; the old ones hold")
            self._end(ReloadResult.INVALID, reason=str(error))
            return
        changes = changes_between(self._running, loaded)
        if changes.fixed:
            _log.error("config_reload_refused", settings=changes.fixed, remedy="restart to apply; the old ones hold")
            self._end(ReloadResult.REFUSED, reason="these need a restart", settings=changes.fixed)
        elif changes.reloadable:
            self._apply(loaded)
            _log.info("config_reloaded", why=why, settings=changes.reloadable, generation=self._generation)
            self._end(ReloadResult.APPLIED)
        else:
            _log.info("config_unchanged", why=why)
            self._end(ReloadResult.UNCHANGED)

    def _apply(self, loaded: LoadedSettings) -> None:
        self._running = loaded
        self._generation += 1
        self._loaded_ms = self._clock.now_ms()
        self._source.set_up_logs(loaded)
        self._adopt(loaded.settings)

    def _end(self, result: ReloadResult, **refused: Any) -> None:
        self._metrics.config.reloaded(result)
        self._publish(refused)

    def _publish(self, refused: dict[str, Any] | None = None) -> None:
        told = {"at_ms": self._clock.now_ms(), **refused} if refused else None
        self._health.publish_section(
            "config",
            {
                "generation": self._generation,
                "fingerprint": fingerprint(self._running),
                "loaded_ms": self._loaded_ms,
                "stale": told is not None,
                "refused": told,
            },
        )
