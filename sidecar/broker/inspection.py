"""What an operator may want to know of the broker and nothing in the loop needs: live producers, and its log dirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from sidecar.broker.cluster_view import error_name
from sidecar.broker.connection import BrokerConnection, IncompatibleRequest
from sidecar.model import TopicPartition


@dataclass(frozen=True, slots=True)
class LiveProducer:
    """A producer as the leader remembers it. `transaction_start_offset`: -1 if none is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


@dataclass(frozen=True, slots=True)
class BrokerLogDir:
    """One of the broker's own log dirs, under the path that it knows. `problem`: "" for one that works."""

    path: str
    partitions: int
    size_bytes: int
    moving: int
    problem: str


def live_producers(
    connection: BrokerConnection, node_id: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[LiveProducer, ...]] | None:
    """Producers by partition, of those that this node leads; None where it does not know the request (before 2.8).

    Raises BrokerUnavailable.
    """
    from kafka.protocol.admin import DescribeProducersRequest

    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for found in partitions:
        by_topic[found.topic].append(found.partition)
    if not by_topic:
        return {}
    topics = [
        DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=numbers)
        for topic, numbers in by_topic.items()
    ]
    try:
        answer = connection.send(DescribeProducersRequest(topics=topics), node_id)
    except IncompatibleRequest:
        return None
    return {
        TopicPartition(topic.name, partition.partition_index): tuple(
            LiveProducer(
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.current_txn_start_offset,
            )
            for producer in partition.active_producers
        )
        for topic in answer.topics
        for partition in topic.partitions
        if not partition.error_code
    }


def log_dirs(connection: BrokerConnection, node_id: int) -> tuple[BrokerLogDir, ...]:
    """The log dirs of a node. `moving` counts partitions that are being moved into it. Raises BrokerUnavailable."""
    from kafka.protocol.admin import DescribeLogDirsRequest

    answer = connection.send(DescribeLogDirsRequest(topics=None), node_id)
    found = []
    for result in answer.results:
        partitions = [partition for topic in result.topics for partition in topic.partitions]
        found.append(
            BrokerLogDir(
                path=result.log_dir,
                partitions=len(partitions),
                size_bytes=sum(partition.partition_size for partition in partitions),
                moving=sum(bool(partition.is_future_key) for partition in partitions),
                problem=error_name(result.error_code) if result.error_code else "",
            )
        )
    return tuple(found)
