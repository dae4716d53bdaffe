"""What a real broker's retention deletes while it is held open, byte for byte: segments while the store is away, and active ones.

The active segment of an idle log goes in one step: what was held open of it is archived then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from structlog.testing import capture_logs

from sidecar.archive.keys import below
from sidecar.clock import SystemClock
from sidecar.config import load_settings
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.host.pinned_files import PinnedFiles
from sidecar.http.pages import status_json
from sidecar.partition.wait_reason import Wait, render
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.configured_facts import open_facts
from tests.descriptors import open_below
from tests.fakes.disk_with_room import DiskWithRoom
from tests.fakes.memory_store import MemoryStore
from tests.real.daemon import eventually
from tests.real.topics import admin_of, create_topic, set_topic
from tests.retention.pinned_rig import Outage, open_deleted
from tests.runner.rig import archived_states, ranges, rolled_ranges, status_of, tools_for
from tests.servers.kafka import KafkaBroker

pytestmark = pytest.mark.real

TOPIC, FIRST, SECOND = "orders", "first", "second"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    soon = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}
    with KafkaBroker("4.3.0", tmp_path_factory.mktemp("broker"), properties=soon) as started:
        yield started


def produce(broker: KafkaBroker, count: int, topic: str = TOPIC) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(count):
        producer.produce(topic, bytes(60_000), str(number).encode(), partition=0)
        if number % 10 == 9:
            producer.flush()
    assert producer.flush(30) == 0


def test_what_retention_deletes_during_an_outage_is_archived_and_a_deleted_topics_bytes_are_let_go(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    outage = Outage()
    with ExitStack() as resources:
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
        assert open_below(log_dir) == []  # A broker renames the directory before it deletes the files.


def test_idle_active_segments_go_in_one_step_and_what_was_held_open_is_archived_and_the_rest_reported(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    with ExitStack() as resources:
        (log_dir,) = broker.log_dirs
        flags = {
            "store.url": "memory://none",
            "broker.log_dirs": [log_dir],
            "broker.connection.bootstrap_servers": [broker.bootstrap],
            "broker.connection.config_max_age_s": 0,
        }
        clock, store = SystemClock(), MemoryStore()
        facts = resources.enter_context(open_facts(load_settings(flags=flags).settings, clock))
        context = resources.enter_context(tools_for(log_dir, store, tmp_path / "state"))
        held = PinnedFiles(limit=1, files=DiskWithRoom())
        resources.callback(held.release)
        context = replace(context, facts=facts, clock=clock, pinned=held)
        rounds = ArchiveLoop(context, partial(scan_log_dirs, [log_dir], TopicFilter((FIRST, SECOND))))

        def look() -> list[dict[str, Any]]:
            assert rounds.run_once().errors == []
            found: list[dict[str, Any]] = status_json(status_of(context))["partitions"]
            return found

        for topic in (FIRST, SECOND):
            create_topic(broker, topic, 1 << 20)
            produce(broker, 5, topic)
            look()
        set_topic(broker, FIRST, {"retention.ms": "40000"})
        set_topic(broker, SECOND, {"retention.ms": "60000"})
        # The last record's time counts: there is time enough for looks, however slow the machine.
        for topic in (FIRST, SECOND):
            produce(broker, 5, topic)
        seen: list[dict[str, Any]] = []

        def is_forecast() -> bool:
            seen[:] = look()
            return (seen[0]["reason"], seen[1]["state"]) == (render(Wait.ACTIVE_SEGMENT_PINNED), "at_risk")

        eventually(is_forecast)
        assert (seen[0]["state"], seen[0]["active_deadline_ms"]) == ("nothing_rolled", None)
        actives = {topic: Path(log_dir, f"{topic}-0", f"{0:020d}.log") for topic in (FIRST, SECOND)}
        content = actives[FIRST].read_bytes()
        with capture_logs() as logs:
            # A look between the broker's roll and its deletion would archive the other, too, so none is taken meanwhile.
            eventually(lambda: not any(active.exists() for active in actives.values()))
            assert clock.now_ms() >= seen[1]["active_deadline_ms"]

            def lost() -> list[tuple[str, int, int]]:
                reported = (line for line in logs if line["event"] == "offsets_lost")
                return [(line["partition"], line["from_offset"], line["to_offset"]) for line in reported]

            # An answer that is older than the listing is asked for once more before anything is reported.
            eventually(lambda: bool(look()) and f"{FIRST}-0" in archived_states(store) and lost() != [])
            look()
        assert lost() == [(f"{SECOND}-0", 0, 10)]
    states = archived_states(store)
    assert {name: ranges(state) for name, state in states.items() if state.segments} == {f"{FIRST}-0": [(0, 10)]}
    state = states[f"{FIRST}-0"]
    assert state.segments[0].snapshot.origin == "broker"
    assert store.objects[below(state.lineage.root, state.segments[0].log_key)] == content
