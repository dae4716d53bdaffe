"""What is reported of files, tokens and answers that are not what they should be."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import (
    KafkaTimeoutError,
    NodeNotReadyError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)

from sidecar.broker.client import EndedWhileGreeting
from sidecar.broker.cluster_view import DESCRIBE, RequestProblem, missing_right
from sidecar.broker.credentials import lifetime_words, secret_in
from sidecar.broker.refusals import _require_mechanism, unavailable
from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.errors import BrokerTrouble, BrokerUnavailable
from sidecar.logformat.files import stamp_of
from tests.servers.secure_kafka import unsecured_token

SASL = BrokerConnectionSettings(
    bootstrap_servers=("one:9092",),
    security_protocol="SASL_PLAINTEXT",
    sasl_mechanism="PLAIN",
    sasl_username="us",
    sasl_password="secret",
)


def test_no_connection_is_reported_in_our_words() -> None:
    settings = BrokerConnectionSettings(bootstrap_servers=("one:9092", "two:9092"))
    assert str(unavailable(NodeNotReadyError(3), settings)) == "one:9092,two:9092: there is no connection to broker 3"
    for reported in ("No node_id provided", "bootstrap-0", "metadata"):
        found = unavailable(NodeNotReadyError(reported), settings)
        assert str(found) == "one:9092,two:9092: there is no connection to any broker"


def test_what_takes_too_long_is_reported_without_a_time_that_differs_each_time() -> None:
    settings = BrokerConnectionSettings(bootstrap_servers=("one:9092",), request_timeout_s=2)
    for late in (RequestTimedOutError("Request timed out after 1999 ms"), KafkaTimeoutError()):
        assert str(unavailable(late, settings)) == "one:9092: no answer within 2 s"
    found = unavailable(NodeNotReadyError("Node paused: {'throttle'}"), settings)
    assert str(found) == "one:9092: throttled for 2 s, most often by a request quota of the broker"


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (SaslAuthenticationFailedError("no"), BrokerTrouble.IDENTITY_REFUSED),
        (EndedWhileGreeting("closed"), BrokerTrouble.IDENTITY_REFUSED),
        (UnsupportedSaslMechanismError(), BrokerTrouble.WRONG_LISTENER),
        (NodeNotReadyError(3), BrokerTrouble.NO_ANSWER),
        (RequestTimedOutError(), BrokerTrouble.NO_ANSWER),
        (ValueError("answer of 10 bytes"), BrokerTrouble.OTHER),
    ],
)
def test_what_a_person_has_to_change_is_a_value(error: Exception, trouble: BrokerTrouble) -> None:
    assert unavailable(error, SASL).trouble is trouble


def handshake(data: bytes, settings: BrokerConnectionSettings = SASL) -> str:
    """What follows from this answer to the handshake; "" where the client is asked."""
    answer = struct.pack(">ii", len(data) + 4, 1) + data
    try:
        _require_mechanism(io.BufferedRWPair(io.BytesIO(answer), io.BytesIO()), settings)
    except BrokerUnavailable as error:
        return str(error)
    return ""


@given(st.binary(max_size=64) | st.binary(max_size=64).map(lambda data: b"\0\41\0\0\0\2" + data))
def test_any_answer_to_the_handshake_can_be_read(data: bytes) -> None:
    assert not handshake(data) or "offer" in handshake(data)


def test_the_mechanisms_of_an_answer_are_shown() -> None:
    answer = struct.pack(">hih5sh5s", 33, 2, 5, b"OTHER", 5, b"SCRAM")
    assert "does not offer sasl_mechanism PLAIN, but OTHER, SCRAM:" in handshake(answer)
    assert "requires SASL (OTHER, SCRAM):" in handshake(
        answer, BrokerConnectionSettings(bootstrap_servers=("one:9092",))
    )
    assert handshake(struct.pack(">hi", 0, 0)) == handshake(b"") == handshake(answer[:-7]) == ""


@given(st.text(max_size=64).filter(lambda text: bool(text.strip())))
def test_any_token_is_taken_and_only_a_lifetime_is_reported(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(text, encoding="utf-8", errors="replace")
    assert lifetime_words(path) == "" or "expires at" in lifetime_words(path)


def test_the_lifetime_of_a_token_is_its_own_word(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(unsecured_token("us", 0, 1_700_000_000))
    assert lifetime_words(path) == ", which expires at 2023-11-14T22:13:20Z"
    for payload in ("W" * 60_000, "e30", "eyJleHAiOiAxZTk5OTl9", "bnVsbA"):
        path.write_text(f"a.{payload}.c")
        assert lifetime_words(path) == ""


def test_a_secret_that_cannot_be_read_is_reported_with_its_setting_and_never_with_its_text(tmp_path: Path) -> None:
    path = tmp_path / "password"
    for content, problem in ((b"", "is empty"), (b"\xff\xfe", "not UTF-8"), (b"x" * 70_000, "too long")):
        path.write_bytes(content)
        with pytest.raises(BrokerUnavailable, match=rf"sasl_password_file: .*{problem}") as refused:
            secret_in("sasl_password_file", path)
        assert refused.value.trouble is BrokerTrouble.SECRET_UNREADABLE
    path.unlink()
    with pytest.raises(BrokerUnavailable, match="cannot be read: No such file"):
        secret_in("sasl_password_file", path)


def test_a_secret_behind_a_link_that_is_turned_is_another(tmp_path: Path) -> None:
    link = tmp_path / "..data"
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "password").write_text("same")
        os.utime(tmp_path / version / "password", ns=(0, 0))
    link.symlink_to("1")
    before = stamp_of(link / "password")
    assert before is not None
    assert before == stamp_of(link / "password")
    assert stamp_of(tmp_path / "absent") is None
    link.unlink()
    link.symlink_to("2")
    assert stamp_of(link / "password") != before


def test_a_missing_right_is_reported_once_for_all_topics() -> None:
    denied = [RequestProblem("TOPIC_AUTHORIZATION_FAILED", DESCRIBE, topic) for topic in ("b", "a", "c")]
    (reported,) = missing_right([*denied, RequestProblem("UNKNOWN_TOPIC_OR_PARTITION", DESCRIBE, "d")], "it waits")
    assert "Allow it Describe on topic a (kafka-acls" in reported
    assert reported.endswith("--operation Describe --topic a), and on 2 more; until then it waits")
    assert missing_right([RequestProblem("UNKNOWN_TOPIC_OR_PARTITION", DESCRIBE)], "it waits") == ()
