"""One store per process for all tasks that run in it: connections are neither pickled nor shared across a fork."""

from __future__ import annotations

import os
from functools import lru_cache

from sidecar.ports import ObjectStore
from sidecar.storage import open_store
from sidecar.store_settings import StoreSettings


def store_of(settings: StoreSettings) -> ObjectStore:
    """The store of these settings in this process. Raises SettingsError, StoreError."""
    return _opened(settings, os.getpid())


@lru_cache(maxsize=4)
def _opened(settings: StoreSettings, _process_id: int) -> ObjectStore:
    return open_store(settings)
