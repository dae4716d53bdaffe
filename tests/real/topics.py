"""What tests do with a topic of a real broker: create, set, write by script, ask for offsets, read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.golden import STORE
from tests.servers.kafka import KafkaBroker
from tests.servers.kafka_java import run_java

TIMEOUT_S = 180.0
CREATION_S = 20.0
TRANSIENT = {
    KafkaError._DESTROY_BROKER,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.INVALID_REPLICA_ASSIGNMENT,  # a node of the cluster that is not registered yet
}
_QUIET: dict[str, str | int] = {"log_level": 0}


def admin_of(broker: KafkaBroker) -> AdminClient:
    """A new client: one that has seen the broker before its restart would ask with leader epochs of then.

    Hold it until its answers are there: they end with it. It knows the broker by its name: what is asked before that dies with
    librdkafka's bootstrap connection.
    """
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **_QUIET})

    def knows_it() -> bool:
        try:
            return broker.node_id in admin.list_topics(timeout=CREATION_S).brokers
        except KafkaException:
            return False

    wait_until(f"broker {broker.node_id} names itself", knows_it)
    return admin


def create_topic(broker: KafkaBroker, topic: str, segment_bytes: int, replicas: Sequence[int] = ()) -> None:
    """One partition on this broker, or on these nodes, of which the first leads. The broker has its directory afterwards."""
    # 4.x refuses segment.bytes below 1 MiB; its own tests use the internal setting.
    name = "internal.segment.bytes" if broker.version.startswith("4.") else "segment.bytes"
    on = list(replicas) or [broker.node_id]
    new = NewTopic(topic, num_partitions=1, replica_assignment=[on], config={name: str(segment_bytes)})
    create_topics(broker, [new])
    if broker.node_id in on:
        wait_for_directories(broker, [f"{topic}-0"])


def create_topics(broker: KafkaBroker, new: Sequence[NewTopic]) -> None:
    """A request that dies with librdkafka's bootstrap connection, or is never answered, is made again."""
    lost: list[Exception] = []

    def is_created(created: Future[None]) -> bool:
        try:
            created.result(CREATION_S)
        except TimeoutError as error:
            lost.append(error)
            return False
        except KafkaException as error:
            code = error.args[0].code()
            if code in TRANSIENT:
                lost.append(error)
                return False
            if code != KafkaError.TOPIC_ALREADY_EXISTS or not lost:
                raise
        return True

    def are_created() -> bool:
        admin = admin_of(broker)
        asked = admin.create_topics(list(new), request_timeout=CREATION_S)
        answers = [is_created(created) for created in asked.values()]
        return all(answers)

    wait_until(f"{len(new)} topics are created, {new[0].topic} the first", are_created)


def wait_for_directories(broker: KafkaBroker, partitions: Iterable[str]) -> None:
    """The controller answers before its brokers have heard of it: one that is stopped then never makes them."""
    wanted = set(partitions)

    def are_there() -> bool:
        return wanted <= {path.name for log_dir in broker.log_dirs for path in log_dir.iterdir()}

    wait_until(f"the broker has made {sorted(wanted)}", are_there)


def set_topic(broker: KafkaBroker, topic: str, settings: Mapping[str, str]) -> None:
    """Change settings of a topic; those not named stay."""
    entries = [ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET) for name, text in settings.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = admin_of(broker)
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(TIMEOUT_S)


def leader_of(broker: KafkaBroker, topic: str) -> int:
    """Node id of the leader of partition 0 as this broker knows it, -1 as long as it knows none.

    A ZooKeeper broker says that it has started before it knows its topics.
    """
    admin = admin_of(broker)
    found = admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions.get(0)
    return -1 if found is None else int(found.leader)


def in_sync_replicas(broker: KafkaBroker, topic: str) -> set[int]:
    """Node ids of the replicas of partition 0 that are in sync, as this broker knows them."""
    admin = admin_of(broker)
    found = admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions.get(0)
    return set() if found is None else {int(node_id) for node_id in found.isrs}


def write(broker: KafkaBroker, script: str, scratch: Path, first_number: int = 0) -> None:
    """Run a script of `tests/golden/Produce.java` with the client of the broker's own version."""
    path = scratch / "script.txt"
    path.write_text(script)
    run_java(STORE / "Produce.java", broker.version, broker.bootstrap, str(path), str(first_number))


def end_offset(broker: KafkaBroker, topic: str, number: int = 0, *, committed: bool = False) -> int:
    """The high watermark of a topic's partition of this number, or, `committed`, its last stable offset."""
    partition = TopicPartition(topic, number)
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    admin = admin_of(broker)
    found = admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=level)
    return int(found[partition].result(TIMEOUT_S).offset)


def committed_offsets(broker: KafkaBroker, topic: str, from_offset: int = 0) -> list[int]:
    """Offsets of all records of partition 0 that a read_committed consumer is given who begins at this offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **_QUIET,
        }
    )
    offsets: list[int] = []
    deadline_s = time.monotonic() + TIMEOUT_S  # noqa: TID251 - a real broker has no other clock
    try:
        consumer.assign([TopicPartition(topic, 0, from_offset)])
        while time.monotonic() < deadline_s:  # noqa: TID251
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                offsets.append(int(message.offset() or 0))
            elif error.code() == KafkaError._PARTITION_EOF:
                return offsets
            else:
                raise RuntimeError(f"reading {topic}: {error}")
        raise TimeoutError(f"no end of {topic} within {TIMEOUT_S:.0f} s, {len(offsets)} records read")
    finally:
        consumer.close()


def wait_until(what: str, condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Poll a real server. Raises TimeoutError that says what did not happen."""
    deadline_s = time.monotonic() + timeout_s  # noqa: TID251 - a real broker has no other clock
    while not condition():
        if time.monotonic() > deadline_s:  # noqa: TID251
            raise TimeoutError(f"waited {timeout_s:.0f} s in vain until {what}")
        time.sleep(0.2)  # noqa: TID251
