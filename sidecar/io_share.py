"""Into how many shares this process's I/O limits are divided: as many as there are processes that do the same work now."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any


class Moving(StrEnum):
    """Which of the two limits: each is divided among those that use it."""

    UPLOADS = "uploads"
    READS = "reads"


_lock = threading.Lock()
_shares = {moving: [1] for moving in Moving}


def io_shares(moving: Moving) -> int:
    """1: this process may use the limit alone."""
    return max(_shares[moving])


def be_one_of(processes: int) -> None:
    """This process is a worker: from now on its limits are one share of so many."""
    with _lock:
        for shares in _shares.values():
            shares[0] = max(1, processes)


@contextmanager
def shared_with(workers: int, *moving: Moving) -> Iterator[None]:
    """While so many workers do this for the process, it keeps one share of these limits for itself."""
    with _lock:
        for each in moving:
            _shares[each].append(workers + 1)
    try:
        yield
    finally:
        with _lock:
            for each in moving:
                _shares[each].remove(workers + 1)


def as_one_of(processes: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns; before it, `be_one_of`."""
    be_one_of(processes)
    return function(*arguments)
