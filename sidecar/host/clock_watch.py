"""Whether this host's clock agrees with the store's, as `run` checks it from time to time."""

from __future__ import annotations

from typing import Final

import structlog

from sidecar.clock import Clock
from sidecar.errors import FROM_STORE
from sidecar.ports import ObjectStore
from sidecar.storage.store_clock import read_store_clock

CHECK_S: Final = 3600.0

_log = structlog.get_logger(__name__)


class ClockWatch:
    """Logs a WARNING when the two clocks begin to differ by more than a minute, and a line when they agree again.

    It writes to the store, which may hang: after the start it belongs on the thread of the chores, not on that of the loop.
    """

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._differed = False

    def look(self) -> None:
        """Compare the clocks. A store that fails, or gives no times, is reported elsewhere."""
        try:
            reading = read_store_clock(self._store, self._clock)
        except FROM_STORE:
            return
        if reading.differs == self._differed:
            return
        self._differed = reading.differs
        if reading.differs:
            _log.warning(
                "clock_differs_from_store",
                finding=str(reading),
                effect="times in commits and logs are wrong; ages of objects are measured by the store's clock",
                advice="synchronise this host's clock (NTP)",
            )
        else:
            _log.info("clock_agrees_with_store")
