"""What a real broker does to an idle log: its active segment goes in one step, and what was held open of it is archived then."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
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
from tests.fakes.disk_with_room import DiskWithRoom
from tests.fakes.memory_store import MemoryStore
from tests.real.daemon import eventually
from tests.real.test_held_segments import produce
from tests.real.topics import create_topic, set_topic
from tests.runner.rig import archived_states, ranges, status_of, tools_for
from tests.servers.kafka import KafkaBroker

pytestmark = pytest.mark.real

FIRST, SECOND = "first", "second"


def test_idle_active_segments_go_in_one_step_and_what_was_held_open_is_archived_and_the_rest_reported(
    tmp_path: Path,
) -> None:
    soon = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}
    with ExitStack() as resources:
        broker = resources.enter_context(KafkaBroker("4.3.0", tmp_path / "broker", properties=soon))
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
