"""What the cluster says of partitions at one moment, asked in few requests and kept as plain values; and which right we lack.

Source of the rights: KafkaApis: handleTopicMetadataRequest, handleListOffsetRequest, handleDescribeConfigsRequest,
handleDescribeProducersRequest, handleDescribeLogDirsRequest.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar

from sidecar.archive.keys import id_of
from sidecar.broker.connection import BrokerConnection, IncompatibleRequest
from sidecar.errors import BrokerTrouble, BrokerUnavailable
from sidecar.model import TopicPartition

TOPIC_DENIED, CLUSTER_DENIED = "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"
DENIED = frozenset({TOPIC_DENIED, CLUSTER_DENIED})
DESCRIBE, DESCRIBE_CONFIGS, READ = "Describe", "DescribeConfigs", "Read"
CLUSTER = ""
"""In place of a topic's name: the right is one on the cluster."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
EARLIEST, LATEST = -2, -1
ANY_EPOCH = -1
TOPICS_PER_REQUEST, PARTITIONS_PER_REQUEST = 1_000, 10_000
"""An answer of some megabytes, read in some tenths of a second, in which no other answer is read."""
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
ORIGINS = {1: "topic", 2: "broker, dynamic", 3: "cluster, dynamic", 4: "broker's properties", 5: "Kafka's default"}
"""Kafka's `ConfigSource`, in words."""
Item = TypeVar("Item")
Name = TypeVar("Name")
Value = TypeVar("Value")
PARTITIONS_WITH_PRODUCERS_PER_REQUEST = 500
"""A partition may have tens of thousands of producers, some 40 bytes each in the answer."""


@dataclass(frozen=True, slots=True, order=True)
class RequestProblem:
    """A broker's error for a topic or for the cluster. `name`: Kafka's. `operation`: what we wanted to do there."""

    name: str
    operation: str
    topic: str = CLUSTER

    @property
    def is_denied(self) -> bool:
        return self.name in DENIED

    def __str__(self) -> str:
        """Kafka's name of the error; where a right is missing, which one, and how to give it."""
        if not self.is_denied:
            return self.name
        where = f"topic {self.topic}" if self.topic else "the cluster"
        option = f"--topic {self.topic}" if self.topic else "--cluster"
        return (
            f"{self.name}: the sidecar's user is not authorized. Allow it {self.operation} on "
            f"{where} (kafka-acls.sh --add --allow-principal User:... --operation {self.operation} {option})"
        )


