"""Metrics of the settings that hold, and of attempts to change them while the process runs."""

from __future__ import annotations

from enum import StrEnum

from sidecar.clock import Clock
from sidecar.metrics.declarations import Declarations


class ReloadResult(StrEnum):
    """How an attempt ended. REFUSED: something changed that needs a restart; INVALID: the settings are wrong."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    INVALID = "invalid"


class ConfigMetrics:
    """Thread-safe."""

    def __init__(self, declare: Declarations, clock: Clock) -> None:
        self._clock = clock
        self._reloads = declare.counter(
            "config_reloads_total",
            "Attempts to take changed settings over, by result: applied, unchanged, refused (needs a restart), invalid.",
            "result",
        )
        self._stale = declare.gauge(
            "config_stale",
            "1 while the settings file says something else than what holds: it was refused, or is wrong. Alert after minutes.",
        )
        self._pending = declare.gauge(
            "config_pending",
            "1 while changed settings wait for the next check of the disks.",
        )
        self._loaded = declare.gauge("config_loaded_timestamp_seconds", "When the settings that hold were taken over.")
        for result in ReloadResult:
            self._reloads.labels(result)
        self._loaded.set(clock.now_ms() / 1000)

    def shown(self, *, stale: bool, pending: bool) -> None:
        """How the settings that hold stand to the file now."""
        self._stale.set(stale)
        self._pending.set(pending)

    def reloaded(self, result: ReloadResult) -> None:
        """An attempt has ended."""
        self._reloads.labels(result).inc()
        if result is ReloadResult.APPLIED:
            self._loaded.set(self._clock.now_ms() / 1000)
