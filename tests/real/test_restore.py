"""Archives of golden directories in a real S3 server, restored; each of the brokers starts from it and serves what was there."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from sidecar.archive.state import PartitionState
from sidecar.clock import SystemClock
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.leader_epochs import read_leader_epochs
from sidecar.logformat.metadata_files import read_partition_metadata
from sidecar.logformat.names import CLEANER_CHECKPOINT
from sidecar.model import TopicPartition as Partition
from sidecar.restore.request import LeaderEpochMode, OpenTransactionMode, RestoreRequest
from sidecar.restore.restore import restore
from tests.golden import golden, golden_copy, manifest
from tests.real.archived_elsewhere import assert_goes_on_without_producers
from tests.real.epoch_ends import epoch_end
from tests.real.product import json_lines, run_installed, run_program, s3_settings, store_of
from tests.real.reading_back import expected_reads, reads
from tests.real.stored_batches import last_data_batch, segment_bases, send_again, stored_batches
from tests.real.test_broker_facts import produce
from tests.real.test_restored_hole import TOPIC as HOLE
from tests.real.test_restored_hole import assert_a_cleaner_keeps_what_was_committed, restore_hole
from tests.real.test_restored_replicas import TOPIC as INVOICES
from tests.real.test_restored_replicas import archive_cluster, assert_none_seems_to_repeat, restore_for
from tests.real.tiered_storage import tiered_segments, tiering_properties
from tests.real.topics import (
    TIMEOUT_S,
    admin_of,
    create_topic,
    create_topics,
    end_offset,
    set_topic,
    wait_for_directories,
    wait_until,
    write,
)
from tests.restore.archives import lose
from tests.runner.rig import archived_states
from tests.servers.kafka import KafkaBroker, Quorum
from tests.servers.kafka_java import kafka_tool
from tests.servers.versitygw import VersityGateway

pytestmark = [pytest.mark.real, pytest.mark.slow]

TOPICS = ("orders", "codecs-java", "codecs-librdkafka", "transactions", "append-time")
LEGACY = ("legacy-v0", "legacy-v1", "legacy-mixed")
TIERED = "codecs-java-0"
PAYMENTS = "payments"
SCRIPT = f"""
producer a
producer t transactional.id=t
producer filler
send a {PAYMENTS} 0 30
begin t
send t {PAYMENTS} 0 40
abort t
send filler {PAYMENTS} 0 600
"""
CLEANED_END = 877
"""Of a segment of `compacted-0` that the cleaner of 2.7.2 left with a last batch far below."""
MORE_ORDERS = """
producer more
send more orders 0 400
"""
# Golden records are as old as the golden directories: no retention may remove them while the test runs.
# Transactions that the golden brokers left open stay open: were one ended while a broker runs here, its end might lie above the
# archive's, and readers of the restored log would wait for it.
PROPERTIES = {
    "log.retention.ms": "-1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    "log.cleaner.backoff.ms": "300",
}


def archive(gateway: VersityGateway, log_dir: Path, scratch: Path) -> dict[str, str]:
    """Back-fill a log dir; the settings that lead to its archive."""
    settings = {**s3_settings(gateway), "store.url": f"s3://{gateway.bucket}/{scratch.name}"}
    # What was written a moment ago is archived too: nobody writes there any more.
    state = {"run.state_dir": str(scratch / "state"), "broker.settle_ms": "0"}
    done = run_program({**settings, **state}, "backfill", "--log-dir", str(log_dir), "--assume-leader", "--json")
    assert done.returncode == 0, done.stderr
    return settings


def restore_topics(
    settings: Mapping[str, str], log_dir: Path, topics: Mapping[str, dict[str, Any]]
) -> dict[str, PartitionState]:
    """Restore topics with these options; the archived states of all of their partitions."""
    with store_of(settings) as store:
        for topic, options in topics.items():
            report = restore(store, SystemClock(), RestoreRequest(topic, log_dir, **options))
            assert report.exit_code == 0, [outcome.problem for outcome in report.outcomes]
        states = archived_states(store)
    return {name: state for name, state in states.items() if name.rpartition("-")[0] in topics}


def assert_served(broker: KafkaBroker, states: Mapping[str, PartitionState], source: Path) -> None:
    """Consumers of both isolation levels get what the source directory holds below the end of what is archived."""
    partitions = [
        (state.lineage.topic_partition.topic, state.lineage.topic_partition.partition) for state in states.values()
    ]
    everything = reads(broker, partitions, "read_uncommitted")
    committed = reads(broker, partitions, "read_committed")
    hidden = 0
    for (topic, number), state in zip(partitions, states.values(), strict=True):
        lost = {offset for hole in state.holes for offset in range(hole.base_offset, hole.end_offset)}
        expected = [
            [read for read in found if read.offset not in lost]
            for found in expected_reads(source / f"{topic}-{number}", state.segments[-1].end_offset)
        ]
        assert everything[topic, number] == expected[0], (topic, number)
        assert committed[topic, number] == expected[1], (topic, number)
        hidden += len(expected[0]) - len(expected[1])
    assert hidden > 0, "no aborted transaction among them"


def assert_nothing_recovered(broker: KafkaBroker, states: Mapping[str, PartitionState]) -> None:
    """Without a clean shutdown a broker recovers from the recovery point on: here only empty segments at the logs' ends."""
    found = re.findall(r"partition=([\w.-]+), dir=[^\]]+\] Recovering unflushed segment (\d+)", broker.log_text())
    recovered = {name: int(base) for name, base in found if name in states}
    assert recovered.keys() == states.keys()
    assert all(base >= (states[name].end_offset or 0) for name, base in recovered.items()), recovered


