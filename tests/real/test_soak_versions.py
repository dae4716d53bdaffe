"""One broker of each version with live producers of all kinds, bounced while `run` archives; and an open transaction.

The gate has an open transaction in `test_broker_facts`, and three brokers that are bounced in `test_leadership`. `make test-apart`
runs both tests on the newest version, `make matrix` on all: SOAK_VERSIONS names them.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import Producer

from sidecar.model import TopicPartition
from tests.real.daemon import Daemon, eventually, now_s
from tests.real.leaders import create_replicated
from tests.real.product import store_of
from tests.real.soak_beside import Archived, active_bases, archive_settings, sidecar_settings
from tests.real.soak_equality import assert_whole, unfinished_attempts, wait_until_archived
from tests.real.soak_producers import PARTITIONS, LiveProducers
from tests.real.topics import end_offset
from tests.servers.dist import NEWEST_KAFKA
from tests.servers.kafka import KafkaBroker
from tests.servers.versitygw import VersityGateway

VERSIONS = os.environ.get("SOAK_VERSIONS", NEWEST_KAFKA).split()
BOUNCES = int(os.environ.get("SOAK_BOUNCES", "1"))

pytestmark = [pytest.mark.real, pytest.mark.apart]

SEGMENT_BYTES = 49152
CALM_S = 2.0
SCAN_INTERVAL_S = 5.0


@pytest.fixture(scope="module", params=VERSIONS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
    with KafkaBroker(request.param, tmp_path_factory.mktemp("broker"), properties=properties) as started:
        yield started


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[VersityGateway]:
    with VersityGateway(tmp_path / "versitygw", options=["--quiet"]) as started:
        yield started


def test_a_broker_that_is_bounced_while_all_kinds_of_producers_write(
    broker: KafkaBroker, gateway: VersityGateway, tmp_path: Path
) -> None:
    topics = list(PARTITIONS)
    for topic, partition_count in PARTITIONS.items():
        create_replicated([broker], topic, partition_count, SEGMENT_BYTES)
    settings = sidecar_settings(broker, broker.bootstrap, gateway, gateway.endpoint, ",".join(topics))
    with (
        Daemon(tmp_path, settings) as sidecar,
        LiveProducers(broker.bootstrap, 1) as producers,
        store_of(archive_settings(gateway)) as store,
    ):
        archived = Archived(store)
        wait_until_archived(archived, sum(PARTITIONS.values()))
        for number in range(BOUNCES):
            Event().wait(CALM_S)
            if number % 2 == 0:
                broker.stop()
            else:
                broker.kill()
            broker.start()
        Event().wait(CALM_S)
        producers.stop()
        counts = assert_whole([broker], [(sidecar, tmp_path / "state")], store, archived, topics, tmp_path / "copies")
    counts.update(producers.counts)
    print(f"{broker.version}: {dict(sorted(counts.items()))}")
    assert counts["transactions_committed"] > 0
    assert counts["transactions_aborted"] > 0
    assert counts["segments"] > sum(PARTITIONS.values())


def test_an_open_transaction_holds_segments_back_and_its_end_lets_them_go_within_one_scan_interval(
    broker: KafkaBroker, gateway: VersityGateway, tmp_path: Path
) -> None:
    held = TopicPartition("held", 0)
    create_replicated([broker], held.topic, 1, SEGMENT_BYTES, segment_ms=3_600_000)
    settings = sidecar_settings(broker, broker.bootstrap, gateway, gateway.endpoint, held.topic)
    settings["run.scan_interval_s"] = str(SCAN_INTERVAL_S)
    with Daemon(tmp_path, settings) as sidecar, store_of(archive_settings(gateway)) as store:
        archived = Archived(store)
        plain, open_one = _producer(broker), _producer(broker, "transactional.id", "holds-back")
        _write(plain, held, 200)
        eventually(lambda: archived.end(held) > 0)
        open_one.init_transactions(60)
        open_one.begin_transaction()
        _write(open_one, held, 1)
        stable = end_offset(broker, held.topic, committed=True)
        assert stable == end_offset(broker, held.topic) - 1
        _write(plain, held, 1000)
        _, active_base = active_bases([broker], [held.topic])[held]
        assert active_base > stable, "some segments have rolled above the last stable offset"
        # What lies below it goes up; then nothing more, look after look.
        eventually(lambda: "last stable offset" in (sidecar.partitions()[str(held)]["reason"] or ""))
        watched_until_s = now_s() + 2 * SCAN_INTERVAL_S
        while now_s() < watched_until_s:
            assert archived.end(held) <= stable
            assert sidecar.partitions()[str(held)]["segments_waiting"] > 1
            Event().wait(0.2)
        open_one.commit_transaction(60)
        # The coordinator answers before its marker is written.
        eventually(lambda: end_offset(broker, held.topic, committed=True) > stable)
        before = archived.states[held]
        ended_ms: set[int] = set()

        def has_begun() -> bool:
            ended_ms.add(json.loads(sidecar.get("/status")[1])["round_ended_ms"])
            return bool(unfinished_attempts(tmp_path / "state")) or archived.end(held) > (before.end_offset or 0)

        began_s = eventually(has_begun)
        print(
            f"{broker.version}: scans every {SCAN_INTERVAL_S:.0f} s; uploads began {began_s:.2f} s after the transaction ended"
        )
        # The scan before the transaction's end, one that had begun by then, and the one that finds it.
        assert len(ended_ms) <= 3
        eventually(lambda: archived.end(held) >= active_base)
        assert_whole([broker], [(sidecar, tmp_path / "state")], store, archived, [held.topic], tmp_path / "copies")


def _producer(broker: KafkaBroker, *more: str) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "batch.size": 4096, "log_level": 0}
    return Producer({**settings, **dict(zip(more[::2], more[1::2], strict=True))})


def _write(producer: Producer, partition: TopicPartition, count: int) -> None:
    source = random.Random(count)
    for _ in range(count):
        producer.produce(partition.topic, source.randbytes(400), partition=partition.partition)
    assert producer.flush(60) == 0
