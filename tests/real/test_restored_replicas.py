"""Producers of a new cluster have ids that archived producers had. None of them may seem to repeat an archived batch.

One that was formatted again with its id: tests/real/test_restore.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from sidecar.model import TopicPartition
from tests.real.leaders import move_leaders, wait_in_sync
from tests.real.product import run_program
from tests.real.topics import create_topic, end_offset
from tests.servers.kafka import KafkaBroker, Quorum
from tests.servers.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]

VERSION, TOPIC, COUNT = "4.3.0", "invoices", 8
EVERY_BATCH_ROLLS = 200
ONE_SEGMENT = 1 << 20


def write_by_new_producers(brokers: Sequence[KafkaBroker]) -> None:
    """One record each, which is acknowledged."""
    errors: list[KafkaError | None] = []
    for number in range(COUNT):
        producer = Producer(
            {"bootstrap.servers": brokers[0].bootstrap, "enable.idempotence": True, "log_level": 0, "linger.ms": 0}
        )
        value = str(number).encode() * 100
        producer.produce(TOPIC, value, partition=0, on_delivery=lambda error, _: errors.append(error))
        producer.flush(60)
    assert errors == [None] * COUNT


def archive_cluster(directory: Path, cluster_id: str | None = None) -> dict[str, str]:
    """Of a cluster whose producers wrote one record each; the settings that name it."""
    settings = {"store.url": (directory / "archive").as_uri(), "run.state_dir": str(directory / "state")}
    quorum = Quorum.of([1], cluster_id) if cluster_id else None
    with KafkaBroker(VERSION, directory / "old", quorum=quorum) as broker:
        create_topic(broker, TOPIC, EVERY_BATCH_ROLLS)
        write_by_new_producers([broker])
        options = ["--log-dir", str(broker.log_dirs[0]), "--bootstrap-server", broker.bootstrap]
        done = run_program(settings, "backfill", *options)
        assert done.returncode == 0, done.stderr
    return settings


def restore_for(settings: dict[str, str], broker: KafkaBroker) -> None:
    options = ["--topic", TOPIC, "--to", str(broker.log_dirs[0]), "--open-transactions", "abort"]
    done = run_program(settings, "restore", *options)
    assert done.returncode == 0, done.stderr


def assert_none_seems_to_repeat(broker: KafkaBroker) -> None:
    """Of the first producers of a broker that has restored the archive."""
    restored = end_offset(broker, TOPIC)
    assert restored == COUNT - 1
    write_by_new_producers([broker])
    assert end_offset(broker, TOPIC) == restored + COUNT


@pytest.mark.apart
def test_all_records_are_written_whichever_restored_replica_leads(tmp_path: Path) -> None:
    settings = archive_cluster(tmp_path)
    with KafkaCluster(VERSION, tmp_path / "new", 2) as cluster:
        brokers = cluster.brokers
        create_topic(brokers[0], TOPIC, ONE_SEGMENT, [broker.node_id for broker in brokers])
        wait_in_sync(brokers, TOPIC)
        cluster.close()
        for broker in brokers:
            restore_for(settings, broker)
        cluster.start()
        wait_in_sync(brokers, TOPIC)
        restored = end_offset(brokers[0], TOPIC)
        assert restored == COUNT - 1
        move_leaders(brokers, {TopicPartition(TOPIC, 0): brokers[1].node_id})
        write_by_new_producers(brokers)
        assert end_offset(brokers[1], TOPIC) == restored + COUNT
