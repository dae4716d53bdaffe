"""What Spark says in many lines is reported in one, which names the setting."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sidecar.spark.failures import SparkFailed, cause_of, failures


@dataclass
class Jvm:
    """One that ended, or did not."""

    ended: str | None = None

    def death(self, wait_s: float = 0.0) -> str | None:
        return self.ended


PYTHON = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1
%s
 SQLSTATE: 38000
	at org.apache.spark.Nothing
Caused by: java.lang.Nothing: else
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PYTHON % "ValueError: task three", "ValueError: task three"),
        (PYTHON % "MemoryError", "raise spark.worker_memory_bytes, or leave it out for no limit (MemoryError)"),
        (PYTHON % "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 2 GiB", "spark.worker_memory_bytes"),
        (PYTHON % "ModuleNotFoundError: No module named 'sidecar'", "spark.worker_packages"),
        ("a\nCaused by: java.io.IOException: No space left on device\n", "spark.local_dir"),
        ("a\nCaused by: java.lang.OutOfMemoryError: Java heap space", "spark.driver_memory_bytes"),
        ('java.io.IOException: Cannot run program "python3.9": error=2', "spark.worker_python"),
        ("Job aborted: ExecutorLostFailure (executor 4 exited)", "executors were lost repeatedly"),
        ("Python worker exited unexpectedly (crashed).", "ended from outside, most likely for lack of memory"),
        ("a\nb\nCaused by: java.lang.IllegalStateException: why", "Caused by: java.lang.IllegalStateException: why"),
        ("An error occurred while calling x.\n: java.lang.Nothing: /a\n\tat b", "java.lang.Nothing: /a"),
        ("", "RuntimeError"),
    ],
)
def test_the_cause(text: str, expected: str) -> None:
    reported = cause_of(RuntimeError(text))
    assert expected in reported
    assert "\n" not in reported


def test_a_jvm_that_ended_is_the_cause_of_everything() -> None:
    for error in (EOFError(), ConnectionRefusedError(111, "refused"), AttributeError("_jsc")):
        with pytest.raises(SparkFailed, match="the Spark job failed: killed"), failures(Jvm("killed").death):
            raise error


def test_our_own_mistakes_are_no_failures_of_spark() -> None:
    with pytest.raises(AttributeError), failures(Jvm().death):
        raise AttributeError("_typo")
    with pytest.raises(ZeroDivisionError), failures(Jvm("killed").death):
        raise ZeroDivisionError
