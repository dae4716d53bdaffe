"""What an operator may want to know of the broker and nothing in the loop needs: live producers, and its log dirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.broker.cluster_view import READ, RequestProblem, error_name, portions
from sidecar.broker.connection import BrokerConnection, IncompatibleRequest
from sidecar.model import TopicPartition

PARTITIONS_WITH_PRODUCERS_PER_REQUEST = 500
"""A partition may have tens of thousands of producers, some 40 bytes each in the answer."""


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


@dataclass(frozen=True, slots=True)
class DescribedProducers:
    """Producers by partition. `problems`: partitions whose leader does not tell, and why."""

    values: Mapping[TopicPartition, tuple[LiveProducer, ...]] = field(default_factory=dict)
    problems: Mapping[TopicPartition, RequestProblem] = field(default_factory=dict)


def ask_producers(
    connection: BrokerConnection, node_id: int, partitions: Iterable[TopicPartition]
) -> DescribedProducers | None:
    """Producers of those partitions that this node leads; None where it does not know the request (before 2.8).

    Raises BrokerUnavailable. Source: KafkaApis.handleDescribeProducersRequest.
    """
    from kafka.protocol.admin import DescribeProducersRequest

    values: dict[TopicPartition, tuple[LiveProducer, ...]] = {}
    problems: dict[TopicPartition, RequestProblem] = {}
    for portion in portions(list(partitions), PARTITIONS_WITH_PRODUCERS_PER_REQUEST):
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for found in portion:
            by_topic[found.topic].append(found.partition)
        topics = [
            DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic.items()
        ]
        try:
            answer = connection.send(DescribeProducersRequest(topics=topics), node_id)
        except IncompatibleRequest:
            return None
        for topic in answer.topics:
            for partition in topic.partitions:
                name = TopicPartition(topic.name, partition.partition_index)
                if partition.error_code:
                    problems[name] = RequestProblem(error_name(partition.error_code), READ, topic.name)
                else:
                    values[name] = tuple(map(_live_producer, partition.active_producers))
    return DescribedProducers(values, problems)


def _live_producer(told: Any) -> LiveProducer:
    return LiveProducer(
        told.producer_id,
        told.producer_epoch,
        told.last_sequence,
        told.last_timestamp,
        told.coordinator_epoch,
        told.current_txn_start_offset,
    )


def log_dirs(connection: BrokerConnection, node_id: int) -> tuple[BrokerLogDir, ...]:
    """The log dirs of a node; none where we lack Describe on the cluster. Raises BrokerUnavailable.

    `moving` counts partitions that are being moved into one.
    """
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
