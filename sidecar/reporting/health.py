"""What the loop tells about itself: that it turns, what it still lacks, and what it is at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from sidecar.clock import Clock


class Health:
    """The loop feeds it, the HTTP server asks it. Each call returns at once and never touches disk or network. Thread-safe.

    The loop beats while it waits for work, and workers beat as their uploads move: a long upload is no stall.
    """

    def __init__(
        self, clock: Clock, *, conditions: Mapping[str, str] | None = None, redact: Callable[[str], str] = str
    ) -> None:
        """Begin without a status.

        Args:
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
        self._sections: dict[str, Mapping[str, Any]] = {}

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

    def publish(self, status: Mapping[str, Any]) -> None:
        """Replace what `/status` shows. The value must not be changed afterwards."""
        with self._lock:
            self._status = status

    def publish_section(self, name: str, status: Mapping[str, Any]) -> None:
        """The same for a part of `/status` under a name of its own."""
        with self._lock:
            self._sections[name] = status

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
            found = {**self._status, **self._sections}
        return {name: self._redacted(value) for name, value in found.items()}

    def _redacted(self, value: Any) -> Any:
        """The value with every text in it redacted; only who looks pays for that."""
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, Mapping):
            return {name: self._redacted(inner) for name, inner in value.items()}
        return [self._redacted(inner) for inner in value] if isinstance(value, list | tuple) else value
