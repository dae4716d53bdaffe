"""A live broker's archive, made by the product, restored for a fresh broker of the same version: everything is as acknowledged.

One version in the gate; `make restore-matrix` runs all of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from sidecar.archive.state import PartitionState
from sidecar.broker.cluster_view import LiveProducer, ask_producers
from sidecar.broker.connection import BrokerConnection
from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.metadata_files import read_partition_metadata
from sidecar.logformat.names import CLEANER_CHECKPOINT
from sidecar.model import TopicPartition
from tests.real.java_reading import COMMITTED, FIRST_LIFE, SECOND_LIFE, UNCOMMITTED, java_reads
from tests.real.product import json_lines, run_installed, run_program, s3_settings, store_of
from tests.real.reading_back import reads
from tests.real.restored_source import (
    ACCOUNTS,
    CODECS,
    LIVE,
    OPEN,
    TOPICS,
    TRIMMED,
    Written,
    write_everything,
)
from tests.real.stored_batches import last_data_batch, send_again
from tests.real.topics import create_topics, end_offset, set_topic, wait_for_directories, wait_until, write
from tests.runner.rig import archived_states
from tests.servers.dist import NEWEST_KAFKA
from tests.servers.kafka import KafkaBroker
from tests.servers.versitygw import VersityGateway

pytestmark = [pytest.mark.real, pytest.mark.slow]

VERSIONS = os.environ.get("RESTORE_MATRIX", NEWEST_KAFKA).split(",")
# Nothing is deleted by age; the cleaner and retention look often.
PROPERTIES = {
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.min.cleanable.ratio": "0.001",
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fresh_broker_serves_what_was_acknowledged(version: str, gateway: VersityGateway, tmp_path: Path) -> None:
    settings = {**s3_settings(gateway), "store.url": f"s3://{gateway.bucket}/{tmp_path.name}"}
    with KafkaBroker(version, tmp_path / "source", properties=PROPERTIES) as source:
        written = write_everything(source, tmp_path)
        states = archive_beside(source, settings, tmp_path)
        written.producers = producers_of(source, LIVE)
    compact = ("compact", "--archive", settings["store.url"], "--topic", ACCOUNTS, "--engine", "local", "--json")
    done = run_program(settings, *compact)
    assert done.returncode == 0, done.stderr
    target = KafkaBroker(version, tmp_path / "target", properties=PROPERTIES)
    restore_into_fresh(target, settings, written, tmp_path)
    try:
        target.start()
        if version == "2.7.2":
            make_topics(target)
        assert_live_topic(target, written, states)
        assert_open_transaction(target, written)
        trimmed = written.trimmed(states[TRIMMED].end_offset or 0)
        assert reads(target, [(TRIMMED, 0)], "read_uncommitted")[TRIMMED, 0] == trimmed
        assert_compacted_topic(target, written, states)
        assert_java_is_given_the_same(target, written, states)
        assert_retention_deletes_what_was_foretold(target, settings, tmp_path)
        assert_goes_on(target, tmp_path)
    finally:
        target.close()
    assert not list(target.log_dirs[0].glob("*-stray"))


def archive_beside(broker: KafkaBroker, settings: Mapping[str, str], scratch: Path) -> dict[str, PartitionState]:
    """Archive what the running broker leads, up to the last stable offset that it tells; the states."""
    own = {"run.state_dir": str(scratch / "state"), "broker.settle_ms": "0", "broker.snapshot_grace_ms": "0"}
    arguments = ["backfill", "--log-dir", str(broker.log_dirs[0]), "--bootstrap-server", broker.bootstrap, "--json"]
    done = run_installed({**settings, **own}, *arguments)
    for _ in range(5):
        # Each version deletes what DeleteRecords took, and 2.7.2 older snapshots after a roll: another run lists again.
        if done.returncode != 3 or ": vanished between listing and reading" not in done.stderr:
            break
        done = run_program({**settings, **own}, *arguments)
    assert done.returncode == 0, done.stderr
    with store_of(settings) as store:
        states = archived_states(store)
    return {state.lineage.topic_partition.topic: state for state in states.values()}


def producers_of(broker: KafkaBroker, topic: str) -> set[LiveProducer] | None:
    """DescribeProducers; None for a broker that does not know it."""
    partition = TopicPartition(topic, 0)
    connection = BrokerConnection(BrokerConnectionSettings(bootstrap_servers=(broker.bootstrap,), request_timeout_s=60))
    try:
        found = ask_producers(connection, broker.node_id, [partition])
    finally:
        connection.close()
    return None if found is None else set(found.values[partition])


def make_topics(broker: KafkaBroker) -> None:
    """As a person would who wants to restore them: without retention, and the compacted one compacted."""
    create_topics(broker, [NewTopic(topic, num_partitions=1, replication_factor=1) for topic in TOPICS])
    wait_for_directories(broker, [f"{topic}-0" for topic in TOPICS])
    set_topic(broker, ACCOUNTS, {"cleanup.policy": "compact"})


def restore_into_fresh(target: KafkaBroker, settings: Mapping[str, str], written: Written, scratch: Path) -> None:
    """Restore all topics for a broker of another cluster, which has never seen a record."""
    log_dir = target.log_dirs[0]
    options = ["--to", str(log_dir), "--producer-state", "keep", "--json"]
    if target.version == "2.7.2":
        log_dir.mkdir(parents=True)
        options += ["--topic-id", "none", "--leader-epochs", "flatten"]
    else:
        with target:
            make_topics(target)
            assert_cluster_tells_the_id(target, settings, scratch)
    ranges = {OPEN: ["--partition", "0", "--offset-range", f":{written.open_until}"]}
    for topic in TOPICS:
        done = run_program(settings, "restore", "--topic", topic, *options, *ranges.get(topic, ()))
        assert done.returncode == 0, done.stderr
        (row,) = json_lines(done)[0]["partitions"]
        assert (row["state"], row["leader_epochs"], row["producer_state"]) == ("restored", "flatten", "keep")
        assert row["deleted_before_offset"] == (written.deleted_before_offset if topic == TRIMMED else None)
        assert row["open_transactions"] == ([written.open_since] if topic == OPEN else [])
    entries = read_offset_checkpoint((log_dir / CLEANER_CHECKPOINT).read_bytes())
    # Only the compacted one lacks offsets. All of it is dirty to this broker's cleaner.
    assert {partition.topic: offset for partition, offset in entries.items() if offset == 0} == {ACCOUNTS: 0}


def assert_cluster_tells_the_id(target: KafkaBroker, settings: Mapping[str, str], scratch: Path) -> None:
    """The id and the dangers of another cluster are known without its directory, from any running broker of it."""
    empty = scratch / "another-disk"
    empty.mkdir()
    arguments = ["restore", "--topic", LIVE, "--to", str(empty), "--dry-run", "--json"]
    assert run_program(settings, *arguments).returncode == 2
    done = run_program(settings, *arguments, "--bootstrap-server", target.bootstrap)
    assert done.returncode == 0, done.stderr
    (row,) = json_lines(done)[0]["partitions"]
    metadata = target.log_dirs[0] / f"{LIVE}-0" / "partition.metadata"
    assert row["topic_id"] == read_partition_metadata(metadata.read_bytes())
    assert (row["leader_epochs"], row["producer_state"]) == ("flatten", "drop")
    refused = run_program(settings, *arguments, "--bootstrap-server", target.bootstrap, "--leader-epochs", "keep")
    assert refused.returncode == 2
    assert "belongs to cluster" in refused.stderr + refused.stdout


def assert_live_topic(broker: KafkaBroker, written: Written, states: Mapping[str, PartitionState]) -> None:
    """librdkafka at both isolation levels, a retried batch, and the producers."""
    end = states[LIVE].end_offset or 0
    assert end > max(read.offset for read in written.acknowledged[LIVE])
    everything, committed = written.live(end, committed=False), written.live(end, committed=True)
    assert len(everything) - len(committed) == 140
    assert reads(broker, [(LIVE, 0)], "read_uncommitted")[LIVE, 0] == everything
    assert reads(broker, [(LIVE, 0)], "read_committed")[LIVE, 0] == committed
    first_producer = written.batches[0].producer_id
    retried = last_data_batch([batch for batch in written.batches if batch.last_offset < end], first_producer)
    answer = send_again(broker.port, LIVE, 0, retried)
    assert (answer.error_code, answer.base_offset) == (0, retried.base_offset)
    assert end_offset(broker, LIVE) == end_offset(broker, LIVE, committed=True) == end
    if written.producers is None:
        assert broker.version == "2.7.2"
        return
    # The last one wrote above the archive's end too.
    filler = written.batches[-1].producer_id
    expected = {producer for producer in written.producers if producer.producer_id != filler}
    assert {producer for producer in producers_of(broker, LIVE) or () if producer.producer_id != filler} == expected
    assert len(expected) == 2 * len(CODECS) + 3


def assert_open_transaction(broker: KafkaBroker, written: Written) -> None:
    """It was open at the end of the range that was restored: it stays open, and holds the last stable offset."""
    assert end_offset(broker, OPEN, committed=True) == written.open_since
    acknowledged = written.acknowledged[OPEN]
    read = reads(broker, [(OPEN, 0)], "read_uncommitted")[OPEN, 0]
    assert read == acknowledged[: len(read)]
    assert read[-1].offset >= written.open_until - 1
    before = [read for read in acknowledged if read.offset < written.open_since]
    assert reads(broker, [(OPEN, 0)], "read_committed")[OPEN, 0] == before
    producers = producers_of(broker, OPEN)
    if producers is not None:
        assert {found.transaction_start_offset for found in producers} == {-1, written.open_since}


def assert_compacted_topic(broker: KafkaBroker, written: Written, states: Mapping[str, PartitionState]) -> None:
    """Per key the last committed record, as compaction promises; also after the broker's own cleaner has been through."""
    end = states[ACCOUNTS].end_offset or 0
    expected = written.accounts(end)
    assert 20 <= len(expected) < 80
    assert reads(broker, [(ACCOUNTS, 0)], "read_committed")[ACCOUNTS, 0] == expected
    assert reads(broker, [(ACCOUNTS, 0)], "read_uncommitted")[ACCOUNTS, 0] == expected
    path, partition = broker.log_dirs[0] / CLEANER_CHECKPOINT, TopicPartition(ACCOUNTS, 0)
    wait_until("the cleaner has been through", lambda: read_offset_checkpoint(path.read_bytes()).get(partition) == end)
    assert "Uncleanable" not in broker.log_text()


