"""What the log says while the broker is away."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from structlog.testing import capture_logs

from sidecar.broker.live_facts import BrokerOutageLog
from sidecar.broker.refusals import require_contact
from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.errors import BrokerTrouble, BrokerUnavailable
from sidecar.partition.wait_reason import BrokerAway

NO_ANSWER, REFUSED, OTHER = BrokerTrouble.NO_ANSWER, BrokerTrouble.IDENTITY_REFUSED, BrokerTrouble.OTHER


def reported(logs: list[Any]) -> list[tuple[str, str | None]]:
    return [(line["event"], line.get("error")) for line in logs]


def test_each_trouble_is_logged_once_whatever_its_words() -> None:
    absence = BrokerOutageLog("kafka:9092")
    with capture_logs() as logs:
        absence.is_over()  # never away
        for words, trouble in (
            ("no answer", NO_ANSWER),
            ("the connection was reset", NO_ANSWER),
            ("user us is refused", REFUSED),
            ("answer of 10 bytes", OTHER),
            ("answer of 11 bytes", OTHER),
            ("no answer", NO_ANSWER),
            ("one: no answer; two: user us is refused", NO_ANSWER | REFUSED),
        ):
            absence.goes_on(BrokerUnavailable(words, trouble))
        absence.is_over()
        absence.is_over()
        absence.goes_on(BrokerUnavailable("no answer", NO_ANSWER))
    away = [("broker_unreachable", words) for words in ("no answer", "user us is refused", "answer of 10 bytes")]
    assert reported(logs) == [*away, ("broker_reachable", None), ("broker_unreachable", "no answer")]


def test_a_second_server_may_have_a_trouble_that_is_new() -> None:
    absence = BrokerOutageLog("one:9092,two:9092")
    with capture_logs() as logs:
        absence.goes_on(BrokerUnavailable("both: no answer", NO_ANSWER))
        absence.goes_on(BrokerUnavailable("one: no answer; two: user us is refused", NO_ANSWER | REFUSED))
    assert [words for _, words in reported(logs)] == ["both: no answer", "one: no answer; two: user us is refused"]


def test_an_outage_in_other_words_is_the_same_wait() -> None:
    assert BrokerAway("answer of 10 bytes", OTHER) == BrokerAway("answer of 11 bytes", OTHER)
    assert BrokerAway("no answer", NO_ANSWER) != BrokerAway("user us is refused", REFUSED)


def test_the_troubles_of_all_servers_are_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        silent = f"127.0.0.1:{closed.getsockname()[1]}"
    settings = BrokerConnectionSettings(bootstrap_servers=(silent, "127.0.0.1:1"), request_timeout_s=1)
    with pytest.raises(BrokerUnavailable, match=f"{silent}: Connection refused; 127.0.0.1:1: ") as refused:
        require_contact(settings, None)
    assert refused.value.trouble is NO_ANSWER
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        deaf.listen()
        settings = BrokerConnectionSettings(
            bootstrap_servers=(silent, f"127.0.0.1:{deaf.getsockname()[1]}"), request_timeout_s=1
        )
        with pytest.raises(BrokerUnavailable, match="no answer within 1 s") as refused:
            require_contact(settings, None)
    assert refused.value.trouble is NO_ANSWER
