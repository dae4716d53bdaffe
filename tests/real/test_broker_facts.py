"""What real brokers say of themselves, and what `run` does with it: nothing above the last stable offset, nothing unconfirmed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from producer_state.snapshot import ProducerEntry, read_snapshot
from sidecar.broker.cluster_view import LiveProducer, ask_producers, log_dirs
from sidecar.broker.connection import BrokerConnection
from sidecar.clock import SystemClock
from sidecar.config import load_settings
from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import BrokerUnavailable, SettingsError
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.wait_reason import BrokerAway
from sidecar.ports import BrokerFacts
from sidecar.runner.configured_facts import open_facts
from tests.real.daemon import Daemon, eventually
from tests.real.product import json_lines, run_installed, run_program
from tests.real.topics import create_topic, end_offset, set_topic
from tests.servers.kafka import KafkaBroker

pytestmark = pytest.mark.real

ORDERS = TopicPartition("orders", 0)
CONNECTION = "broker.connection.bootstrap_servers"


@pytest.fixture(scope="module", params=["2.7.2", pytest.param("3.9.1", marks=pytest.mark.apart), "4.3.0"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(request.param, tmp_path_factory.mktemp("broker")) as started:
        yield started


def files_of(broker: KafkaBroker, topic: str) -> PartitionFiles:
    (found,) = scan_log_dirs(broker.log_dirs, TopicFilter((topic,))).partitions
    return found


def facts_of(broker: KafkaBroker, log_dir: Path | None = None) -> BrokerFacts:
    flags = {
        "store.url": "memory://none",
        "broker.log_dirs": [log_dir or broker.log_dirs[0]],
        CONNECTION: [broker.bootstrap],
        "broker.connection.request_timeout_s": 60,
        "topics.policies": [{"pattern": "ord.*", "retention_ms": 7_200_000}],
    }
    return open_facts(load_settings(flags=flags).settings, SystemClock())  # type: ignore[return-value]


def cluster_id_of(broker: KafkaBroker) -> str:
    """ZooKeeper draws another one than the test would."""
    text = (broker.log_dirs[0] / "meta.properties").read_text()
    return next(line.partition("=")[2] for line in text.splitlines() if line.startswith("cluster.id="))


def produce(broker: KafkaBroker, topic: str, count: int, producer: Producer | None = None) -> None:
    producer = producer or Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(count):
        producer.produce(topic, bytes(300), str(number).encode(), partition=0)
        if number % 10 == 9:
            producer.flush()
    assert producer.flush(120) == 0


def transactional(broker: KafkaBroker, name: str) -> Producer:
    patient = {"transaction.timeout.ms": 600_000, "log_level": 0}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, **patient})
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer


def test_what_a_broker_says_is_what_is_believed(broker: KafkaBroker, tmp_path: Path) -> None:
    create_topic(broker, "orders", 1 << 20)
    set_topic(broker, "orders", {"retention.ms": "3600000", "delete.retention.ms": "777"})
    with pytest.raises(
        KafkaException, match=r"compaction\.strategy"
    ):  # KIP-280's, which no release of Apache Kafka knows.
        set_topic(broker, "orders", {"compaction.strategy": "header"})
    produce(broker, "orders", 20)
    open_one = transactional(broker, "holds-back")
    produce(broker, "orders", 10, open_one)
    open_one.flush()
    with facts_of(broker) as facts:  # type: ignore[attr-defined]
        facts.refresh()
        files = files_of(broker, "orders")
        found = facts.partition(files)
        assert (facts.state().away, facts.broker_id(), facts.cluster_id()) == (
            None,
            broker.node_id,
            cluster_id_of(broker),
        )
        assert (found.leads, found.leader_epoch, found.reason) == (True, 0, None)
        assert (found.stable_end_offset, found.cluster_start_offset) == (20, 0)
        assert found.transactions_decided
        assert "orders" in (facts.topics() or ())
        assert found.topic_id == files.topic_id
        assert (found.topic_id is None) == (broker.version == "2.7.2")
        policy = facts.policy("orders")
        assert (policy.retention_ms, policy.delete_retention_ms, policy.segment_bytes) == (7_200_000, 777, 1 << 20)
        assert policy.origins["retention_ms"] == "topics.policies, entry ord.*"
        assert policy.origins["delete_retention_ms"] == "topic"
        assert policy.origins["cleanup_policy"] == "Kafka's default"
        assert (policy.compaction_strategy, policy.origins["compaction_strategy"]) == (None, "not known")
        assert (policy.producer_id_expiration_ms is None) == (broker.version == "2.7.2")
        connection = BrokerConnection(
            load_settings(
                flags={"store.url": "memory://none", CONNECTION: [broker.bootstrap]}
            ).settings.broker.connection
        )
        producers = ask_producers(connection, broker.node_id, [ORDERS])
        if broker.version == "2.7.2":
            assert producers is None
        else:
            assert producers is not None
            assert sorted(one.transaction_start_offset for one in producers.values[ORDERS]) == [-1, 20]
        (directory,) = log_dirs(connection, broker.node_id)
        assert (directory.path, directory.problem) == (str(broker.log_dirs[0]), "")
        connection.close()
        open_one.commit_transaction(60)
        # The coordinator answers before its markers are written.
        eventually(lambda: facts.confirm(files).stable_end_offset == 31)
        other = tmp_path / "other-cluster"
        other.mkdir()
        (other / "meta.properties").write_text(f"version=1\nnode.id={broker.node_id}\ncluster.id=another\n")
        with facts_of(broker, other) as wrong, pytest.raises(SettingsError, match="belongs to cluster"):  # type: ignore[attr-defined]
            wrong.refresh()
        asked = ("broker", "--log-dir", str(broker.log_dirs[0]), "--bootstrap-server", broker.bootstrap)
        reported = json_lines(run_program({}, *asked, "--json"))[0]
        (orders,) = (row for row in reported["partitions"] if row["topic"] == "orders")
        assert (orders["last_stable_offset"], orders["high_watermark"]) == (31, 31)
        shown = run_installed({}, *asked, "--producers")
        reported_producers = broker.version != "2.7.2"
        assert ("last sequence" in shown.stdout, "brokers before 2.8" in shown.stderr) == (
            reported_producers,
            not reported_producers,
        )


@dataclass(frozen=True)
class ReportedProducers:
    """The producers of a log that its broker reports (2.7.2: none), and where the snapshot lies that it writes when it stops."""

    producers: tuple[LiveProducer, ...]
    snapshot: Path

    def assert_are_those_of_the_snapshot(self) -> None:
        stored = read_snapshot(self.snapshot.read_bytes())
        assert as_reported(stored) == sorted(self.producers, key=lambda one: one.producer_id)
        assert [one.transaction_start_offset for one in self.producers if one.transaction_start_offset >= 0] == [52]


def reported_producers(broker: KafkaBroker) -> ReportedProducers:
    """Of a log with one producer without transactions, and one each whose transaction is committed, aborted and open."""
    create_topic(broker, "reported", 1 << 20)
    produce(broker, "reported", 30)
    for name, commits in (("committed", True), ("aborted", False), ("open", None)):
        producer = transactional(broker, name)
        produce(broker, "reported", 10, producer)
        if commits is not None:
            (producer.commit_transaction if commits else producer.abort_transaction)(60)
    eventually(lambda: end_offset(broker, "reported", committed=True) == 30 + 22)
    partition = TopicPartition("reported", 0)
    connection = BrokerConnection(BrokerConnectionSettings(bootstrap_servers=(broker.bootstrap,)))
    found = ask_producers(connection, broker.node_id, [partition])
    connection.close()
    snapshot = broker.log_dirs[0] / str(partition) / f"{end_offset(broker, 'reported'):020d}.snapshot"
    return ReportedProducers(() if found is None else tuple(found.values[partition]), snapshot)


def as_reported(entries: tuple[ProducerEntry, ...]) -> list[LiveProducer]:
    """A snapshot's entries as DescribeProducers returns them."""
    return [
        LiveProducer(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
        )
        for entry in sorted(entries, key=lambda entry: entry.producer_id)
    ]