def epochs_of(log_dir: Path, partition: str) -> list[tuple[int, int]]:
    entries = read_leader_epochs((log_dir / partition / "leader-epoch-checkpoint").read_bytes()).entries
    return [(entry.epoch, entry.start_offset) for entry in entries]


def make_topics(broker: KafkaBroker, version: str, topics: tuple[str, ...]) -> None:
    found = manifest(version)["topics"]
    counts = {topic: len(found[topic]["partitions"]) for topic in topics}
    create_topics(
        broker, [NewTopic(topic, num_partitions=count, replication_factor=1) for topic, count in counts.items()]
    )
    wait_for_directories(broker, [f"{topic}-{number}" for topic, count in counts.items() for number in range(count)])


@pytest.mark.apart
def test_2_7_2_with_zookeeper_serves_all_formats_from_a_fresh_directory(
    gateway: VersityGateway, tmp_path: Path
) -> None:
    """Another cluster, whose id is not known yet; no clean shutdown was ever there, and nothing needs recovery."""
    source = golden("2.7.2") / "logs"
    settings = archive(gateway, source, tmp_path)
    broker = KafkaBroker("2.7.2", tmp_path / "kafka", properties=PROPERTIES)
    log_dir = broker.log_dirs[0]
    log_dir.mkdir(parents=True)
    options = {
        "topic_id": "none",
        "leader_epochs": LeaderEpochMode.FLATTEN,
        "open_transactions": OpenTransactionMode.ABORT,
    }
    topics = (*TOPICS, *LEGACY)
    states = restore_topics(settings, log_dir, dict.fromkeys(topics, options))
    cleaned = archive(gateway, golden("2.7.2") / "compacted", tmp_path / "cleaned")
    restore_topics(cleaned, log_dir, {"compacted": {**options, "partitions": (0,), "offset_range": (0, CLEANED_END)}})
    with broker:
        # To ZooKeeper the topics are new; the broker finds their directories when it comes to lead them.
        make_topics(broker, "2.7.2", (*topics, "compacted"))
        assert_served(broker, states, source)
        assert_nothing_recovered(broker, states)
        assert_end_is_reached(broker, "compacted", CLEANED_END)
    assert epochs_of(log_dir, "orders-0") == [(0, 0)]


