"""What the product logs, without structlog's logger: binding one for each event takes longer than most events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final
from unittest.mock import patch

from structlog.typing import EventDict

from sidecar.event_log import EventLog

_LEVELS: Final = ("debug", "info", "warning", "error", "critical")


@contextmanager
def quick_logs() -> Iterator[list[EventDict]]:
    """As `structlog.testing.capture_logs`, while this lasts, of all levels."""
    logs: list[EventDict] = []

    @cache
    def method_of(level: str) -> Callable[..., None]:
        if level not in _LEVELS:
            raise AttributeError(level)

        def noted(event: str, **fields: object) -> None:
            logs.append({**fields, "event": event, "log_level": level})

        return noted

    with patch.object(EventLog, "__getattr__", lambda _logger, level: method_of(level)):
        yield logs
