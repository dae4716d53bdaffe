"""The Spark properties that suit many short tasks which hand over a few large values. Measured: see each group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sidecar.config import SparkSettings

DAEMON_MODULE: Final = "sidecar.spark.worker_daemon"
PRELOAD_VARIABLE: Final = "TIERED_SIDECAR_SPARK_PRELOAD"

_JVM_OPTIONS: Final = (
    # The JVM only moves bytes: the quick compiler alone is as fast, starts sooner and leaves the cores to the workers.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    # Shared class data of the JDK if there is any; never a reason not to start.
    "-Xshare:auto",
)

LOGGING_FILE: Final = "log4j2.properties"
LOGGING: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark %p %c{1}: %m%n%ex
"""
"""Only errors: everything else that Spark says at its start is about Spark."""

_LOCAL: Final = {
    # No listener and no name lookup outside of this container.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

_ALWAYS: Final = {
    "spark.app.name": "tiered-sidecar",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Over TCP each task of a worker waits some 40 ms for nothing; over Unix sockets it does not.
    "spark.python.unix.domain.socket.enabled": "true",
    # Workers are forked from a process that has loaded the kernels once, and are kept for the next task.
    "spark.python.daemon.module": DAEMON_MODULE,
    "spark.python.worker.reuse": "true",
    # Hive's classes would only be loaded.
    "spark.sql.catalogImplementation": "in-memory",
    # Rows are few and large.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    # A damaged file stays damaged: the functions answer with what they found, they do not raise.
    "spark.task.maxFailures": "2",
}


def spark_properties(settings: SparkSettings, scratch: Path, preload: Sequence[str]) -> dict[str, str]:
    """All properties of a context.

    Args:
        scratch: an existing directory of our own, for Spark's files.
        preload: modules that the worker daemon imports before it forks.
    """
    found = {
        **_ALWAYS,
        **(_LOCAL if settings.is_local else {}),
        "spark.master": settings.master,
        "spark.driver.memory": _mebibytes(settings.driver_memory_bytes),
        "spark.driver.extraJavaOptions": " ".join(
            [*_JVM_OPTIONS, f"-Dlog4j2.configurationFile=file:{scratch / LOGGING_FILE}"]
        ),
        "spark.local.dir": str(scratch),
        "spark.jars.ivy": str(scratch / "ivy"),
        f"spark.executorEnv.{PRELOAD_VARIABLE}": ",".join(preload),
    }
    if settings.worker_memory_bytes is not None:
        found["spark.executor.pyspark.memory"] = _mebibytes(settings.worker_memory_bytes)
    return found | dict(option.split("=", 1) for option in settings.options)


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes // (1024 * 1024)}m"
