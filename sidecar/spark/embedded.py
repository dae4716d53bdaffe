"""A Spark context that is there when it is used, and gone when it is not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from sidecar.config import SparkSettings
from sidecar.spark.java import SparkUnavailable, java_home, require_user_name
from sidecar.spark.properties import LOGGING, LOGGING_FILE, spark_properties

if TYPE_CHECKING:
    from pyspark import SparkContext

_STOP_TIMEOUT_S: Final = 20.0


class EmbeddedSpark:
    """Owns the one JVM of this process; a context manager that ends it. Thread-safe.

    Idle for `idle_stop_s` it ends too, and the next use starts another.
    """

    def __init__(self, settings: SparkSettings, *, preload: Sequence[str] = ()) -> None:
        """Args: preload: modules that workers need, imported once before they are forked."""
        self._settings = settings
        self._preload = tuple(preload)
        self._lock = threading.Lock()
        self._context: SparkContext | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._users = 0
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    @property
    def is_running(self) -> bool:
        """Whether there is a JVM now."""
        return self._context is not None

    @contextmanager
    def context(self) -> Iterator[SparkContext]:
        """The running context, started if need be. Raises SparkUnavailable."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            context = self._context or self._start()
            self._users += 1
        try:
            yield context
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0 and self._context is not None:
                    self._timer = threading.Timer(self._settings.idle_stop_s, self._stop_if_idle)
                    self._timer.daemon = True
                    self._timer.start()

    def stop(self) -> None:
        """End the JVM now, whoever uses it."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._end()

    def _stop_if_idle(self) -> None:
        with self._lock:
            if self._users == 0:
                self._end()

    def _start(self) -> SparkContext:
        require_user_name()
        home = java_home(self._settings.java_home, os.environ)
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException

        self._scratch = tempfile.TemporaryDirectory(prefix="tiered-sidecar-spark-", dir=self._scratch_parent())
        scratch = Path(self._scratch.name)
        (scratch / LOGGING_FILE).write_text(LOGGING)
        conf = SparkConf(loadDefaults=False)
        conf.setAll(list(spark_properties(self._settings, scratch, self._preload).items()))
        try:
            with _environment(_variables(self._settings, home)):
                self._context = SparkContext(conf=conf)
        except (PySparkException, OSError, ValueError) as error:
            self._end()
            raise SparkUnavailable(f"Spark did not start: {error}; the lines above say why") from error
        return self._context

    def _scratch_parent(self) -> Path | None:
        parent = self._settings.local_dir
        if parent is not None:
            parent.mkdir(parents=True, exist_ok=True)
        return parent

    def _end(self) -> None:
        from pyspark import SparkContext

        context, self._context = self._context, None
        if context is not None:
            try:
                context.stop()
            except OSError:
                # The JVM was killed: pyspark gives up half way, and does the other half when called again.
                context.stop()
        # pyspark keeps its JVM for ever; there is no other handle to it than these two.
        gateway = SparkContext._gateway  # noqa: SLF001
        if gateway is not None:
            _end_jvm(gateway)
            # Else the next context would talk to a JVM that is no more.
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None


def _variables(settings: SparkSettings, home: Path | None) -> dict[str, str]:
    found = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if settings.is_local:
        found |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    if home is not None:
        found["JAVA_HOME"] = str(home)
    return found


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The JVM and its workers inherit these; afterwards nobody else does."""
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


def _end_jvm(gateway: Any) -> None:
    process = gateway.proc
    gateway.shutdown()
    # The JVM ends when its stdin does.
    process.stdin.close()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
