"""A real broker behind a bad network: what is on its way ends and is kept, nothing is planned, and all of it is reported."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from tests.real.daemon import Daemon, eventually
from tests.real.test_broker_facts import produce
from tests.real.topics import create_topic
from tests.servers.kafka import KafkaBroker
from tests.servers.process import free_port
from tests.servers.toxiproxy import Proxy, Toxiproxy

pytestmark = [pytest.mark.real, pytest.mark.apart]

SEGMENT_BYTES = 256 * 1024
RECORDS_PER_SEGMENT = 850


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[KafkaBroker, Proxy]]:
    """A broker, and a proxy before a listener that advertises the proxy, so that all requests go through it."""
    broker = KafkaBroker("4.3.0", tmp_path / "broker")
    own, behind = f"PLAINTEXT://127.0.0.1:{broker.port}", free_port()
    with Toxiproxy(tmp_path) as server:
        proxy = server.proxy("broker", behind)
        broker.properties |= {
            "listeners": f"{own},PROXIED://127.0.0.1:{behind},CONTROLLER://127.0.0.1:{broker.controller_port}",
            "advertised.listeners": f"{own},PROXIED://127.0.0.1:{proxy.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        with broker:
            yield broker, proxy


def objects(archive: Path, pattern: str) -> set[str]:
    # Not by a walk through everything: what the store was tried with comes and goes.
    return {path.name for path in archive.glob(f"*/orders/0/*/{pattern}")}


def test_uploads_end_and_are_kept_nothing_is_planned_and_a_slow_broker_counts_as_away(
    proxied: tuple[KafkaBroker, Proxy], tmp_path: Path
) -> None:
    broker, proxy = proxied
    archive = tmp_path / "archive"
    create_topic(broker, "orders", SEGMENT_BYTES)
    settings = {
        "store.url": archive.as_uri(),
        "store.bandwidth_bytes_per_s": str(64 * 1024),
        "broker.log_dirs": str(broker.log_dirs[0]),
        "broker.assume_leader": "false",
        "broker.connection.bootstrap_servers": f"127.0.0.1:{proxy.port}",
        "broker.connection.request_timeout_s": "3",
        "topics.include": "orders",
        "run.scan_interval_s": "0.3",
    }
    produce(broker, "orders", 5 * RECORDS_PER_SEGMENT)
    with Daemon(tmp_path, settings) as daemon:

        def is_reported() -> bool:
            return "broker: the broker does not respond" in daemon.get("/readyz")[1]

        eventually(lambda: objects(archive, "commits/*.json") != set())
        proxy.set_enabled(False)
        eventually(is_reported)
        committed = objects(archive, "commits/*.json")
        eventually(lambda: daemon.metric("broker_metadata_age_seconds") > 6)
        uploaded = objects(archive, "segments/*.log")
        produce(broker, "orders", RECORDS_PER_SEGMENT)
        eventually(lambda: daemon.metric("broker_metadata_age_seconds") > 9)
        assert (daemon.metric("broker_unreachable"), daemon.get("/healthz")[0]) == (1, 200)
        assert (objects(archive, "commits/*.json"), objects(archive, "segments/*.log")) == (committed, uploaded)
        assert len(uploaded) > len(committed)
        proxy.set_enabled(True)
        eventually(lambda: (daemon.archived_end("orders-0") or 0) > 5 * RECORDS_PER_SEGMENT * 0.9)
        # What had been uploaded was committed as it was, and not uploaded again.
        bases = [name.partition("-")[0] for name in objects(archive, "segments/*.log")]
        assert uploaded <= objects(archive, "segments/*.log")
        assert sorted(bases) == sorted(set(bases))
        for kind, attributes in (("latency", {"latency": 9000}), ("timeout", {"timeout": 0})):
            eventually(daemon.is_ready)
            toxic = proxy.add_toxic(kind, **attributes)
            eventually(is_reported)
            end = daemon.archived_end("orders-0")
            assert (daemon.metric("broker_unreachable"), daemon.archived_end("orders-0")) == (1, end)
            proxy.remove_toxic(toxic)
            eventually(daemon.is_ready)
        assert daemon.metric("broker_unreachable") == 0
        assert daemon.process.stop() == 0
        events = [
            event["event"] for event in daemon.events() if event["event"] in {"broker_unreachable", "broker_reachable"}
        ]
        assert [event for event, _ in groupby(events)] == [
            "broker_unreachable",
            "broker_reachable",
        ] * 3  # several reasons in each
