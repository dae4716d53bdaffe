"""A Spark context that is there when it is used, and gone when it is not."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from sidecar.clock import Clock, SystemClock
from sidecar.config import SparkSettings
from sidecar.errors import StagingFull
from sidecar.logs import writes_json
from sidecar.spark.failures import cause_of
from sidecar.spark.java import SparkUnavailable, java_home, require_user_name
from sidecar.spark.launcher import direct_start
from sidecar.spark.properties import (
    LOGGING_FILE,
    PROPERTIES_FILE,
    by_file,
    environment_of,
    logging_properties,
    spark_properties,
)
from sidecar.spark.scratch import Scratch
from sidecar.store_settings import StoreSettings
from sidecar.threads import handling

if TYPE_CHECKING:
    from pyspark import SparkContext

_STOP_TIMEOUT_S: Final = 20.0
_TRAINING_STOP_TIMEOUT_S: Final = 600.0
"""The JVM writes its class archive when it ends: ten seconds of work, and a machine that builds an image may be busy."""


@dataclass(eq=False)
class EmbeddedSpark:
    """Owns the one JVM of this process; a context manager that ends it. Thread-safe.

    Idle for `idle_stop_s` it ends too, and the next use starts another; so it does after a JVM that died.

    `preload`: modules that workers need, imported once before they are forked. `store`: workers of this machine get its keys, by
    their environment. `train`: where the JVM writes an archive of the classes it has loaded, when it ends.
    """

    settings: SparkSettings
    _: KW_ONLY
    preload: Sequence[str] = ()
    store: StoreSettings | None = None
    train: Path | None = None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._context: SparkContext | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: Scratch | None = None
        self._users = 0
        self._stopping = threading.Event()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    @contextmanager
    def context(self) -> Iterator[SparkContext]:
        """The running context, started if need be. Raises SparkUnavailable."""
        with self._lock:
            self._forget_timer()
            if self._context is not None and self._is_dead():
                self._end()
            context = self._context or self._start()
            self._users += 1
        try:
            yield context
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0 and self._context is not None:
                    self._rest()

    def death(self, wait_s: float = 0.0) -> str | None:
        """How the latest JVM ended and what that means, None if it runs after so long, or where there was none."""
        try:
            status = None if self._process is None else self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return None
        if status is None:
            return None
        if status == -signal.SIGKILL:
            return (
                "the JVM was killed from outside, most likely for lack of memory: give the container more memory, or "
                "lower spark.driver_memory_bytes. Nothing was changed: run it again"
            )
        return f"the JVM ended with status {status}; the lines above have the reason"

    def stop(self) -> None:
        """End the JVM now, whoever uses it or waits for it."""
        self._stopping.set()
        with self._lock:
            self._stopping.clear()
            self._forget_timer()
            self._end()

    def _rest(self) -> None:
        if self.death() is not None:
            self._end()
            return
        self._timer = threading.Timer(self.settings.idle_stop_s, self._stop_if_idle)
        self._timer.daemon = True
        self._timer.start()

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_if_idle(self) -> None:
        with self._lock:
            if self._users == 0:
                self._end()

    def _is_dead(self) -> bool:
        """The JVM is gone, or a cluster's master has thrown our application out."""
        from py4j.protocol import Py4JError

        if self._context is None or self.death() is not None:
            return True
        try:
            return bool(self._context._jsc.sc().isStopped())  # noqa: SLF001 - pyspark asks for it nowhere
        except (Py4JError, OSError, AttributeError):
            return True

    def _start(self) -> SparkContext:
        require_user_name()
        home = java_home(self.settings.java_home, os.environ)
        from py4j.protocol import Py4JError
        from pyspark import SparkContext
        from pyspark.errors import PySparkException

        self._process = None
        try:
            self._scratch = Scratch(self.settings.local_dir, "spark")
            (self._scratch.path / LOGGING_FILE).write_text(logging_properties(as_json=writes_json()))
            properties = spark_properties(self.settings, self._scratch.path, self.preload)
            variables = by_file(properties, self._scratch.path, os.environ)
            variables |= environment_of(self.settings, home, os.environ, self.store)
            place = self._scratch.path / "home"
            variables |= direct_start(self.settings, properties, place, home, os.environ, train=self.train)
            # From then on, pyspark would handle SIGINT.
            with _environment(variables), handling({signal.SIGINT: signal.getsignal(signal.SIGINT)}):
                self._context = SparkContext()
            (self._scratch.path / PROPERTIES_FILE).unlink()
            self._process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - the only handle to its JVM
            if not self.settings.is_local:
                wait_for_executors(self._context, self.settings, SystemClock(), self._stopping)
        except (PySparkException, Py4JError, OSError, ValueError, StagingFull) as error:
            what = cause_of(error)  # Which asks the JVM.
            self._end()
            raise SparkUnavailable(f"Spark did not start: {what}; the lines above have the reason") from error
        except SparkUnavailable:
            self._end()
            raise
        return self._context

    def _end(self) -> None:
        from pyspark import SparkContext

        context, self._context = self._context, None
        if context is not None:
            _stop_context(context)
        # pyspark keeps its JVM for ever; there is no other handle to it than these two.
        gateway = SparkContext._gateway  # noqa: SLF001 - as above
        if gateway is not None:
            _end_jvm(gateway, _STOP_TIMEOUT_S if self.train is None else _TRAINING_STOP_TIMEOUT_S)
            # Else the next context would talk to a JVM that is no more.
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - as above
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The JVM and its workers inherit these; afterwards no other process does."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _stop_context(context: Any) -> None:
    with warnings.catch_warnings():
        # Of a JVM that was killed: it could not be asked to stop, and need not be.
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            context.stop()
        except OSError:
            # The JVM was killed: pyspark gives up half way, and does the other half when called again.
            context.stop()


