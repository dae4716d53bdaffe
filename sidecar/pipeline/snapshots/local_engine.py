"""Runs tasks here: in this process where that is little work, else in a pool of processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Final

from sidecar.errors import SidecarError

_AHEAD: Final = 4
"""Tasks per worker that are given out before the first answer is taken: bounds memory, and no worker waits."""

PRELOADED: Final = "sidecar.pipeline.snapshots.preloaded"
"""The module that worker processes import before they are forked."""


class WorkerDied(SidecarError):
    """A process of the pool ended without an answer."""


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine:
    """A `TaskEngine`. `workers` 1: everything in this process. The pool lives as long as one run."""

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers or usable_cores()

    def run(self, function: Callable[[Any], bytes], tasks: Sequence[Any]) -> Iterator[bytes]:
        """See `TaskEngine`. Raises WorkerDied."""
        if self._workers == 1 or len(tasks) < 2:
            yield from map(function, tasks)
            return
        # Workers fork from a server that has one thread and the kernels loaded; forking this process would copy its threads'
        # locks, and spawned ones would each load everything anew.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([PRELOADED])
        pool = ProcessPoolExecutor(min(self._workers, len(tasks)), context, initializer=_leave_interrupts_to_the_parent)
        try:
            yield from _in_order(pool, function, tasks, self._workers * _AHEAD)
        except BrokenProcessPool as error:
            raise WorkerDied(
                "a worker process was ended from outside, most likely for lack of memory: give the container more, or use "
                "fewer workers (--workers 1)"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _in_order(
    pool: ProcessPoolExecutor, function: Callable[[Any], bytes], tasks: Sequence[Any], ahead: int
) -> Iterator[bytes]:
    waiting: deque[Future[bytes]] = deque()
    for task in tasks:
        waiting.append(pool.submit(function, task))
        if len(waiting) >= ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
