"""Tells a store that is gone from single objects that cannot be read."""

from __future__ import annotations

import threading

from sidecar.errors import SettingsError, StoreError

UNANSWERED_MAX = 8
"""So many reads in a row without an answer, over all partitions, and the store counts as gone."""


class Outage:
    """Counts what failed in a row. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unanswered = 0

    def answered(self) -> None:
        """Something could be read."""
        with self._lock:
            self._unanswered = 0

    def failed(self, error: StoreError | SettingsError) -> None:
        """Something could not. Raises the error if the store is gone; else only one partition cannot be read."""
        with self._lock:
            self._unanswered += error.retryable
            is_gone = self._unanswered > UNANSWERED_MAX
        if is_gone:
            raise error
