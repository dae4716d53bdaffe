"""A cluster whose answers are larger than kafka-python takes by itself, and requests that are split to keep answers small."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sidecar.broker.cluster_view import all_topics, ask_producers, describe_topics, list_offsets
from sidecar.broker.connection import BrokerConnection
from sidecar.broker.topic_configs import ask_topics
from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.model import TopicPartition
from tests.servers.fake_kafka import NODE_ID, FakeKafka

LIST_OFFSETS, METADATA, DESCRIBE_CONFIGS, DESCRIBE_PRODUCERS = 2, 3, 32, 61
KAFKA_PYTHONS_MAX_BYTES = 1_000_000


@pytest.fixture
def many_topics() -> Iterator[FakeKafka]:
    with FakeKafka(topics=2_500) as kafka:
        yield kafka


def connected(kafka: FakeKafka) -> BrokerConnection:
    return BrokerConnection(BrokerConnectionSettings(bootstrap_servers=(kafka.server,), request_timeout_s=60))


def test_an_answer_may_be_larger_than_kafka_python_takes_by_itself() -> None:
    with FakeKafka(topics=500, partitions=50) as kafka:
        connection = connected(kafka)
        assert len(describe_topics(connection, list(kafka.topics)).leaders) == 25_000
        assert kafka.largest_bytes[METADATA] > KAFKA_PYTHONS_MAX_BYTES
        assert all_topics(connection) == frozenset(kafka.topics)
        connection.close()


def test_many_topics_are_described_in_several_requests(many_topics: FakeKafka) -> None:
    connection = connected(many_topics)
    topics = list(many_topics.topics)
    assert describe_topics(connection, topics).leaders.keys() == {TopicPartition(topic, 0) for topic in topics}
    assert describe_topics(connection, []).cluster_id == "fake"
    before = many_topics.asked[DESCRIBE_CONFIGS]
    reported = ask_topics(connection, topics, NODE_ID)
    assert reported.values.keys() == set(topics)
    assert all(len(values) > 10 for values in reported.values.values())
    assert many_topics.asked[DESCRIBE_CONFIGS] - before == 3
    assert max(many_topics.largest_bytes.values()) < KAFKA_PYTHONS_MAX_BYTES
    connection.close()


def test_offsets_and_producers_of_many_partitions_are_asked_in_several_requests() -> None:
    with FakeKafka(topics=30, partitions=700) as kafka:
        connection = connected(kafka)
        partitions = [TopicPartition(topic, number) for topic in kafka.topics for number in range(700)]
        reported = list_offsets(connection, NODE_ID, dict.fromkeys(partitions, 3))
        assert {(found.offset, found.problem) for found in reported.values()} == {(7, "")}
        assert reported.keys() == set(partitions)
        producers = ask_producers(connection, NODE_ID, partitions[:1_200])
        assert producers is not None
        assert producers.values.keys() == set(partitions[:1_200])
        assert (kafka.asked[LIST_OFFSETS], kafka.asked[DESCRIBE_PRODUCERS]) == (3, 3)
        assert list_offsets(connection, NODE_ID, {}) == {}
        connection.close()
