"""Who leads the partitions of a real cluster, and how a test moves that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from sidecar.broker.cluster_view import LeaderView, describe_topics
from sidecar.broker.connection import BrokerConnection
from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.errors import BrokerUnavailable
from sidecar.model import TopicPartition
from tests.real.topics import wait_until
from tests.servers.kafka import KafkaBroker

PREFERRED = 0
NOBODY = LeaderView(-1, -1)
SEGMENT_MS = 6000

CLUSTER_PROPERTIES = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
"""A broker that does not answer is deposed after 3 s; transactions outlive any one broker."""


def leaders(broker: KafkaBroker, *topics: str) -> dict[TopicPartition, LeaderView]:
    """Of all partitions, as this broker knows them; those without a leader are left out. Empty while it does not answer."""
    connection = BrokerConnection(BrokerConnectionSettings(bootstrap_servers=(broker.bootstrap,), request_timeout_s=30))
    try:
        found = describe_topics(connection, topics, broker.node_id).leaders
    except BrokerUnavailable:
        return {}
    finally:
        connection.close()
    return {partition: leader for partition, leader in found.items() if leader.leader_id >= 0}


def leader_of(broker: KafkaBroker, partition: TopicPartition) -> LeaderView:
    """Of one partition, as this broker knows it; `NOBODY` while it knows none."""
    return leaders(broker, partition.topic).get(partition, NOBODY)


def create_replicated(
    brokers: Sequence[KafkaBroker], topic: str, partition_count: int, segment_bytes: int, segment_ms: int = SEGMENT_MS
) -> None:
    """Each partition has a replica on every broker; the partitions' first leaders take turns, from the first on."""
    # 4.x refuses segment.bytes below 1 MiB; its own tests use the internal setting.
    name = "internal.segment.bytes" if brokers[0].version.startswith("4.") else "segment.bytes"
    nodes = [broker.node_id for broker in brokers]
    assignment = [nodes[number % len(nodes) :] + nodes[: number % len(nodes)] for number in range(partition_count)]
    new = NewTopic(
        topic,
        num_partitions=partition_count,
        replica_assignment=assignment,
        config={
            name: str(segment_bytes),
            # Every replica draws when it rolls: an archive of several leaders has boundaries that no log has.
            "segment.ms": str(segment_ms),
            "segment.jitter.ms": str(segment_ms * 5 // 6),
            "min.insync.replicas": str(min(2, len(nodes))),
        },
    )
    admin = AdminClient({"bootstrap.servers": _all(brokers), "log_level": 0})

    def is_created() -> bool:
        (created,) = admin.create_topics([new]).values()
        try:
            created.result(60)
        except KafkaException as error:
            # A bootstrap connection ends when the broker's own name becomes known, and takes the request with it.
            return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    wait_until("the topic is created", is_created)
    wait_until("all partitions have a leader", lambda: len(leaders(brokers[0], topic)) == partition_count)


def wait_in_sync(brokers: Sequence[KafkaBroker], *topics: str) -> None:
    """Until all replicas of these topics are in sync: only then may another broker go."""
    admin = AdminClient({"bootstrap.servers": _all(brokers), "log_level": 0})

    def is_in_sync() -> bool:
        try:
            found = [admin.list_topics(topic, 5).topics[topic] for topic in topics]
        except KafkaException:
            return False
        return all(len(partition.isrs) == len(brokers) for topic in found for partition in topic.partitions.values())

    wait_until("all replicas are in sync", is_in_sync)


def move_leaders(brokers: Sequence[KafkaBroker], targets: Mapping[TopicPartition, int]) -> None:
    """Make other brokers the preferred replicas of these partitions, and elect them. All brokers must run."""
    from kafka.admin import KafkaAdminClient
    from kafka.structs import TopicPartition as KafkaTopicPartition

    nodes = [broker.node_id for broker in brokers]
    moves = {
        KafkaTopicPartition(partition.topic, partition.partition): [target, *(node for node in nodes if node != target)]
        for partition, target in targets.items()
    }
    topics = sorted({partition.topic for partition in targets})
    wait_in_sync(brokers, *topics)
    admin = KafkaAdminClient(bootstrap_servers=_all(brokers).split(","))
    try:
        admin.alter_partition_reassignments(moves)
        wait_until("the reassignment is over", lambda: not admin.list_partition_reassignments())
        elections: dict[str, list[int]] = {}
        for partition in targets:
            elections.setdefault(partition.topic, []).append(partition.partition)

        def are_elected() -> bool:
            # The in-sync set follows a reassignment a moment later: an election before that is refused.
            admin.elect_leaders(PREFERRED, elections, raise_errors=False)
            found = leaders(brokers[0], *topics)
            return all(found.get(partition, NOBODY).leader_id == target for partition, target in targets.items())

        wait_until("the new leaders are elected", are_elected)
    finally:
        admin.close()


def _all(brokers: Sequence[KafkaBroker]) -> str:
    return ",".join(broker.bootstrap for broker in brokers)