@dataclass(frozen=True, slots=True)
class LeaderView:
    """The leader of a partition and its leader epoch (-1 if the broker does not report it)."""

    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The answer to a metadata request. `problems`: topics that could not be described, and why."""

    cluster_id: str | None
    broker_ids: frozenset[int]
    leaders: Mapping[TopicPartition, LeaderView]
    topic_ids: Mapping[str, str]
    problems: Mapping[str, RequestProblem] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """The response of a leader: an offset, or the name of the error that it returned."""

    offset: int
    problem: str = ""


def describe_topics(
    connection: BrokerConnection, topics: Collection[str], node_id: int | None = None, *, spare: bool = False
) -> ClusterView:
    """Leaders, epochs and topic ids, as this node knows them; by default any node. Raises BrokerUnavailable.

    `spare`: see `BrokerConnection.send`.
    """
    from kafka.protocol.metadata import MetadataRequest

    leaders: dict[TopicPartition, LeaderView] = {}
    topic_ids: dict[str, str] = {}
    problems: dict[str, RequestProblem] = {}
    # The response has the cluster's id even without topics.
    for portion in portions(sorted(topics), TOPICS_PER_REQUEST) or [[]]:
        named = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in portion]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        answer = connection.send(request, node_id, spare=spare)
        for topic in answer.topics:
            if topic.error_code:
                problems[topic.name] = RequestProblem(error_name(topic.error_code), DESCRIBE, topic.name)
                continue
            if topic.topic_id is not None and topic.topic_id.int:
                topic_ids[topic.name] = id_of(topic.topic_id.bytes)
            for partition in topic.partitions:
                # A partition with an error still names its leader, or -1: there is none now.
                epoch = partition.leader_epoch if partition.leader_epoch is not None else ANY_EPOCH
                leaders[TopicPartition(topic.name, partition.partition_index)] = LeaderView(partition.leader_id, epoch)
    brokers = frozenset(broker.node_id for broker in answer.brokers)
    return ClusterView(answer.cluster_id, brokers, leaders, topic_ids, problems)


def all_topics(connection: BrokerConnection) -> frozenset[str]:
    """Names of the cluster's topics; a broker passes over those that this user may not describe. Raises BrokerUnavailable."""
    from kafka.protocol.metadata import MetadataRequest

    answer = connection.send(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return frozenset(topic.name for topic in answer.topics)


def list_offsets(
    connection: BrokerConnection,
    node_id: int,
    epochs: Mapping[TopicPartition, int],
    *,
    timestamp: int = LATEST,
    isolation_level: int = READ_COMMITTED,
) -> dict[TopicPartition, PartitionOffset]:
    """An offset of each partition, from the leader itself, and only under the expected leader epoch.

    Args:
        epochs: partitions, and the leader epoch under which the node must lead them; else it answers with an error.
        timestamp, isolation_level: LATEST read_committed is the last stable offset, read_uncommitted the high watermark.

    Raises BrokerUnavailable. Source: KafkaApis.handleListOffsetRequest, Partition.fetchOffsetForTimestamp.
    """
    from kafka.protocol.consumer import ListOffsetsRequest

    topic_of = ListOffsetsRequest.ListOffsetsTopic
    reported: dict[TopicPartition, PartitionOffset] = {}
    for portion in portions(list(epochs.items()), PARTITIONS_PER_REQUEST):
        by_topic: defaultdict[str, list[Any]] = defaultdict(list)
        for found, epoch in portion:
            by_topic[found.topic].append(
                topic_of.ListOffsetsPartition(
                    partition_index=found.partition, current_leader_epoch=epoch, timestamp=timestamp
                )
            )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[topic_of(name=topic, partitions=partitions) for topic, partitions in by_topic.items()],
            min_version=4,  # the first that carries the leader epoch
        )
        for topic in connection.send(request, node_id).topics:
            for partition in topic.partitions:
                problem = error_name(partition.error_code) if partition.error_code else ""
                reported[TopicPartition(topic.name, partition.partition_index)] = PartitionOffset(
                    partition.offset, problem
                )
    return reported


@dataclass(frozen=True, slots=True)
class ConfigValue:
    text: str
    origin: str


@dataclass(frozen=True, slots=True)
class Described(Generic[Name, Value]):
    """What is described, by name. `problems`: what could not be described, and why."""

    values: Mapping[Name, Value]
    problems: Mapping[Name, RequestProblem]


DescribedConfigs: TypeAlias = Described[str, dict[str, ConfigValue]]
"""Configurations by resource and by Kafka's name."""


def ask_configs(
    connection: BrokerConnection, node_id: int | None, resource_type: int, names: Iterable[str], keys: Iterable[str]
) -> DescribedConfigs:
    """Configs of topics, which any node returns, or of the node itself. Raises BrokerUnavailable."""
    from kafka.protocol.admin import DescribeConfigsRequest

    resource_of = DescribeConfigsRequest.DescribeConfigsResource
    wanted = list(keys)
    found: dict[str, dict[str, ConfigValue]] = {}
    problems: dict[str, RequestProblem] = {}
    for portion in portions(list(names), TOPICS_PER_REQUEST):
        resources = [
            resource_of(resource_type=resource_type, resource_name=name, configuration_keys=wanted) for name in portion
        ]
        request = DescribeConfigsRequest(
            resources=resources, include_synonyms=False, include_documentation=False, min_version=1
        )
        for result in connection.send(request, node_id).results:
            if result.error_code:
                topic = result.resource_name if resource_type == TOPIC_RESOURCE else CLUSTER
                problems[result.resource_name] = RequestProblem(error_name(result.error_code), DESCRIBE_CONFIGS, topic)
                continue
            found[result.resource_name] = {
                config.name: ConfigValue(config.value, ORIGINS.get(config.config_source, "broker"))
                for config in result.configs
                if config.value is not None and not config.is_sensitive
            }
    return Described(found, problems)


