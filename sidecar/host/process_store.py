"""One store and one I/O budget per process for all its tasks: connections are neither pickled nor shared across a fork."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from threading import Lock

from sidecar.clock import SystemClock
from sidecar.ports import ObjectStore
from sidecar.storage.bandwidth import BandwidthLimit, IoBudget
from sidecar.storage.opening import open_store
from sidecar.store_settings import StoreSettings

_lent: dict[tuple[StoreSettings, int], tuple[ObjectStore, IoBudget]] = {}
_turns: dict[int, Callable[[Path], AbstractContextManager[None]]] = {}
_opening = Lock()
"""Held while a store or a limit is opened: threads that need the same one at once get one."""


def store_of(settings: StoreSettings) -> ObjectStore:
    """The store of these settings in this process: the one that was lent, else one of its own. Raises SettingsError, StoreError."""
    found = _lent.get(_key(settings))
    if found is not None:
        return found[0]
    with _opening:
        return _opened(settings, os.getpid())


@contextmanager
def lent(settings: StoreSettings, store: ObjectStore, budget: IoBudget) -> Iterator[None]:
    """Within the context tasks in this process use this store, with its metrics and its limits, which a reload changes."""
    key = _key(settings)
    before = _lent.get(key)
    _lent[key] = store, budget
    try:
        yield
    finally:
        if before is None:
            del _lent[key]
        else:
            _lent[key] = before


def disk_reads(bytes_per_s: int | None) -> BandwidthLimit:
    """The limit for what a task reads from the broker's disks. `bytes_per_s`: where nothing was lent to this process."""
    found = next((budget for (_, process_id), (_, budget) in _lent.items() if process_id == os.getpid()), None)
    if found is not None:
        return found.reads
    with _opening:
        return _disk_reads(bytes_per_s, os.getpid())


@contextmanager
def taking_turns(turn: Callable[[Path], AbstractContextManager[None]]) -> Iterator[None]:
    """Within the context tasks in this process wait before they read a file of the broker's disks."""
    _turns[os.getpid()] = turn
    try:
        yield
    finally:
        del _turns[os.getpid()]


def disk_turn(path: Path) -> AbstractContextManager[None]:
    """The permit to read this file; at once in a process without permits."""
    turn = _turns.get(os.getpid())
    return nullcontext() if turn is None else turn(path)


def _key(settings: StoreSettings) -> tuple[StoreSettings, int]:
    """Rates change while the store stays."""
    return settings.model_copy(update={"bandwidth_bytes_per_s": None, "read_bytes_per_s": None}), os.getpid()


@lru_cache(maxsize=4)
def _opened(settings: StoreSettings, _process_id: int) -> ObjectStore:
    return open_store(settings)


@lru_cache(maxsize=4)
def _disk_reads(bytes_per_s: int | None, _process_id: int) -> BandwidthLimit:
    return BandwidthLimit(bytes_per_s, SystemClock())
