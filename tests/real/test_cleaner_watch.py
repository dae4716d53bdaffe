"""A real broker whose cleaner has given a partition up: nothing of the broker alarms, the sidecar does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.real.daemon import Daemon, eventually
from tests.real.product import run_program
from tests.real.test_broker_facts import transactional
from tests.real.topics import create_topic, set_topic
from tests.servers.kafka import KafkaBroker

pytestmark = pytest.mark.real

EAGER = {"log.cleaner.backoff.ms": "300", "log.cleaner.threads": "1", "log.cleaner.dedupe.buffer.size": "2097152"}


def produce(broker: KafkaBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(120):
        producer.produce(topic, bytes(300), str(number % 20).encode())
        if number % 10 == 9:
            producer.flush()
    assert producer.flush(120) == 0


def uncleanable(broker: KafkaBroker) -> str:
    """The broker's lines about partitions that its cleaner gave up. Source: LogCleanerManager.markPartitionUncleanable."""
    return "\n".join(line for line in broker.log_text().splitlines() if "uncleanable" in line)


def spoil(directory: Path) -> None:
    """Overwrite record bytes inside a rolled segment, in place: what a failing disk does."""
    segment = sorted(directory.glob("*.log"))[1]
    with segment.open("r+b") as file:
        file.seek(61)  # behind the first batch's header
        file.write(b"\xff" * 40)


def test_a_partition_that_the_cleaner_gave_up_is_reported_and_what_it_has_to_leave_alone_is_not(tmp_path: Path) -> None:
    with KafkaBroker("3.9.1", tmp_path / "broker", properties=EAGER) as broker:
        (log_dir,) = broker.log_dirs
        for topic in ("healthy", "spoilt", "held"):
            create_topic(broker, topic, 8192)
        open_one = transactional(broker, "held")
        open_one.produce("held", b"first", b"0")
        open_one.flush()
        for topic in ("healthy", "spoilt", "held"):
            produce(broker, topic)
        spoil(log_dir / "spoilt-0")
        for topic in ("healthy", "spoilt", "held"):
            set_topic(broker, topic, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
        checkpoint = log_dir / "cleaner-offset-checkpoint"
        eventually(lambda: checkpoint.exists() and "healthy" in checkpoint.read_text())
        # What the broker itself says: once, in its log.
        eventually(lambda: "spoilt-0" in uncleanable(broker))
        assert [name for name in ("healthy-0", "held-0") if name in uncleanable(broker)] == []
        settings = {
            "store.url": (tmp_path / "archive").as_uri(),
            "broker.log_dirs": str(log_dir),
            "broker.assume_leader": "false",
            "broker.connection.bootstrap_servers": broker.bootstrap,
            "broker.cleaner_stalled_after_s": "4",
            "topics.include": "healthy",
            "run.scan_interval_s": "0.5",
        }
        with Daemon(tmp_path, settings) as daemon:
            eventually(lambda: daemon.metric("broker_cleaner_stalled") == 1)
            assert daemon.metric("broker_cleaner_stalled_seconds") >= 4
            assert daemon.metric("broker_cleaner_dirty_bytes") > 0
            reported = json.loads(daemon.get("/status")[1])["broker_cleaner"]
            assert [found["topic"] for found in reported["stalled"]] == ["spoilt"]
            assert "the broker's log cleaner makes no progress: spoilt-0" in reported["line"]
            reported_once = run_program(settings, "status")
            assert (
                "the broker's log cleaner: " in reported_once.stderr
                or "makes no progress: spoilt-0" in reported_once.stderr
            )
            # The transaction ends: the cleaner goes on there, and nothing was its fault.
            assert "held" not in checkpoint.read_text()
            open_one.commit_transaction(60)
            eventually(lambda: "held" in checkpoint.read_text())
            # A cleaner that took longer than those 4 s was rightly reported until then.
            eventually(lambda: daemon.metric("broker_cleaner_stalled") == 1)
            reported = json.loads(daemon.get("/status")[1])["broker_cleaner"]
            assert [found["topic"] for found in reported["stalled"]] == ["spoilt"]
            assert daemon.process.stop() == 0
            assert "broker_cleaner_stalled" in {event["event"] for event in daemon.events()}
        # The broker itself knows it, in one line of a log that nobody reads, and serves on.
        assert broker.process.alive
