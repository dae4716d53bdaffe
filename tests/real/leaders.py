"""Who leads a partition of a real cluster, and how a test moves that."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from sidecar.broker.cluster_view import describe_topics
from sidecar.broker.connection import BrokerConnection
from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.model import TopicPartition
from tests.real.topics import wait_until
from tests.servers.kafka import KafkaBroker, KafkaCluster

PREFERRED = 0


def connection_to(broker: KafkaBroker) -> BrokerConnection:
    """Through one broker of a cluster."""
    return BrokerConnection(BrokerConnectionSettings(bootstrap_servers=(broker.bootstrap,), request_timeout_s=5))


def leader_and_epoch(broker: KafkaBroker, topic: str) -> tuple[int, int]:
    """Of partition 0, as this broker knows it; (-1, -1) while it knows none."""
    connection = connection_to(broker)
    try:
        found = describe_topics(connection, [topic], broker.node_id).leaders.get(TopicPartition(topic, 0))
    finally:
        connection.close()
    return (-1, -1) if found is None else (found.leader_id, found.leader_epoch)


def three_replicas(cluster: KafkaCluster, topic: str, segment_bytes: int) -> None:
    """One partition on all three brokers, led by the first."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    config = {"segment.bytes": str(segment_bytes), "min.insync.replicas": "2"}
    new = NewTopic(topic, num_partitions=1, replica_assignment=[[0, 1, 2]], config=config)

    def is_created() -> bool:
        (created,) = admin.create_topics([new]).values()
        try:
            created.result(60)
        except KafkaException as error:
            # A bootstrap connection ends when the broker's own name becomes known, and takes the request with it.
            return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    wait_until("the topic is created", is_created)
    wait_until("there is a leader", lambda: leader_and_epoch(cluster.brokers[0], topic)[0] == 0)


def move_leader(cluster: KafkaCluster, topic: str, target: int) -> None:
    """Make another broker the preferred replica of partition 0, and elect it."""
    from kafka.admin import KafkaAdminClient
    from kafka.structs import TopicPartition as KafkaTopicPartition

    partition = KafkaTopicPartition(topic, 0)
    replicas = [target, *(node for node in range(3) if node != target)]
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        admin.alter_partition_reassignments({partition: replicas})
        wait_until("the reassignment is over", lambda: not admin.list_partition_reassignments())
        time.sleep(0.5)  # noqa: TID251 - the in-sync set follows a moment later
        admin.elect_leaders(PREFERRED, {topic: [0]}, raise_errors=False)
    finally:
        admin.close()
    broker = cluster.brokers[target]
    wait_until(f"broker {target} leads", lambda: leader_and_epoch(broker, topic)[0] == target)
