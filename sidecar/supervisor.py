"""`run --retry-start`: the process stays up when a start fails, serves its pages, and starts again.

In a broker's pod this process must not end by itself: a container that ends makes the whole pod unready, and with it the broker.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

from sidecar.clock import Clock, SystemClock
from sidecar.config import HttpSettings
from sidecar.daemon import EXIT_CRASHED, TICK_S, Flags, RestartDue, signals
from sidecar.errors import SettingsError, SidecarError
from sidecar.event_log import EVENTS
from sidecar.http.server import HttpServer
from sidecar.logformat.files import FileStamp, stamp_of
from sidecar.logs import redacted
from sidecar.metrics import Metrics
from sidecar.reporting.advice import advised
from sidecar.reporting.health_reporter import ALL_CONDITIONS, Health, HealthReporter
from sidecar.reporting.status_model import StatusModel
from sidecar.runner.run_loop import START_WAIT_S_FIRST, START_WAIT_S_MAX

_DOUBLINGS_MAX = 30
LASTED_S = 600.0
"""A start that lasted so long succeeded: after it, the waits begin again with the shortest. As the kubelet does."""

Attempt: TypeAlias = Callable[[Flags, str], int]
"""Loads the settings, starts, and runs to the end. Raises SidecarError, RestartDue.

Takes the flags of `daemon.run`, and why the last start failed, "" if it did not. Returns the exit code: EXIT_CRASHED after a fault
of the program, another one after a signal.
"""


def retry_wait_s(failures: int) -> float:
    """How long to wait after the n-th failed start in a row (n from 1)."""
    return float(min(START_WAIT_S_FIRST * 2 ** min(failures - 1, _DOUBLINGS_MAX), START_WAIT_S_MAX))


class Supervisor:
    """Starts until a signal ends it. `http`: where to serve while nothing runs; a start that knows better replaces it."""

    def __init__(self, http: HttpSettings, settings_file: Path | None, clock: Clock | None = None) -> None:
        """Args: settings_file: a change of it ends the wait between two starts."""
        self.http = http
        self._settings_file = settings_file
        self._clock = clock or SystemClock()

    def run(self, attempt: Attempt) -> int:
        """The exit code after a signal."""
        flags, failures, failure = Flags(may_restart=True), 0, ""
        with signals(flags):
            while True:
                read, began_s = self._stamp(), self._clock.monotonic_s()
                try:
                    code = attempt(flags, failure)
                    if code != EXIT_CRASHED:
                        return code
                    failure = "a fault of the program: the log has it under `crashed`; report it"
                except RestartDue:
                    failure = ""
                except SidecarError as error:
                    failure = redacted(advised(error))
                if not failure or self._clock.monotonic_s() - began_s >= LASTED_S:
                    failures = 0
                failures += bool(failure)
                # RestartDue and a fault of the program set it, too.
                flags.stop.clear()
                if failure:
                    self._wait(failure, retry_wait_s(failures), read, flags)
                if flags.is_ending():
                    return 0

    def _wait(self, failure: str, wait_s: float, read: FileStamp | None, flags: Flags) -> None:
        """Serve the pages until it is time, the settings file is another one than `read`, or a signal comes."""
        clock = self._clock
        EVENTS.error(
            "start_failed",
            error=failure,
            effect="nothing is archived or pinned; the broker is not affected",
            next_try_s=wait_s,
        )
        until_s, seen = clock.monotonic_s() + wait_s, read
        with ExitStack() as resources:
            health = self._serve(failure, flags.starts, resources)
            while clock.monotonic_s() < until_s and not (flags.is_ending() or flags.reload.is_set()):
                health.beat()
                clock.sleep_s(TICK_S)
                # Not while it is being written: it is the same twice.
                before, seen = seen, self._stamp()
                if seen != read and seen == before:
                    break
        flags.reload.clear()

    def _serve(self, failure: str, starts: int, resources: ExitStack) -> Health:
        clock, redact = self._clock, redacted
        health, metrics, status = Health(clock, redact=redact), Metrics(clock), StatusModel(clock, redact)
        HealthReporter(clock, metrics, health, status).start_failed(failure)
        metrics.started(starts)
        metrics.watch_readiness(health.not_ready, ALL_CONDITIONS)
        if self.http.address is None:
            return health
        try:
            # Without its token the pages are closed, but the probe is answered.
            resources.enter_context(HttpServer(self.http, health, metrics, clock, status, requires_token=False))
        except SettingsError as error:
            EVENTS.error("http_not_listening", error=str(error))
        return health

    def _stamp(self) -> FileStamp | None:
        return None if self._settings_file is None else stamp_of(self._settings_file)