def _end_jvm(gateway: Any, timeout_s: float) -> None:
    process = gateway.proc
    gateway.shutdown()
    # The JVM ends when its stdin does.
    process.stdin.close()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_LOOK_S: Final = 0.2
_DYNAMIC: Final = "spark.dynamicAllocation.enabled"
_WANTED: Final = "spark.executor.instances"


def wait_for_executors(context: Any, settings: SparkSettings, clock: Clock, stopping: threading.Event) -> None:
    """Until one is there (all of `spark.executor.instances`, if that is given, or else what the wait allows for).

    Spark itself would wait for ever, and say nothing.
    Raises SparkUnavailable if none came in time, if no master answers or it has thrown us out, or if we are to stop.
    """
    conf = context.getConf()
    if conf.get(_DYNAMIC, "false").lower() == "true":
        return  # They come with the first task.
    wanted = int(conf.get(_WANTED, "1"))
    deadline_s = clock.monotonic_s() + settings.executors_wait_s
    spark = context._jsc.sc()  # noqa: SLF001 - pyspark asks for it nowhere
    while True:
        if spark.isStopped():  # Then it answers nothing else.
            raise SparkUnavailable(
                f"{settings.master} did not answer, or ended this application before any work was done, because its "
                "executors do not start. Check the address of the master, and the logs of the cluster's workers"
            )
        found = int(spark.getExecutorMemoryStatus().size()) - 1  # The list names the driver too.
        if found >= wanted:
            return
        if stopping.is_set():
            raise SparkUnavailable("stopped while it waited for executors")
        if clock.monotonic_s() > deadline_s:
            if found:
                return
            raise SparkUnavailable(
                f"{settings.master} gave no executor in {settings.executors_wait_s:.0f} s. It is busy, or has none "
                "with as many cores and as much memory as requested, or executors cannot reach this driver "
                "(spark.driver.host in spark.options). See docs/how-to/run-on-spark.md"
            )
        clock.sleep_s(_LOOK_S)
