"""What the log says of a broker that does not answer: each reason once, and that it is back."""

from __future__ import annotations

import re

import structlog

_log = structlog.get_logger(__name__)

_NUMBER = re.compile(r"\d+")
REASONS_MAX = 20
"""Told of one absence: a broker's own words may differ each time."""


class Absence:
    """The reasons told since the broker answered last.

    The first reason may hide another: behind a connection that is refused while the broker starts, a password that is.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._told: set[str] = set()

    def goes_on(self, words: str) -> None:
        """The broker was asked in vain. What differs in numbers only, such as a size or a time, is the same reason."""
        reason = _NUMBER.sub("0", words)
        if reason not in self._told and len(self._told) < REASONS_MAX:
            self._told.add(reason)
            _log.warning("broker_away", error=words, effect="nothing new is planned")

    def is_over(self) -> None:
        """The broker has answered."""
        if self._told:
            self._told.clear()
            _log.info("broker_back", servers=self._servers)
