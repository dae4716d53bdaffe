"""Logs: one JSON object per event, no secrets, no bytes of records, not even in a traceback."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import structlog
import urllib3.connection
from urllib3.util.ssl_match_hostname import CertificateError

from sidecar.config.model import LogSettings
from sidecar.config.secrets import Secrets
from sidecar.event_log import EVENTS
from sidecar.logs import Redaction, configure_logging
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.status import PartitionOutcome
from sidecar.partition.wait_reason import Because, Wait
from sidecar.runner.outcomes import Outcomes
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import tools_for

SECRET = "wJalrXUtnFEMI-K7MDENG"


@pytest.fixture(autouse=True)
def logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, configured = list(root.handlers), root.level, structlog.get_config()
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:], root.level = handlers, level
    structlog.configure(**configured)


def configured(**settings: str) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(LogSettings.model_validate(settings), secrets=[SECRET, "", "abc"], stream=stream)
    return stream


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_a_json_object_with_time_and_level() -> None:
    stream = configured()
    EVENTS.info("segment_committed", base_offset=7, topic="a\nb")
    (event,) = events(stream)
    assert event["event"] == "segment_committed"
    assert (event["base_offset"], event["topic"], event["level"]) == (7, "a\nb", "info")
    assert event["timestamp"].endswith("Z")


def test_structlog_is_loaded_by_the_first_event() -> None:
    program = (
        "import sys; from sidecar.config.model import LogSettings; from sidecar.event_log import EVENTS\n"
        "from sidecar.logs import configure_logging\n"
        "configure_logging(LogSettings.model_validate({'level': 'warning'}))\n"
        "EVENTS.info('quiet'); print('structlog' in sys.modules)\n"
        "EVENTS.warning('loud'); print('structlog' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == ["False", "True"]
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["loud"]


def test_the_first_event_may_come_from_many_threads() -> None:
    stream = configured()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: EVENTS.info("said", number=number), range(50)))
    assert sorted(event["number"] for event in events(stream)) == list(range(50))


def test_context_is_on_every_line() -> None:
    stream = configured()
    with structlog.contextvars.bound_contextvars(partition="orders-0"):
        EVENTS.warning("x")
    assert events(stream)[0]["partition"] == "orders-0"


def test_the_level_holds_for_us_and_the_libraries() -> None:
    stream = configured(level="error")
    EVENTS.warning("quiet")
    logging.getLogger("botocore").warning("quiet")
    EVENTS.error("loud")
    logging.getLogger("botocore").error("loud")
    assert [event["event"] for event in events(stream)] == ["loud", "loud"]


def test_debug_never_opens_the_logs_of_libraries() -> None:
    stream = configured(level="debug")
    logging.getLogger("botocore.auth").debug("StringToSign %s", SECRET)
    logging.getLogger("botocore.auth").info("StringToSign %s", SECRET)
    EVENTS.debug("ours")
    assert [event["event"] for event in events(stream)] == ["ours"]


def test_a_certificate_for_another_name_is_reported_by_our_error_alone() -> None:
    stream = configured()
    with pytest.raises(CertificateError, match="doesn't match"):
        urllib3.connection._match_hostname({"subjectAltName": (("DNS", "store"),)}, "other")
    assert events(stream) == []


def test_a_token_that_was_replaced_while_the_process_runs_is_blotted_out(tmp_path: Path) -> None:
    file, stream = tmp_path / "token", io.StringIO()
    file.write_text("token-of-monday")
    secrets = Secrets((), [file])
    configure_logging(LogSettings(), secrets=secrets, stream=stream)
    redact = Redaction(secrets).text
    file.write_text("token-of-tuesday")
    said = "refused: token-of-tuesday, before it token-of-monday"
    EVENTS.error("x", error=said)
    assert events(stream)[0]["error"] == redact(said) == "refused: ********, before it ********"


def test_secrets_are_blotted_out_wherever_they_turn_up() -> None:
    stream = configured()
    log = EVENTS
    log.info(
        "put",
        note=f"with {SECRET}",
        secret_access_key="x",
        headers={"Authorization": "AWS4 y"},
        nested=[{"note": SECRET}],
    )
    log.info("url", url="https://user:pass@host/b?X-Amz-Signature=0123&X-Amz-Credential=AK%2F1&part=2")
    logging.getLogger("boto").warning("failed: %s", ValueError(SECRET))
    text = stream.getvalue()
    for hidden in (SECRET, "AWS4", "pass", "0123", "AK%2F1", '"x"'):
        assert hidden not in text
    assert "part=2" in text
    assert "abc" not in text  # too short to be blotted out, and nothing said it


def test_bytes_and_local_variables_are_not_written() -> None:
    for settings in ({"format": "json"}, {"format": "console"}):
        stream = configured(**settings)
        record_value = b"card 4111"
        try:
            int(f"no number {len(record_value)}")
        except ValueError:
            EVENTS.error("failed", value=record_value, exc_info=True)
            logging.getLogger("x").exception("failed too")
        text = stream.getvalue()
        assert "card" not in text  # digits of it may be in a time
        assert "<9 bytes>" in text
        assert text.count("Traceback") == 2
        assert "record_value =" not in text


def test_console_lines_are_for_people() -> None:
    stream = configured(format="console")
    EVENTS.info("segment_committed", base_offset=7)
    assert "segment_committed" in stream.getvalue()
    assert "base_offset=7" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


@dataclass(frozen=True, slots=True)
class _NotedReason(Because):
    """Notes when it becomes text."""

    rendered: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        self.rendered.append("text")
        return "some reason"


@pytest.mark.parametrize("level", ["info", "debug"])
def test_why_a_partition_waits_becomes_text_only_where_it_is_logged(level: str, tmp_path: Path) -> None:
    stream, reason = configured(level=level), _NotedReason()
    files = PartitionFiles(TopicPartition("orders", 0), tmp_path, tmp_path, None, (), 0, (), False)
    with tools_for(tmp_path, MemoryStore(), tmp_path / "state") as context:
        for found in (reason, Wait.DRAINING):
            Outcomes(context).note(PartitionOutcome(files, reason=found))
    logged = [event["reason"] for event in events(stream)]
    assert logged == (["some reason", Wait.DRAINING.value] if level == "debug" else [])
    assert reason.rendered == (["text"] if level == "debug" else [])
