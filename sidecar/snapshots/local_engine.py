"""Runs tasks here: in this process where that is little work, else in a pool of processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from threading import Thread
from typing import Final

from sidecar.clock import SystemClock
from sidecar.engine_ports import Answer, Task
from sidecar.errors import SidecarError
from sidecar.host.limits import memory_limit_bytes, processors, workers_that_fit
from sidecar.io_share import be_one_of
from sidecar.ports import MIB

_AHEAD: Final = 4
"""Tasks per worker that are given out before the first answer is taken: bounds memory, and no worker waits."""

PRELOADED: Final = "sidecar.snapshots.preloaded"
"""The module that worker processes import before they are forked."""

ALONE_S: Final = 1.0
"""Starting a pool takes about as long."""
_WORKER_BYTES: Final = 32 * MIB
"""What a worker adds. Measured: docs/reference/sizing.md."""


class WorkerDied(SidecarError):
    """A process of the pool ended without an answer."""


class LocalEngine:
    """A `TaskEngine`. The pool lives as long as one run."""

    def __init__(self, workers: int | None = None, *, alone_s: float = ALONE_S) -> None:
        """Args:
        workers: processes; 1: everything in this one. None: `workers_that_fit`.
        alone_s: how long this process works alone before it starts others.
        """
        self._workers = workers or workers_that_fit(processors(), memory_limit_bytes(), _WORKER_BYTES)
        self._alone_s = alone_s
        self._clock = SystemClock()

    def run(self, function: Callable[[Task], Answer], tasks: Sequence[Task]) -> Generator[Answer]:
        """See `TaskEngine`. Raises WorkerDied."""
        worked_s, done = 0.0, 0
        while done < len(tasks) and (self._workers == 1 or worked_s < self._alone_s):
            before_s = self._clock.monotonic_s()
            answer = function(tasks[done])
            # The first call loads the kernels, which says nothing about the rest.
            worked_s += self._clock.monotonic_s() - before_s if done else 0.0
            done += 1
            yield answer
        if done < len(tasks):
            yield from self._pooled(function, tasks[done:])

    def _pooled(self, function: Callable[[Task], Answer], tasks: Sequence[Task]) -> Iterator[Answer]:
        # Workers fork from a server that has one thread and the kernels loaded; forking this process would copy its threads'
        # locks, and spawned ones would each load everything again.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([PRELOADED])
        workers = min(self._workers, len(tasks))
        pool = ProcessPoolExecutor(workers, context, initializer=_as_one_of, initargs=(workers,))
        try:
            waiting: deque[Future[Answer]] = deque()
            for task in tasks:
                waiting.append(pool.submit(function, task))
                if len(waiting) >= self._workers * _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise WorkerDied(
                "a worker process was ended from outside, most likely for lack of memory: give the container more memory, or use "
                "fewer workers (--workers 1)"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _as_one_of(workers: int) -> None:
    """Interrupts are the parent's affair; its I/O limits are divided."""
    be_one_of(workers)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed closes no queue: a worker has both ends of the one that its tasks come from."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
