"""The connection to brokers: which addresses it takes, and many threads that share it, all of which may fail at once."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from sidecar.broker import connection
from sidecar.broker.connection import BrokerConnection
from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.errors import BrokerUnavailable

THREADS = 4


class FailingClient:
    """Answers nobody before all have asked; as kafka-python's, it cannot be closed twice."""

    opened = 0

    def __init__(self, _arguments: dict[str, Any]) -> None:
        type(self).opened += 1
        self._all_have_asked = Barrier(THREADS)
        self._closed = False

    def send(self, _request: Any, _node_id: int | None) -> Any:
        self._all_have_asked.wait(120)
        raise ConnectionRefusedError(111, "Connection refused")

    def close(self) -> None:
        if self._closed:
            raise RuntimeError("NetworkSelector closed!")
        self._closed = True


def test_requests_that_fail_together_are_each_told_that_the_broker_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "Client", FailingClient)
    monkeypatch.setattr(connection, "require_contact", lambda *_: None)
    shared = BrokerConnection(BrokerConnectionSettings(bootstrap_servers=("127.0.0.1:1",)))
    with ThreadPoolExecutor(THREADS) as pool:
        for count in (1, 2):
            asked = [pool.submit(shared.send, object()) for _ in range(THREADS)]
            assert {type(one.exception(60)) for one in asked} == {BrokerUnavailable}
            assert FailingClient.opened == count  # a new one for the next requests
    shared.close()


@pytest.mark.parametrize(
    "server", ["kafka", "kafka:", ":9092", "kafka:0", "kafka:65536", "kafka:99999", "kafka:123456"]
)
def test_an_address_that_none_can_have_is_refused(server: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(server))):
        BrokerConnectionSettings(bootstrap_servers=("kafka:65535", "[::1]:1", server))
    assert BrokerConnectionSettings(bootstrap_servers=("kafka:65535", "[::1]:1")).is_configured
