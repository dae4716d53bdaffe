"""Three brokers with sidecars: leaders move while pods are deleted, one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from confluent_kafka import Consumer, TopicPartition

from sidecar.randomness import SystemRandomness
from tests.kube_node.brokers import BROKER, RECORD_BYTES, SIDECAR, TOPIC, Brokers, Deliveries, wait_until

pytestmark = [pytest.mark.real, pytest.mark.node]
RECORDS_PER_S = 300
START_LIMIT_S = 400.0


@pytest.mark.timeout(1500)
def test_nothing_is_lost_while_leaders_move(start_brokers: Callable[[int], Brokers]) -> None:
    brokers = start_brokers(3)
    brokers.install_chart()
    brokers.add_sidecar()
    brokers.wait_ready(timeout_s=START_LIMIT_S)
    brokers.produce(3 * 2100)
    led = [leaders(brokers)]
    with producing(brokers) as deliveries:
        for number in range(brokers.replicas):
            uid = brokers.pod(number)["metadata"]["uid"]
            brokers.namespace.kubectl("delete", "pod", f"kafka-{number}", "--wait=false")
            wait_until(partial(is_another_pod, brokers, number, uid), 120, "another pod")
            brokers.wait_ready([number])
            wait_until(lambda: all_in_sync(brokers), 180, "all replicas are in sync")
            led.append(leaders(brokers))
    assert deliveries.failed == 0
    ends = end_offsets(brokers)
    assert sum(ends.values()) == deliveries.acknowledged + 3 * 2100
    # In the end they may be as at first.
    assert any(found != led[0] for found in led)
    wait_until(
        lambda: {p: end for p, (_, end) in brokers.archived().items()} == active_segments(brokers), 240, "archived"
    )
    assert {start for start, _ in brokers.archived().values()} == {0}
    for number in range(brokers.replicas):
        assert brokers.container(BROKER, number)["restartCount"] == 0
        assert brokers.container(SIDECAR, number)["restartCount"] == 0
    brokers.verify()


@contextmanager
def producing(brokers: Brokers) -> Iterator[Deliveries]:
    """Writes all the time; at the end everything is acknowledged or failed."""
    producer, deliveries, ended = brokers.producer(), Deliveries(), threading.Event()

    def write() -> None:
        while not ended.is_set():
            producer.produce(TOPIC, SystemRandomness().random_bytes(RECORD_BYTES), on_delivery=deliveries.count)
            producer.poll(0)
            time.sleep(1 / RECORDS_PER_S)  # noqa: TID251 - a real node has no other clock

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield deliveries
    finally:
        ended.set()
        thread.join()
        deliveries.failed += producer.flush(240)


def leaders(brokers: Brokers) -> dict[int, int]:
    """By partition: the broker."""
    found = brokers.producer().list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
    return {number: partition.leader for number, partition in found.items()}


def is_another_pod(brokers: Brokers, number: int, uid: str) -> bool:
    return bool(brokers.pod(number)["metadata"]["uid"] != uid)


def all_in_sync(brokers: Brokers) -> bool:
    found = brokers.producer().list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
    return all(len(partition.isrs) == brokers.replicas for partition in found.values())


def end_offsets(brokers: Brokers) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap_servers(), "group.id": "ends"})
    try:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=30)[1]
            for number in leaders(brokers)
        }
    finally:
        consumer.close()


def active_segments(brokers: Brokers) -> dict[int, int]:
    """By partition: where the leader's active segment begins."""
    return {partition: brokers.base_offsets(leader)[partition][-1] for partition, leader in leaders(brokers).items()}