def assert_java_is_given_the_same(broker: KafkaBroker, written: Written, states: Mapping[str, PartitionState]) -> None:
    """Also a group that was restarted in the middle: it goes on where it committed, with a leader epoch or without."""
    ends = {topic: states[topic].end_offset or 0 for topic in (LIVE, ACCOUNTS)}
    found = java_reads(broker, *ends)
    everything, accounts = written.live(ends[LIVE], committed=False), written.accounts(ends[ACCOUNTS])
    assert found[UNCOMMITTED, LIVE] == everything
    assert found[COMMITTED, LIVE] == written.live(ends[LIVE], committed=True)
    assert found[UNCOMMITTED, ACCOUNTS] == found[COMMITTED, ACCOUNTS] == accounts
    for topic, expected in ((LIVE, everything), (ACCOUNTS, accounts)):
        assert len(expected) // 2 <= len(found[FIRST_LIFE, topic]) < len(expected), topic
        assert found[FIRST_LIFE, topic] + found[SECOND_LIFE, topic] == expected, topic


def assert_retention_deletes_what_was_foretold(broker: KafkaBroker, settings: Mapping[str, str], scratch: Path) -> None:
    """By size, since that needs no clock: what a dry run says of the topic as it is now, the broker does."""
    set_topic(broker, LIVE, {"retention.bytes": "50000"})
    arguments = ["restore", "--topic", LIVE, "--to", str(scratch / "planned"), "--dry-run", "--json"]
    done = run_program(settings, *arguments, "--bootstrap-server", broker.bootstrap)
    assert done.returncode == 0, done.stderr
    (row,) = json_lines(done)[0]["partitions"]
    assert 0 < row["retention_deletes_before_offset"] < row["end_offset"]
    directory = broker.log_dirs[0] / f"{LIVE}-0"

    def first_base_offset() -> int:
        return min(int(path.stem) for path in directory.glob("*.log"))

    wait_until("retention has deleted", lambda: first_base_offset() >= row["retention_deletes_before_offset"])
    assert first_base_offset() == row["retention_deletes_before_offset"]


def assert_goes_on(broker: KafkaBroker, scratch: Path) -> None:
    """New records follow, and are stable."""
    end = end_offset(broker, LIVE)
    write(broker, f"producer n\nsend n {LIVE} 0 5", scratch)
    assert end_offset(broker, LIVE) == end_offset(broker, LIVE, committed=True) == end + 5