def assert_end_is_reached(broker: KafkaBroker, topic: str, archived_end: int) -> None:
    """Also when a cleaner has been through all that it may look at."""
    set_topic(broker, topic, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"})
    checkpoint = broker.log_dirs[0] / CLEANER_CHECKPOINT
    partition = Partition(topic, 0)
    wait_until("cleaned", lambda: read_offset_checkpoint(checkpoint.read_bytes()).get(partition) == archived_end)
    # Raises where the end is not reported: no batch led there.
    found = reads(broker, [(topic, 0)], "read_committed")[topic, 0]
    assert {read.offset for read in found} <= set(range(archived_end))
    bases = [batch.base_offset for batch in stored_batches(broker.log_dirs[0] / f"{topic}-0")]
    assert bases[-1] == end_offset(broker, topic) - 1 == archived_end


def delete_records(broker: KafkaBroker, topic: str, before_offset: int) -> None:
    """Of partition 0."""
    admin = admin_of(broker)
    (done,) = admin.delete_records([TopicPartition(topic, 0, before_offset)]).values()
    done.result(TIMEOUT_S)


def test_3_9_1_goes_on_in_its_own_cluster_and_knows_its_producers(gateway: VersityGateway, tmp_path: Path) -> None:
    golden_copy("3.9.1", tmp_path / "copy")
    (tmp_path / "kafka").mkdir()
    (tmp_path / "copy" / "logs").rename(tmp_path / "kafka" / "logs-0")
    # The files of what is deleted stay: they are what must be served.
    keeping = {**PROPERTIES, "log.initial.task.delay.ms": "3600000"}
    broker = KafkaBroker("3.9.1", tmp_path / "kafka", properties=keeping)
    log_dir = broker.log_dirs[0]
    archive(gateway, log_dir, tmp_path)
    archived_before, all_epochs = segment_bases(log_dir / "orders-0")[-1], epochs_of(log_dir, "orders-0")
    with broker:
        create_topic(broker, PAYMENTS, segment_bytes=16384)
        write(broker, SCRIPT + MORE_ORDERS, tmp_path)
        # Before the next segments are archived, the broker forgets what is. By now it is known to lead.
        delete_records(broker, "orders", archived_before)
    retried = last_data_batch(
        stored_batches(log_dir / f"{PAYMENTS}-0"), stored_batches(log_dir / f"{PAYMENTS}-0")[0].producer_id
    )
    settings = archive(gateway, log_dir, tmp_path)
    lost = tmp_path / "lost"
    lost.mkdir()
    topics = {}
    for topic in (*TOPICS, PAYMENTS):
        for directory in sorted(log_dir.glob(f"{topic}-[0-9]")):
            topics[topic] = {"topic_id": read_partition_metadata((directory / "partition.metadata").read_bytes())}
            directory.rename(lost / directory.name)
    # As a disk that was replaced: the broker never shut down with what is there now.
    (log_dir / ".kafka_cleanshutdown").unlink()
    with store_of(settings) as store:
        behind = lose(store, TIERED, archived_states(store)[TIERED].segments[1].base_offset).segments[-1]
    states = restore_topics(settings, log_dir, topics)
    archived_end = states[f"{PAYMENTS}-0"].end_offset
    assert (states["orders-0"].end_offset or 0) > archived_before
    assert epochs_of(lost, "orders-0")[0] == (4, archived_before)
    all_epochs += epochs_of(lost, "orders-0")[1:]
    assert len(all_epochs) == 4
    assert epochs_of(log_dir, "orders-0") == all_epochs
    tiering = PROPERTIES | tiering_properties(tmp_path / "tiered")
    with KafkaBroker("3.9.1", tmp_path / "kafka", properties=tiering) as again:
        assert_served(again, states, lost)
        assert_nothing_recovered(again, states)
        answer = send_again(again.port, PAYMENTS, 0, retried)
        assert (answer.error_code, answer.base_offset) == (0, retried.base_offset)
        assert end_offset(again, PAYMENTS) == archived_end
        for (epoch, _), (_, end) in pairwise(all_epochs):
            assert epoch_end(again.port, "orders", 0, epoch) == (epoch, end)
        # Its tiering, too, gets past the offsets that are lost.
        set_topic(again, TIERED.removesuffix("-0"), {"remote.storage.enable": "true"})
        wait_until("tiered", lambda: behind.base_offset in tiered_segments(tmp_path / "tiered", TIERED))
        produce(again, PAYMENTS, 5)
        assert end_offset(again, PAYMENTS) == end_offset(again, PAYMENTS, committed=True) == (archived_end or 0) + 5
    # The history of epochs was kept, and went on.
    assert epochs_of(log_dir, "orders-0")[: len(all_epochs)] == all_epochs
    copies = [batch for batch in stored_batches(log_dir / f"{PAYMENTS}-0") if batch.identity == retried.identity]
    assert len(copies) == 1


def test_4_3_0_of_another_cluster_serves_it_to_groups_that_come_back(gateway: VersityGateway, tmp_path: Path) -> None:
    source = golden("4.3.0") / "logs"
    settings = archive(gateway, source, tmp_path)
    with store_of(settings) as store:
        last = archived_states(store)["append-time-0"].segments[-1]
        lose(store, "append-time-0", last.base_offset)
        # A transaction is open there whose abort marker is lost: what it wrote below must not show.
        lose(store, "transactions-0", 220)
    quorum = Quorum.of([1])
    formatted = archive_cluster(tmp_path / "formatted", quorum.cluster_id)
    broker = KafkaBroker("4.3.0", tmp_path / "kafka", properties=PROPERTIES, quorum=quorum)
    with broker:
        make_topics(broker, "4.3.0", TOPICS)
        for topic in (INVOICES, HOLE):
            create_topic(broker, topic, segment_bytes=1 << 20)
    log_dir = broker.log_dirs[0]
    restore_for(formatted, broker)
    restore_hole(broker, tmp_path / "hole")
    arguments = ["restore", "--to", str(log_dir), "--open-transactions", "abort", "--json"]
    done = run_installed(settings, *arguments, "--topic", "orders", "--leader-epochs", "keep")
    assert done.returncode == 2, done.stdout
    assert "belongs to cluster" in done.stderr
    done = run_program(settings, *arguments, "--topic", "orders")
    assert done.returncode == 0, done.stderr
    (report,) = json_lines(done)
    assert [(row["leader_epochs"], row["producer_state"]) for row in report["partitions"]] == [("flatten", "drop")] * 2
    aborting = {"open_transactions": OpenTransactionMode.ABORT}
    states = restore_topics(settings, log_dir, dict.fromkeys(TOPICS[1:], aborting))
    with store_of(settings) as store:
        states |= {name: state for name, state in archived_states(store).items() if name.startswith("orders-")}
    (log_dir / ".kafka_cleanshutdown").unlink()
    assert states["append-time-0"].end_offset == last.end_offset > states["append-time-0"].segments[-1].end_offset
    with KafkaBroker("4.3.0", tmp_path / "kafka", properties=PROPERTIES) as again:
        # Before any other producer is given an id.
        assert_none_seems_to_repeat(again)
        assert_a_cleaner_keeps_what_was_committed(again)
        assert_served(again, states, source)
        assert_nothing_recovered(again, states)
        # No offset that is lost is given out again.
        assert end_offset(again, "append-time") == last.end_offset + 1
        produce(again, "append-time", 5)
        assert (
            end_offset(again, "append-time") == end_offset(again, "append-time", committed=True) == last.end_offset + 6
        )
        # Until then, who read to the end was led over what is lost.
        bases = [found.base_offset for found in stored_batches(log_dir / "append-time-0")]
        assert [offset for offset in bases if offset >= last.base_offset] == [last.end_offset, last.end_offset + 1]
        # The group commits the epoch of each partition's last batch. With the source's own there (seen when the refusal above
        # was taken out), it comes back to wait for a leader of that epoch, and is given 0 of the new records.
        names = ("orders-0", "orders-1")
        count = sum(len(expected_reads(source / name, states[name].end_offset or 0)[0]) for name in names)
        assert consumed_by_group(again, count) == count
        set_topic(again, "orders", {"segment.ms": "1"})  # every batch rolls
        write(again, "producer n\nsend n orders 0 10\nsend n orders 1 10\nproducer m\nsend m orders 0 1", tmp_path)
        assert consumed_by_group(again, 21) == 21
    assert not list(log_dir.glob("*-stray"))
    assert {epoch for epoch, _ in epochs_of(log_dir, "orders-0")} <= set(range(6))
    assert epochs_of(log_dir, "orders-0")[0] == (0, 0)
    assert_goes_on_without_producers(gateway, log_dir, tmp_path)
    shutil.rmtree(tmp_path / "kafka")


def consumed_by_group(broker: KafkaBroker, count: int) -> int:
    """Let a Java consumer group read so many records of `orders`, commit, and end. How many it was given."""
    arguments = ["--bootstrap-server", broker.bootstrap, "--topic", "orders", "--group", "g", "--from-beginning"]
    arguments += ["--max-messages", str(count), "--timeout-ms", "120000", "--formatter-property", "print.offset=true"]
    printed = kafka_tool(broker.version, "org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments)
    return printed.count("Offset:")
