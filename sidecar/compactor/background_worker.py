"""The threads in which `run` compacts and clears up. Uploads never wait for them, and they end with the uploads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass
from types import TracebackType
from typing import Self

import structlog

from sidecar.clock import Clock
from sidecar.errors import SidecarError

_log = structlog.get_logger(__name__)

JOIN_S = 0.2
RELOAD_WAIT_S = 2.0
"""So long uploads wait at most for work that other settings cut off."""


class Chore:
    """Something small that is done every so often, whatever else there is to do."""

    def __init__(self, name: str, interval_s: float, work: Callable[[], object], clock: Clock) -> None:
        """Args: work: may raise SidecarError, which is logged; the next try is an interval away."""
        self._name = name
        self._interval_s = interval_s
        self._work = work
        self._clock = clock
        self._next_s = clock.monotonic_s() + interval_s

    def turn(self) -> None:
        if self._clock.monotonic_s() < self._next_s:
            return
        self._next_s = self._clock.monotonic_s() + self._interval_s
        try:
            self._work()
        except SidecarError as error:
            _log.error("chore_failed", chore=self._name, error=str(error), next_try_s=self._interval_s)


@dataclass(eq=False)
class BesideUploads:
    """A context manager around the threads: one for each of `workers`, by its name, so that none waits for another.

    A worker is called again and again: it does what is due, and returns whether there may be more at once.

    `stop`: the process drains. `ending`: set here when the context ends; workers begin nothing after either. `cut_off`: set here
    when work in progress must not commit any more. `interval_s`: between two turns that found nothing. `drain_s`: how long work
    in progress may go on after the end of the context; then `give_up` is called. Where the process goes on, with other settings,
    work is cut off at once. `give_up`: ends what workers wait for; called in any case at the end. `beat`: called while the end is
    waited for. `earlier`: threads of settings before. A worker begins when those of its name have ended.
    """

    workers: InitVar[Mapping[str, Callable[[], bool]]]
    clock: Clock
    _: KW_ONLY
    stop: threading.Event
    ending: threading.Event
    cut_off: threading.Event
    interval_s: float
    drain_s: float
    give_up: Callable[[], None]
    beat: Callable[[], None]
    earlier: InitVar[BesideUploads | None] = None

    def __post_init__(self, workers: Mapping[str, Callable[[], bool]], earlier: BesideUploads | None) -> None:
        # Not the object: each would keep all that were there before it.
        self._earlier = () if earlier is None else earlier.living()
        self._failures: list[BaseException] = [] if earlier is None else earlier._failures  # noqa: SLF001 - of our own kind
        # Daemon threads: where one cannot be ended the process ends all the same.
        self._threads = [
            threading.Thread(target=self._run, args=(worker,), name=name, daemon=True)
            for name, worker in workers.items()
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.ending.set()
        if self.stop.is_set() or error is not None:
            self._join_within(self.drain_s)
            self.cut_off.set()
            self._end("the process stops", "")
            while self.is_alive():
                self._join()  # The process has a deadline of its own.
        else:
            wait_s = min(self.drain_s, RELOAD_WAIT_S)
            self.cut_off.set()
            self._join_within(wait_s)
            self._end("the settings changed", "compaction uses the new settings when the running job ends")
            self._join_within(wait_s)

    def _end(self, reason: str, effect: str) -> None:
        if self.is_alive():
            left = "the running job starts no further commit; a commit in progress may still succeed"
            _log.warning("compaction_cut_off", reason=reason, drain_s=self.drain_s, left=left, effect=effect)
        self.give_up()

    def _join_within(self, seconds: float) -> None:
        until_s = self.clock.monotonic_s() + seconds
        while self.is_alive() and self.clock.monotonic_s() < until_s:
            self._join()

    def is_alive(self) -> bool:
        """Whether a thread is at work still, also one of settings before."""
        return bool(self.living())

    def living(self) -> tuple[threading.Thread, ...]:
        """The threads that are at work still, also those of settings before."""
        return tuple(thread for thread in (*self._earlier, *self._threads) if thread.is_alive())

    def _join(self) -> None:
        self.beat()
        for thread in self.living()[:1]:
            thread.join(JOIN_S)

    def require_sound(self) -> None:
        """Raise what ended a thread, if anything did: a fault of our own ends the process, here as elsewhere.

        Also one of settings before.
        """
        for failure in self._failures:
            raise failure

    def _run(self, worker: Callable[[], bool]) -> None:
        name = threading.current_thread().name
        # Only for its own kind: groups do not wait for a long compaction of the archive.
        earlier = [thread for thread in self._earlier if thread.name == name]
        try:
            while any(thread.is_alive() for thread in earlier) and not self._is_ending():
                self._ending_within(JOIN_S)
            while not self._is_ending():
                if not worker() and not self._is_ending():
                    self._ending_within(self.interval_s)
        except BaseException as error:  # noqa: BLE001 - handed to the loop, which ends the process with it
            self._failures.append(error)

    def _is_ending(self) -> bool:
        return self.stop.is_set() or self.ending.is_set()

    def _ending_within(self, seconds: float) -> None:
        until_s = self.clock.monotonic_s() + seconds
        while not self._is_ending() and (left_s := until_s - self.clock.monotonic_s()) > 0:
            self.ending.wait(min(left_s, JOIN_S))
