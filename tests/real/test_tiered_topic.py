"""`run` next to a topic that the broker tiers: most of what is archived is in no local file any more."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from tests.real.daemon import Daemon, eventually
from tests.real.product import json_lines, run_program
from tests.real.tiered_storage import VERSION, tiered_segments, tiering_properties
from tests.real.topics import admin_of, create_topics, set_topic, wait_for_directories
from tests.servers.kafka import KafkaBroker

pytestmark = pytest.mark.real

TOPIC, PARTITION = "tiered", "tiered-0"
CONFIG = {"segment.bytes": str(1 << 20), "remote.storage.enable": "true", "local.retention.bytes": "1200000"}


def produce(broker: KafkaBroker, count: int) -> None:
    """Records of which ten fill a segment at least."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(count):
        producer.produce(TOPIC, bytes(60_000), str(number).encode(), partition=0)
    assert producer.flush(60) == 0


def test_a_deletion_is_noted_where_only_the_brokers_tier_has_the_records(tmp_path: Path) -> None:
    archive = (tmp_path / "archive").as_uri()
    with KafkaBroker(VERSION, tmp_path / "broker", properties=tiering_properties(tmp_path / "tier")) as broker:
        (log_dir,) = broker.log_dirs
        create_topics(broker, [NewTopic(TOPIC, 1, 1, config=CONFIG)])
        wait_for_directories(broker, [PARTITION])
        settings = {
            "store.url": archive,
            "broker.log_dirs": str(log_dir),
            "broker.assume_leader": "false",
            "broker.connection.bootstrap_servers": broker.bootstrap,
            "topics.include": TOPIC,
            "run.scan_interval_s": "0.2",
        }

        def local_start() -> int:
            return min(int(path.stem) for path in (log_dir / PARTITION).glob("*.log"))

        def deleted_before() -> int | None:
            rows = json_lines(run_program(settings, "status", "--archive", archive, "--json"))
            return next(row["deleted_before_offset"] for row in rows if row["kind"] == "partition_status")

        def inside_a_segment() -> int:
            """The producer decides how many records fill a segment: a fixed offset may be where one begins."""
            bases = sorted(tiered_segments(tmp_path / "tier", PARTITION))
            return next(end - 1 for base, end in pairwise(bases) if end - base > 1)

        def is_noted() -> bool:
            produce(broker, 10)  # A deletion is noted with the next segment.
            return deleted_before() == start_offset

        admin, whole = admin_of(broker), TopicPartition(TOPIC, 0)
        with Daemon(tmp_path, settings) as daemon:
            produce(broker, 100)
            eventually(lambda: (daemon.archived_end(PARTITION) or 0) >= 60 and local_start() > 50)
            start_offset = inside_a_segment()
            (raised,) = admin.delete_records([TopicPartition(TOPIC, 0, start_offset)]).values()
            assert raised.result(30).low_watermark == start_offset
            eventually(is_noted)
            # Retention of the tier goes by whole segments: no record is deleted on purpose by it.
            set_topic(broker, TOPIC, {"retention.bytes": "2500000"})
            eventually(
                lambda: admin.list_offsets({whole: OffsetSpec.earliest()})[whole].result(30).offset > start_offset
            )
            archived = daemon.archived_end(PARTITION) or 0
            produce(broker, 40)
            eventually(lambda: (daemon.archived_end(PARTITION) or 0) > archived)
            assert deleted_before() == start_offset
            assert daemon.metric("lost_offsets_total") == 0
