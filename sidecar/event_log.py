"""The log of events by structlog, which the first event loads: with rich and asyncio it is a fifth of a start."""

import logging
from collections.abc import Callable
from threading import RLock
from typing import Any


class FirstEvent(logging.Handler):
    """The root's handler until the first event, ours or a library's, sets the logs up."""

    def __init__(self, set_up: Callable[[], None], level: int) -> None:
        """Args: set_up: replaces this handler. level: the lowest of ours that counts."""
        super().__init__()
        self._set_up: Callable[[], None] | None = set_up
        self._level = level
        self._once = RLock()

    def emit(self, record: logging.LogRecord) -> None:
        self.begin()
        logging.getLogger(record.name).handle(record)

    def awaits(self, method: str) -> bool:
        """Whether a call of this method of a logger is such an event."""
        return logging.getLevelNamesMapping().get(method.upper(), logging.CRITICAL) >= self._level

    def begin(self) -> None:
        """Once, whichever threads have the first event."""
        with self._once:
            set_up, self._set_up = self._set_up, None
            if set_up is not None:
                set_up()


class EventLog:
    """Passes its methods on to structlog's logger."""

    def __getattr__(self, method: str) -> Any:
        waiting = next((handler for handler in logging.getLogger().handlers if isinstance(handler, FirstEvent)), None)
        if waiting is not None:
            if not waiting.awaits(method):
                return _ignored
            waiting.begin()
        import structlog

        return getattr(structlog.get_logger(), method)


def _ignored(*_event: object, **_fields: object) -> None:
    """An event below the level."""


EVENTS: Any = EventLog()
"""The log of the program's own events, for every module: its methods are those of structlog's loggers."""
