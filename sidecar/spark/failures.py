"""What Spark says when something fails, in the words of our settings."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sidecar.errors import SidecarError

_CAUSES: Final = (
    (
        re.compile(r"\bMemoryError\b|Unable to allocate|cannot allocate memory", re.IGNORECASE),
        "a Python worker found no more memory: raise spark.worker_memory_bytes, or leave it out for no limit",
    ),
    (
        re.compile(r"OutOfMemoryError"),
        "a JVM's heap is full: raise spark.driver_memory_bytes, or on a cluster spark.executor_memory_bytes",
    ),
    (
        re.compile(r"No space left on device"),
        (
            "the disk for data between steps is full: set spark.local_dir to a larger one (on a cluster: the "
            "workers' SPARK_LOCAL_DIRS)"
        ),
    ),
    (
        re.compile(r"No module named '?(?:sidecar|producer_state|pyspark|numpy|numba)\b"),
        (
            "the executors' Python does not have this program: set spark.worker_packages, or use an image that has "
            "it; see docs/how-to/run-on-spark.md"
        ),
    ),
    (
        re.compile(r'Cannot run program "|PYTHON_VERSION_MISMATCH|different minor version', re.IGNORECASE),
        (
            "the executors lack the required Python: set spark.worker_python to one of the driver's minor version "
            "that exists on each of them"
        ),
    ),
    (
        # A worker that the kernel kills is only a closed connection to Spark.
        re.compile(r"Python worker exited unexpectedly|Python worker failed to connect back|daemon .*terminated"),
        (
            "a Python worker was ended from outside, most likely for lack of memory: give the container more memory, run fewer at "
            "once (spark.master local[1], or spark.executor.cores in spark.options), or bound each by "
            "spark.worker_memory_bytes"
        ),
    ),
    (
        re.compile(r"ExecutorLostFailure|Master removed our application"),
        (
            "executors were lost repeatedly: their logs have the reason. On Kubernetes and YARN it is most often "
            "the container's memory (spark.executor_memory_bytes, spark.worker_memory_bytes)"
        ),
    ),
)

_DYING_S: Final = 2.0


class SparkFailed(SidecarError):
    """A Spark job ended with an error that is not about the data."""


@contextmanager
def failures(death: Callable[[float], str | None]) -> Iterator[None]:
    """Around calls of Spark, and of nothing else: what they raise becomes SparkFailed.

    Args: death: how the JVM ended, None if it runs after so many seconds.
    """
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    # Of a JVM that was killed only its closed sockets tell; and a context without one has lost its attributes.
    except (Py4JError, PySparkException, OSError, EOFError, AttributeError) as error:
        # Its sockets are closed a moment before the process has ended. What Java itself answers is no such case.
        died = death(0.0 if isinstance(error, Py4JJavaError) else _DYING_S)
        if died is None and isinstance(error, AttributeError):
            raise
        raise SparkFailed(f"the Spark job failed: {died or cause_of(error)}") from error


def cause_of(error: Exception) -> str:
    """The last line of the worker's traceback, or else the first cause that Java names; and what to do, if that is known."""
    text = _text_of(error)
    for pattern, advice in _CAUSES:
        if found := pattern.search(text):
            line = text[text.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0].strip()
            return f"{advice} ({line})"
    traceback, is_python, _ = text.partition("SQLSTATE")
    lines = [line.strip() for line in (traceback if is_python else text).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    causes += [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return lines[-1] if is_python and lines else (causes or lines or [type(error).__name__])[0]


def _text_of(error: Exception) -> str:
    """What the error says. A Py4JJavaError asks the JVM for it, which may have ended meanwhile."""
    from py4j.protocol import Py4JError

    try:
        return str(error)
    except (Py4JError, OSError):
        return type(error).__name__
