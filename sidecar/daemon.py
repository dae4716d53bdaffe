"""`run`: archives for ever. The main thread supervises, one thread works.

SIGTERM drains, a second one ends at once; SIGHUP reads the settings again.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType

from sidecar.clock import Clock, SystemClock
from sidecar.config import Settings
from sidecar.config.changes import SettingsSource
from sidecar.config.loading import LoadedSettings
from sidecar.engine_ports import CompactionEngines
from sidecar.errors import SettingsError, SidecarError
from sidecar.event_log import EVENTS
from sidecar.http.server import HttpServer
from sidecar.logs import Redaction
from sidecar.metrics import Metrics
from sidecar.reload import SettingsReload, lacks_memory
from sidecar.reporting.health_reporter import ALL_CONDITIONS, Health, HealthReporter, conditions_at_start
from sidecar.reporting.status_model import StatusModel
from sidecar.rewriting.local_engine import LocalEngines
from sidecar.runner.run_loop import RunLoop
from sidecar.segment.reading import ReadSegment, read_segment
from sidecar.threads import begun, handling

EXIT_CRASHED = 1
EXIT_NOT_DRAINED = 143
TICK_S = 0.5


class RestartDue(Exception):
    """Settings that need a restart changed before the first check was over: the caller starts with the new ones."""


@dataclass(slots=True)
class Flags:
    """`stop`: drain and end. `wake`: scan the disks now. `reload`: read the settings again.

    `signal_number`: what set `stop`, 0 if no signal did. `may_restart`: the caller starts again after RestartDue.
    `starts`: how many starts with these flags became ready.
    """

    stop: threading.Event = field(default_factory=threading.Event)
    wake: threading.Event = field(default_factory=threading.Event)
    reload: threading.Event = field(default_factory=threading.Event)
    signal_number: int = 0
    may_restart: bool = False
    starts: int = 0

    def is_ending(self) -> bool:
        """Whether a signal has set `stop`."""
        return self.signal_number != 0


def run(
    settings: Settings,
    clock: Clock | None = None,
    engines: CompactionEngines | None = None,
    source: SettingsSource | None = None,
    settled: Callable[[], None] = lambda: None,
    reader: ReadSegment = read_segment,
    flags: Flags | None = None,
    failure: str = "",
) -> int:
    """Archive until the signal to stop; returns the exit code: 0 after a clean drain, 1 after a fault of this program.

    `engines`: where compactions happen. Default: in this process. `source`: where changed settings are read from; by default
    they never change. `reader`: reads the segments that are archived.
    `settled`: called once, as soon as a start has learned what there is to learn. `flags`: of a caller that starts again.
    `failure`: why the start before this one failed; shown until this one waits for something, or its first check is over.
    Where work had to be abandoned the process ends here, with 143: threads that wait for a store must not hold it.

    Raises:
        SettingsError: these settings can never work. A store that does not answer is waited for instead.
        SidecarError: there is no point in trying further.
        RestartDue: see the class.
    """
    if not settings.broker.log_dirs:
        raise SettingsError("no log directory is given: use --log-dir, or set broker.log_dirs in the settings file")
    clock = clock or SystemClock()
    redact = Redaction(LoadedSettings(settings, {}).secrets()).text
    metrics, flags = Metrics(clock), flags or Flags()
    metrics.started(flags.starts)
    health = Health(clock, conditions=conditions_at_start(settings.store.url), redact=redact)
    status = StatusModel(clock, redact)
    reporter = HealthReporter(clock, metrics, health, status)
    metrics.watch_readiness(health.not_ready, ALL_CONDITIONS)
    metrics.watch_work_dir("state", settings.run.state_path)
    metrics.watch_work_dir("staging", settings.compaction.staging_path)

    def is_ready() -> None:
        flags.starts += 1
        metrics.started(1)
        settled()

    if failure:
        reporter.start_failed(failure)
    if lacking := lacks_memory(settings):
        reporter.lacks_memory(lacking)
    with ExitStack() as resources:
        resources.enter_context(signals(flags))
        if settings.http.address is not None:
            server = resources.enter_context(HttpServer(settings.http, health, metrics, clock, status))
            EVENTS.info("http_listening", port=server.port)
        loop = RunLoop(settings, clock, metrics, reporter, flags.stop, flags.wake, engines or LocalEngines(), reader)
        reload = (
            None
            if source is None
            else SettingsReload(
                source,
                loop.adopt,
                metrics,
                health,
                clock,
                # Later it may be the only one that has a deleted segment, as an open file.
                lambda: flags.may_restart and "first_check" in health.not_ready(),
            )
        )
        # An abandoned transfer must not hold the process.
        worker = begun("loop", loop.run)
        _supervise(worker, health, metrics, status, flags, settings.run.drain_timeout_s, clock, reload, is_ready)
        if not worker.done():
            EVENTS.error(
                "drain_timed_out",
                drain_timeout_s=settings.run.drain_timeout_s,
                effect="the journal has it; it resumes at the next start",
            )
            # Without the interpreter's wait for its pools' threads.
            sys.stderr.flush()
            os._exit(EXIT_NOT_DRAINED)
    fault = worker.exception()
    if isinstance(fault, SidecarError):
        raise fault
    if fault is not None:
        EVENTS.critical("crashed", error=repr(fault), exc_info=fault)
        return EXIT_CRASHED
    if reload is not None and reload.restart_due and not flags.is_ending():
        raise RestartDue
    EVENTS.info("stopped")
    return 0


def _supervise(
    worker: Future[None],
    health: Health,
    metrics: Metrics,
    status: StatusModel,
    flags: Flags,
    drain_timeout_s: float,
    clock: Clock,
    reload: SettingsReload | None = None,
    settled: Callable[[], None] = lambda: None,
) -> None:
    """Wait for the worker's end, and watch the settings; after the signal to drain, wait for at most this long."""

    def wait(seconds: float) -> None:
        # The worker beats while it works. A call to the store ends by its own time limits: waiting for it is no stall.
        if metrics.store.calls_in_progress():
            health.beat()
        status.tick()
        futures.wait([worker], seconds)

    is_settled = False
    while not worker.done() and not flags.stop.is_set():
        wait(TICK_S)
        if not is_settled and not health.not_ready():
            is_settled = True
            settled()
        if reload is not None:
            asked = flags.reload.is_set()
            flags.reload.clear()
            reload.look(asked=asked)
            if reload.restart_due:
                flags.stop.set()
                flags.wake.set()
    while not worker.done() and flags.may_restart and not flags.is_ending():
        wait(TICK_S)  # Its end is no hurry: to end the process for it would restart the container.
    if flags.is_ending():
        EVENTS.info("draining", signal_number=flags.signal_number, drain_timeout_s=drain_timeout_s)
    deadline_s = clock.monotonic_s() + drain_timeout_s
    while not worker.done() and (left_s := deadline_s - clock.monotonic_s()) > 0:
        wait(min(TICK_S, left_s))


@contextmanager
def signals(flags: Flags) -> Iterator[None]:
    """Let SIGTERM, SIGINT and SIGHUP set the flags."""

    def on_signal(number: int, _frame: FrameType | None) -> None:
        # Nothing but flags: the thread that is interrupted here may hold the lock of the logs.
        if flags.signal_number:
            os._exit(128 + number)
        flags.signal_number = number
        flags.stop.set()
        flags.wake.set()

    with handling({signal.SIGTERM: on_signal, signal.SIGINT: on_signal, signal.SIGHUP: lambda *_: flags.reload.set()}):
        yield
