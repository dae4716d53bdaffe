"""Into how many shares this process's I/O limits are divided: as many as there are processes that do the same work now."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_lock = threading.Lock()
_shares = [1]


def io_shares() -> int:
    """1: this process may use its limits alone."""
    return max(_shares)


def be_one_of(processes: int) -> None:
    """This process is a worker: from now on its limits are one share of so many."""
    with _lock:
        _shares[0] = max(1, processes)


@contextmanager
def shared_with(workers: int) -> Iterator[None]:
    """While so many workers read and write for this process, it keeps one share for itself."""
    with _lock:
        _shares.append(workers + 1)
    try:
        yield
    finally:
        with _lock:
            _shares.remove(workers + 1)


@dataclass(frozen=True, slots=True)
class AsOneOf:
    """A function for workers, which limits the worker's I/O to one share first; goes through pickle."""

    function: Callable[..., Any]
    processes: int

    def __call__(self, *arguments: Any) -> Any:
        """What the function returns."""
        be_one_of(self.processes)
        return self.function(*arguments)
