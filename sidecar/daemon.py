"""`run`: archives for ever. The main thread supervises, one thread works; SIGTERM drains, a second one ends at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import structlog

from sidecar.clock import Clock, SystemClock
from sidecar.config import Settings
from sidecar.discovery.watch import Hint
from sidecar.errors import SettingsError, SidecarError, StoreError
from sidecar.http import Health, HttpServer
from sidecar.metrics import Metrics
from sidecar.pipeline.assembly import open_tools, scanner
from sidecar.pipeline.partition import PartitionOutcome
from sidecar.pipeline.rounds import RoundReport, Rounds
from sidecar.pipeline.tools import Tools

_log = structlog.get_logger(__name__)

EXIT_NOT_DRAINED = 143
TICK_S = 0.5
START_WAIT_S_MAX = 60.0
CONDITIONS = ("settings", "store", "log_dirs", "first_round")


@dataclass(slots=True)
class _Flags:
    """`stop`: drain and end. `wake`: look at the disks now."""

    stop: threading.Event = field(default_factory=threading.Event)
    wake: threading.Event = field(default_factory=threading.Event)


def run(settings: Settings, clock: Clock | None = None) -> int:
    """Archive until told to stop; returns the exit code: 0 after a clean drain, 143 if work had to be abandoned.

    Raises:
        SettingsError: these settings can never work. A store that does not answer is waited for instead.
    """
    if not settings.broker.log_dirs:
        raise SettingsError("no log directory is given: --log-dir, or broker.log_dirs in the settings file")
    clock = clock or SystemClock()
    metrics, health, flags = Metrics(clock), Health(clock, conditions=CONDITIONS), _Flags()
    with ExitStack() as resources:
        resources.enter_context(_signals(flags))
        if settings.http.address is not None:
            server = resources.enter_context(HttpServer(settings.http, health, metrics, clock))
            _log.info("http_listening", port=server.port)
        worker = _Worker(settings, clock, metrics, health, flags)
        worker.start()
        _supervise(worker, health, flags, settings.run.drain_timeout_s, clock)
        if worker.is_alive():
            _log.error("drain_timed_out", drain_timeout_s=settings.run.drain_timeout_s, left="the journal knows it")
            return EXIT_NOT_DRAINED
        if worker.failure is not None:
            raise worker.failure
    _log.info("stopped")
    return 0


def _supervise(worker: _Worker, health: Health, flags: _Flags, drain_timeout_s: float, clock: Clock) -> None:
    while worker.is_alive() and not flags.stop.is_set():
        health.beat()
        worker.join(TICK_S)
    deadline_s = clock.monotonic_s() + drain_timeout_s
    while worker.is_alive() and clock.monotonic_s() < deadline_s:
        health.beat()
        worker.join(TICK_S)


@contextmanager
def _signals(flags: _Flags) -> Iterator[None]:
    def on_signal(number: int, _frame: FrameType | None) -> None:
        if flags.stop.is_set():
            os._exit(128 + number)
        _log.info("draining", signal=signal.Signals(number).name)
        flags.stop.set()
        flags.wake.set()

    if threading.current_thread() is not threading.main_thread():
        yield  # Embedded in a test: signals belong to the main thread.
        return
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Worker(threading.Thread):
    """Opens the tools, then does round after round. A daemon thread: an abandoned transfer must not hold the process."""

    def __init__(self, settings: Settings, clock: Clock, metrics: Metrics, health: Health, flags: _Flags) -> None:
        super().__init__(name="rounds", daemon=True)
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._health = health
        self._flags = flags
        self._conditions: dict[str, Any] = {}
        self.failure: SidecarError | None = None

    def run(self) -> None:
        """See `threading.Thread`."""
        wait_s = 1.0
        while not self._flags.stop.is_set():
            try:
                with open_tools(
                    self._settings, repeats=True, clock=self._clock, metrics=self._metrics, stop=self._flags.stop
                ) as tools:
                    self._health.met("settings")
                    self._health.met("store")
                    self._rounds(tools)
                return
            except StoreError as error:
                # The store may come back; a process that ends would only be started again.
                self._metrics.failed(type(error).__name__)
                self._health.unmet("store", str(error))
                _log.error("store_not_usable", error=str(error), next_try_s=wait_s)
                if not error.retryable and wait_s >= START_WAIT_S_MAX:
                    self.failure = error
                    return
            except SidecarError as error:
                self.failure = error
                return
            self._flags.stop.wait(wait_s)
            wait_s = min(2 * wait_s, START_WAIT_S_MAX)

    def _rounds(self, tools: Tools) -> None:
        rounds = Rounds(tools, scanner(self._settings))
        with ExitStack() as resources:
            if self._settings.run.watch:
                resources.enter_context(Hint(self._settings.broker.log_dirs, self._flags.wake))
            while not self._flags.stop.is_set():
                self._flags.wake.clear()
                report = self._round(rounds)
                self._flags.wake.wait(self._pause_s(report))

    def _round(self, rounds: Rounds) -> RoundReport:
        try:
            report = rounds.run_once(lambda _partition, _segment: self._health.beat())
        except SidecarError as error:
            # Facts that cannot be read now (a log dir being remounted) may be readable at the next look.
            self._metrics.failed(type(error).__name__)
            self._health.unmet("log_dirs", str(error))
            _log.error("round_failed", error=str(error))
            return RoundReport()
        self._health.met("first_round")
        self._show(report)
        return report

    def _pause_s(self, report: RoundReport) -> float:
        soon = [outcome.look_again_ms for outcome in report.outcomes if outcome.look_again_ms is not None]
        return min([self._settings.run.scan_interval_s, *(milliseconds / 1000 + 0.05 for milliseconds in soon)])

    def _show(self, report: RoundReport) -> None:
        unreadable = [str(problem.error) for problem in report.problems if problem.topic_partition is None]
        store_errors = [str(outcome.error) for outcome in report.outcomes if isinstance(outcome.error, StoreError)]
        for condition, reasons in (("log_dirs", unreadable), ("store", store_errors)):
            if reasons:
                self._health.unmet(condition, reasons[0])
            else:
                self._health.met(condition)
        self._health.publish(
            {
                "round_ended_ms": self._clock.now_ms(),
                "partitions": [_row(outcome) for outcome in report.outcomes],
                "problems": [str(problem.error) for problem in report.problems],
            }
        )


def _row(outcome: PartitionOutcome) -> dict[str, Any]:
    topic_partition = outcome.files.topic_partition
    return {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "archived_end_offset": outcome.end_offset,
        "segments_archived": len(outcome.archived),
        "segments_waiting": outcome.waiting,
        "reason": outcome.reason,
        "error": type(outcome.error).__name__ if outcome.error else None,
    }
