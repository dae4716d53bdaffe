"""Metrics of the process itself: its settings, and the directories that it writes to."""

from __future__ import annotations

import math
import os
from enum import StrEnum
from pathlib import Path

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
        self._loaded = declare.gauge(
            "config_loaded_timestamp_seconds", "Unix time when the settings in effect were applied."
        )
        self._loaded.set(clock.now_ms() / 1000)

    def shown(self, *, stale: bool, pending: bool) -> None:
        self._stale.set(stale)
        self._pending.set(pending)

    def reloaded(self, result: ReloadResult) -> None:
        self._reloads.labels(result).inc()
        if result is ReloadResult.APPLIED:
            self._loaded.set(self._clock.now_ms() / 1000)


def free_ratio(path: Path) -> float:
    """Free fraction, 0 to 1, of the file system where `path` is, or will be."""
    for existing in (path, *path.absolute().parents):
        try:
            found = os.statvfs(existing)
        except OSError:
            continue
        # What root alone may use counts as used.
        used = found.f_blocks - found.f_bfree
        return found.f_bavail / (used + found.f_bavail) if used + found.f_bavail else math.nan
    return math.nan
