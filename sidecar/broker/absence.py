"""Logs each reason for which a broker does not answer, once, and that it answers again."""

from __future__ import annotations

import structlog

from sidecar.errors import BrokerTrouble, BrokerUnavailable

_log = structlog.get_logger(__name__)


class Absence:
    """The troubles that were logged since the broker answered last.

    The first one may hide another: while a broker starts, it refuses connections, and then perhaps a password.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._logged = BrokerTrouble(0)

    def goes_on(self, error: BrokerUnavailable) -> None:
        """The broker did not answer."""
        if error.trouble not in self._logged:
            self._logged |= error.trouble
            _log.warning("broker_away", error=str(error), effect="nothing new is planned")

    def is_over(self) -> None:
        """The broker has answered."""
        if self._logged:
            self._logged = BrokerTrouble(0)
            _log.info("broker_back", servers=self._servers)
