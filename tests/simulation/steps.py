"""Runs the steps of a sidecar's loop in this thread, one at a time, in an order that the seed decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from random import Random

from sidecar.runner.step_threads import Event, Pool
from tests.simulation.findings import Finding


class _SimFuture(Future[None]):
    """Of a step that waits until it is its turn. Without the locks of a `Future`, which take longer than some steps."""

    def __init__(self) -> None:
        self.is_cancelled = self.has_begun = False

    def cancel(self) -> bool:
        self.is_cancelled = not self.has_begun
        return self.is_cancelled


class SimSteps:
    """Implements `StepExecutor`. `moves`: steps that ran, and events that the loop took.

    `random`: decides what comes next, of all steps that could run and the oldest event; None: first come, first served.
    """

    def __init__(self, _workers: int = 1) -> None:
        """Nothing is under way."""
        self.random: Random | None = None
        self.moves = 0
        self._waiting: list[tuple[Callable[[], Event], _SimFuture]] = []
        self._events: deque[Event] = deque()

    @property
    def has_work(self) -> bool:
        """Whether a step could begin, or an event waits."""
        return bool(self._events) or any(not future.is_cancelled for _, future in self._waiting)

    def submit(self, _pool: Pool, step: Callable[[], Event]) -> Future[None]:
        """See `StepExecutor`."""
        future = _SimFuture()
        self._waiting.append((step, future))
        return future

    def post(self, event: Event) -> None:
        """See `StepExecutor`."""
        self._events.append(event)

    def next_event(self, timeout_s: float) -> Event | None:
        """See `StepExecutor`. Raises Finding where a loop waits for something that never comes."""
        events, waiting = self._events, self._waiting
        while True:
            self.moves += 1
            if self.random is None:
                row, is_event = 0, bool(events)
            else:
                row = self.random.randrange(len(waiting) + bool(events)) if events or waiting else 0
                is_event = row == len(waiting)
            if is_event and events:
                return events.popleft()
            if not waiting:
                raise Finding("hangs", f"the loop waits {timeout_s} s, and nothing is under way")
            step, future = waiting.pop(row)
            if not future.is_cancelled:
                future.has_begun = True
                events.append(step())

    def close(self) -> None:
        """See `StepExecutor`."""
        self._waiting.clear()
        self._events.clear()
