"""What a real broker's retention deletes while the store is away is archived from open descriptors, byte for byte."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sidecar.archive.keys import below
from sidecar.clock import SystemClock
from sidecar.config import load_settings
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.configured_facts import open_facts
from tests.real.daemon import eventually
from tests.real.topics import admin_of, create_topic, set_topic
from tests.retention.pinned_rig import Outage, open_deleted
from tests.runner.rig import archived_states, ranges, rolled_ranges, tools_for
from tests.servers.kafka import KafkaBroker

pytestmark = pytest.mark.real

TOPIC = "orders"


def produce(broker: KafkaBroker, count: int, topic: str = TOPIC) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(count):
        producer.produce(topic, bytes(60_000), str(number).encode(), partition=0)
        if number % 10 == 9:
            producer.flush()
    assert producer.flush(30) == 0


def test_what_retention_deletes_during_an_outage_is_archived_and_a_deleted_topics_bytes_are_let_go(
    tmp_path: Path,
) -> None:
    outage = Outage()
    soon = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}
    with ExitStack() as resources:
        broker = resources.enter_context(KafkaBroker("4.3.0", tmp_path / "broker", properties=soon))
        (log_dir,) = broker.log_dirs
        directory = log_dir / f"{TOPIC}-0"
        create_topic(broker, TOPIC, 1 << 20)
        set_topic(broker, TOPIC, {"file.delete.delay.ms": "0"})
        produce(broker, 100)
        flags = {
            "store.url": "memory://none",
            "broker.log_dirs": [log_dir],
            "broker.connection.bootstrap_servers": [broker.bootstrap],
            "broker.connection.config_max_age_s": 0,
        }
        facts = resources.enter_context(open_facts(load_settings(flags=flags).settings, SystemClock()))
        context = resources.enter_context(tools_for(log_dir, outage.store, tmp_path / "state"))
        rounds = ArchiveLoop(replace(context, facts=facts), partial(scan_log_dirs, [log_dir], TopicFilter((TOPIC,))))
        expected = rolled_ranges(log_dir, f"{TOPIC}-0")
        logs = {base_offset: (directory / f"{base_offset:020d}.log").read_bytes() for base_offset, _ in expected}
        assert len(rounds.run_once().errors) == 1
        set_topic(broker, TOPIC, {"retention.bytes": "1100000"})
        eventually(lambda: len(open_deleted(log_dir)) >= len(expected) - 2)
        outage.left = None
        assert rounds.run_once().errors == []
        (state,) = archived_states(outage.store).values()
        assert (ranges(state), state.holes) == (expected, ())
        stored = {s.base_offset: outage.store.objects[below(state.lineage.root, s.log_key)] for s in state.segments}
        assert stored == logs
        assert open_deleted(log_dir) == []
        set_topic(broker, TOPIC, {"retention.bytes": "-1"})
        produce(broker, 60)
        outage.left = 0
        assert len(rounds.run_once().errors) == 1
        admin = admin_of(broker)
        admin.delete_topics([TOPIC])[TOPIC].result(30)
        eventually(lambda: not directory.exists())
        rounds.run_once()
        assert not [path for path in Path("/proc/self/fd").iterdir() if str(directory) in str(path.resolve())]