def test_nothing_above_the_last_stable_offset_is_archived_and_a_broker_that_is_away_is_reported(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    create_topic(broker, "payments", 8192)
    settings = {
        "store.url": (tmp_path / "archive").as_uri(),
        "broker.log_dirs": str(broker.log_dirs[0]),
        "broker.assume_leader": "false",
        CONNECTION: broker.bootstrap,
        "broker.connection.request_timeout_s": "60",
        "topics.include": "payments",
        "run.scan_interval_s": "0.5",
    }
    produce(broker, "payments", 60)
    with Daemon(tmp_path, settings) as daemon, facts_of(broker) as watching:  # type: ignore[attr-defined]
        eventually(lambda: (daemon.archived_end("payments-0") or 0) > 0)
        open_one = transactional(broker, "payments")
        stable = end_offset(broker, "payments")
        produce(broker, "payments", 60, open_one)
        # A segment that changed a moment ago waits for another reason at first.
        eventually(lambda: "a transaction that began there" in (daemon.partitions()["payments-0"]["reason"] or ""))
        assert daemon.partitions()["payments-0"]["segments_waiting"] > 0
        assert (daemon.archived_end("payments-0") or 0) <= stable
        open_one.commit_transaction(60)
        took_s = eventually(lambda: (daemon.archived_end("payments-0") or 0) > stable)
        print(f"{broker.version}: archived {took_s:.2f} s after the transaction ended")
        assert took_s < 30
        eventually(daemon.is_settled)
        watching.refresh()
        read_ms, files = watching.state().read_ms, files_of(broker, "payments")
        assert watching.partition(files).reason is None
        reported = reported_producers(broker)
        broker.stop()
        if broker.version != "2.7.2":
            reported.assert_are_those_of_the_snapshot()
        eventually(lambda: not daemon.is_ready())
        watching.refresh()
        assert isinstance(watching.state().away, BrokerAway)
        assert watching.state().read_ms == read_ms
        assert watching.partition(files).reason == watching.state().away
        with pytest.raises(BrokerUnavailable):
            watching.confirm(files)
        assert "broker: the broker does not respond" in daemon.get("/readyz")[1]
        assert daemon.metric("broker_unreachable") == 1
        eventually(lambda: daemon.metric("broker_metadata_age_seconds") > 1)
        assert daemon.get("/healthz")[0] == 200
        broker.start()
        eventually(daemon.is_settled)

        def is_back() -> bool:
            watching.refresh()
            return watching.partition(files).reason is None

        eventually(is_back)
        assert watching.partition(files).leader_epoch >= 0
        produce(broker, "payments", 60)
        end = daemon.archived_end("payments-0") or 0
        eventually(lambda: (daemon.archived_end("payments-0") or 0) > end)
        assert daemon.metric("broker_unreachable") == 0
        assert daemon.process.stop() == 0
        events = [event["event"] for event in daemon.events()]
        assert {"broker_unreachable", "broker_reachable"} <= set(events)
