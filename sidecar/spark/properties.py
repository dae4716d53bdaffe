"""The Spark properties that suit many short tasks which hand over a few large values. Measured: see each group."""

import os
import shlex
import string
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sidecar.config import SparkSettings
from sidecar.config.spark import SECRET_PROPERTY
from sidecar.spark.sealing import secret_variables
from sidecar.store_settings import StoreSettings

SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
PROPERTIES_FILE: Final = "spark.properties"
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
_LOGGING: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.alwaysWriteExceptions = false
appender.stderr.layout.pattern = {pattern}
"""
"""Only errors: everything else that Spark says at its start is about Spark."""
_FOR_PEOPLE: Final = "spark %p %c{1}: %m%n%ex"
_AS_JSON: Final = (
    r'{"class": "%c{1}", "detail": "%enc{%m}{JSON}", "exception": "%enc{%ex}{JSON}", "event": "spark_error", '
    r'"level": "%p{FATAL=critical, lowerCase=true}", "timestamp": "%d{yyyy-MM-dd\'T\'HH:mm:ss.SSSSSS\'Z\'}{UTC}"}%n'
)

_LOCAL: Final = {
    # No listener and no name lookup outside of this container.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

_ALWAYS: Final = {
    "spark.app.name": "tiered-sidecar",
    "spark.ui.enabled": "false",
    # In Spark's pages and event logs; wider than its default.
    "spark.redaction.regex": SECRET_PROPERTY,
    "spark.ui.showConsoleProgress": "false",
    # Over TCP each task of a worker waits some 40 ms for nothing; over Unix sockets it does not.
    "spark.python.unix.domain.socket.enabled": "true",
    # Workers are forked from a process that has loaded the kernels once, and are kept for the next task.
    "spark.python.daemon.module": DAEMON_MODULE,
    "spark.python.worker.reuse": "true",
    # Hashes do not compress: trying it takes a tenth of a whole compaction. Without it Spark checks no bytes: `exchange` does.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    # Jobs of several threads run side by side: uploads wait for short ones, and a compaction of the archive may take hours.
    "spark.scheduler.mode": "FAIR",
}

_CLUSTER: Final = {
    # As on the driver: an executor's JVM only moves bytes.
    "spark.executor.extraJavaOptions": " ".join(_JVM_OPTIONS),
    # Damaged files raise nothing. What fails a task is a lost executor, and only where several are lost at once, twice.
    "spark.task.maxFailures": "4",
}

PACKAGES_FOLDER: Final = "tiered-sidecar-packages"
"""What the archive of packages is unpacked to, in an executor's working directory."""

_PLAIN: Final = frozenset(string.ascii_letters + string.digits + "._-/")

_SOCKET_PATH_MAX: Final = 100
_SOCKET_NAME_BYTES: Final = 48


def logging_properties(*, as_json: bool) -> str:
    """The JVM's log4j2 settings. It writes to the standard error of this process, in the form of the other lines there."""
    return _LOGGING.replace("{pattern}", _AS_JSON if as_json else _FOR_PEOPLE)


def spark_properties(settings: SparkSettings, scratch: Path, preload: Sequence[str]) -> dict[str, str]:
    """All properties of a context.

    `scratch`: an existing directory for Spark's files. `preload`: modules that the worker daemon imports before it forks.
    """
    options = [*_JVM_OPTIONS, f"-Dlog4j2.configurationFile=file:{scratch / LOGGING_FILE}"]
    if len(str(scratch)) + _SOCKET_NAME_BYTES <= _SOCKET_PATH_MAX:
        # Else a JVM that is killed leaves sockets and directories in the system's. Paths of sockets are short, though.
        options.append(f"-Djava.io.tmpdir={scratch}")
    found = {
        **_ALWAYS,
        **(_LOCAL if settings.is_local else _CLUSTER),
        "spark.master": settings.master,
        "spark.driver.memory": _mebibytes(settings.driver_memory_bytes),
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.local.dir": str(scratch),
        "spark.jars.ivy": str(scratch / "ivy"),
        f"spark.executorEnv.{PRELOAD_VARIABLE}": ",".join(preload),
    }
    chosen = dict(option.split("=", 1) for option in settings.options)
    if settings.worker_memory_bytes is not None:
        # Spark's property is of an executor, and it gives each core's worker an equal part.
        cores = int(chosen.get("spark.executor.cores", "1"))
        found["spark.executor.pyspark.memory"] = _mebibytes(settings.worker_memory_bytes * cores)
    if settings.executor_memory_bytes is not None:
        found["spark.executor.memory"] = _mebibytes(settings.executor_memory_bytes)
    if settings.master.startswith("k8s://"):
        # What spark-submit would say: Python's memory then counts for the size of the pod.
        found["spark.kubernetes.resource.type"] = "python"
    if settings.worker_packages is not None and not settings.is_local:
        found["spark.archives"] = f"{settings.worker_packages}#{PACKAGES_FOLDER}"
        found["spark.executorEnv.PYTHONPATH"] = f"./{PACKAGES_FOLDER}"
    return found | chosen


def by_file(properties: Mapping[str, str], scratch: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables by which pyspark hands the properties to its JVM in a file: everybody can read arguments.

    `scratch`: an existing directory for the file. What `environment` says of arguments stays.
    """
    path = scratch / PROPERTIES_FILE
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w", encoding="ascii"
    ) as file:
        file.writelines(f"{_escaped(name)}={_escaped(value)}\n" for name, value in properties.items())
    # Without the second option the machine's spark-defaults.conf would not be read.
    arguments = f"--properties-file {shlex.quote(str(path))} --load-spark-defaults"
    return {SUBMIT_ARGUMENTS: f"{arguments} {environment.get(SUBMIT_ARGUMENTS, 'pyspark-shell')}"}


def _escaped(text: str) -> str:
    """As java.util.Properties reads it: two bytes of UTF-16 for each character that could mean something."""
    units = text.encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2] for at in range(0, len(units), 2))
    return "".join(chr(pair[1]) if not pair[0] and chr(pair[1]) in _PLAIN else f"\\u{pair.hex()}" for pair in pairs)


def environment_of(
    settings: SparkSettings, home: Path | None, environment: Mapping[str, str], store: StoreSettings | None
) -> dict[str, str]:
    """What the JVM must find in its environment besides ours. On a cluster it names the executors' Python, and no secret.

    `home`: of Java, None for the one on the path. `store`: workers of this machine are given its keys.
    """
    found = {"PYSPARK_DRIVER_PYTHON": sys.executable}
    if settings.is_local:
        found |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", "PYSPARK_PYTHON": sys.executable}
        found |= {} if store is None else secret_variables(store.s3)
    else:
        found["PYSPARK_PYTHON"] = settings.worker_python or environment.get("PYSPARK_PYTHON") or sys.executable
    if home is not None:
        found["JAVA_HOME"] = str(home)
    return found


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes // (1024 * 1024)}m"
