"""What the JVM writes to standard error has the form of this program's own lines."""

from __future__ import annotations

import json
import signal

import pytest

from sidecar.config import SparkSettings
from sidecar.spark import embedded
from sidecar.spark.embedded import EmbeddedSpark

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_errors_of_spark_are_json_where_the_log_is_and_ctrl_c_is_left_to_who_handled_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(embedded, "writes_json", lambda: True)
    before = signal.getsignal(signal.SIGINT)
    with (
        EmbeddedSpark(SparkSettings(master="local[1]", driver_memory_bytes=512 << 20)) as spark,
        spark.context() as context,
    ):
        assert signal.getsignal(signal.SIGINT) is before
        logger = context._jvm.org.apache.logging.log4j.LogManager.getLogger("a.b.Listener")
        logger.error('Error in "listener"\nof a task', context._jvm.java.lang.IllegalStateException("gone"))
        logger.fatal("the end")
    error, end = (json.loads(line) for line in capfd.readouterr().err.splitlines() if line)
    assert (error["event"], error["level"], error["class"]) == ("spark_error", "error", "Listener")
    assert error["detail"] == 'Error in "listener"\nof a task'
    assert error["exception"].startswith("java.lang.IllegalStateException: gone\n")
    assert error["timestamp"].endswith("Z")
    assert (end["level"], end["exception"]) == ("critical", "")