def portions(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """The items in turn, so many in each, so that an answer stays small however many there are."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def error_name(code: int) -> str:
    from kafka.errors import for_code

    return str(getattr(for_code(code), "message", "") or for_code(code).__name__)


def require_broker(view: ClusterView, broker_id: int) -> None:
    """Raise BrokerUnavailable unless this broker is one of the cluster's live ones."""
    if broker_id not in view.broker_ids:
        live = ", ".join(map(str, sorted(view.broker_ids))) or "none"
        what = f"broker {broker_id} is not among the live brokers of its cluster ({live})"
        raise BrokerUnavailable(what, BrokerTrouble.NOT_A_MEMBER)


def missing_right(problems: Iterable[RequestProblem], effect: str) -> tuple[str, ...]:
    """One sentence for all topics that lack the same right, with one of them as an example; none if none does.

    `problems`: all of one operation. `effect`: what follows.
    """
    denied = sorted(problem for problem in problems if problem.is_denied)
    if not denied:
        return ()
    more = f", and on {len(denied) - 1} more" if len(denied) > 1 else ""
    return (f"{denied[0]}{more}; until then {effect}",)


@dataclass(frozen=True, slots=True)
class LiveProducer:
    """A producer as the leader remembers it. `transaction_start_offset`: -1 if none is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


_PRODUCER = attrgetter(
    "producer_id", "producer_epoch", "last_sequence", "last_timestamp", "coordinator_epoch", "current_txn_start_offset"
)
"""Kafka's names of its fields, in the same order."""


@dataclass(frozen=True, slots=True)
class BrokerLogDir:
    """One of the broker's own log dirs, under the path that it knows. `problem`: "" for one that works."""

    path: str
    partitions: int
    size_bytes: int
    moving: int
    problem: str


def ask_producers(
    connection: BrokerConnection, node_id: int, partitions: Iterable[TopicPartition]
) -> Described[TopicPartition, tuple[LiveProducer, ...]] | None:
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
                    values[name] = tuple(LiveProducer(*_PRODUCER(found)) for found in partition.active_producers)
    return Described(values, problems)


def log_dirs(connection: BrokerConnection, node_id: int) -> tuple[BrokerLogDir, ...]:
    """The log dirs of a node; none where we lack Describe on the cluster. Raises BrokerUnavailable.

    `moving` counts partitions that are being moved into one.
    """
    found = []
    for result in _described_log_dirs(connection, node_id):
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


def replicas_by_log_dir(connection: BrokerConnection, node_id: int | str) -> Mapping[str, frozenset[TopicPartition]]:
    """What a node has in each of its log dirs, by the path that it knows; what is moving counts where it comes from.

    Nothing where we lack Describe on the cluster. Raises BrokerUnavailable.
    """
    return {
        result.log_dir: frozenset(
            TopicPartition(topic.name, partition.partition_index)
            for topic in result.topics
            for partition in topic.partitions
            if not partition.is_future_key
        )
        for result in _described_log_dirs(connection, node_id, spare=True)
        if not result.error_code
    }


def _described_log_dirs(connection: BrokerConnection, node_id: int | str, *, spare: bool = False) -> Sequence[Any]:
    from kafka.protocol.admin import DescribeLogDirsRequest

    found: Sequence[Any] = connection.send(DescribeLogDirsRequest(topics=None), node_id, spare=spare).results
    return found
