"""The loop's threads, and the queue by which what their steps have found comes back to the loop's own thread."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import IntEnum
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol, TypeAlias

from sidecar.errors import SidecarError

THREADS_MAX: Final = 1024
"""There are no more than tasks have steps: `run.workers` and `run.uploads_ahead` limit them, and may change meanwhile."""
PLANNED_PER_WORKER: Final = 4
"""Reading the state of an archive is waiting, for the most part."""

Event: TypeAlias = Callable[[], None]
"""To be called on the loop's thread."""
Post: TypeAlias = Callable[[Event], None]
"""Has the loop's thread call an event. For any thread."""
Step: TypeAlias = Callable[[], Any]
Then: TypeAlias = Callable[[Any, SidecarError | None], None]
"""Takes the result of a step, or the error that it raised, on the loop's thread."""


class Pool(IntEnum):
    CHECKS = 0
    PLANS = 1
    STEPS = 2
    UPLOADS = 3


Run: TypeAlias = Callable[[Step, Then, Pool], Future[None]]
"""Runs a step on a thread, and calls `Then` on the loop's. It may be cancelled until it begins."""


def event_of(step: Step, then: Then) -> Event:
    """Run a step. Its event hands on the result; it raises what the step raised that is no SidecarError."""
    try:
        result = step()
    except SidecarError as error:
        return partial(then, None, error)
    except BaseException as error:  # noqa: BLE001 - the loop's thread raises it
        return partial(_raise, error)
    return partial(then, result, None)


def _raise(error: BaseException) -> None:
    raise error


class StepExecutor(Protocol):
    """Runs steps, and keeps events until the loop takes them."""

    def submit(self, pool: Pool, step: Callable[[], Event]) -> Future[None]:
        """Run a step, whose result is an event. It may be cancelled until it begins."""

    def post(self, event: Event) -> None:
        """Keep an event of another thread. After `close`, nothing comes of it."""

    def next_event(self, timeout_s: float) -> Event | None:
        """The next event; None if none comes within that time."""

    def close(self) -> None:
        """Cancel what has not begun, and wait for the rest. Its events are dropped."""


class StepThreads:
    """Implements `StepExecutor` with a pool of threads for each kind of step."""

    def __init__(self, workers: int) -> None:
        """Begin the threads. Args: workers: copy tasks that are under way at once, when this begins."""
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._pools = (
            ThreadPoolExecutor(1, thread_name_prefix="check"),
            ThreadPoolExecutor(workers * PLANNED_PER_WORKER, thread_name_prefix="plan"),
            ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="partition"),
            ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="upload"),
        )

    def submit(self, pool: Pool, step: Callable[[], Event]) -> Future[None]:
        return self._pools[pool].submit(lambda: self._events.put(step()))

    def post(self, event: Event) -> None:
        self._events.put(event)

    def next_event(self, timeout_s: float) -> Event | None:
        try:
            return self._events.get(timeout=timeout_s)
        except Empty:
            return None

    def close(self) -> None:
        for pool in self._pools:
            pool.shutdown(wait=True, cancel_futures=True)
