"""What a real broker does to an idle log: its active segment goes when it was forecast to, and that is told."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sidecar.clock import SystemClock
from sidecar.config import load_settings
from sidecar.discovery.scan import scan_log_dirs
from sidecar.discovery.topic_filter import TopicFilter
from sidecar.http.status_json import board_json
from sidecar.pipeline.configured_facts import open_facts
from sidecar.pipeline.rounds import Rounds
from tests.fakes.memory_store import MemoryStore
from tests.pipeline.rig import tools_for
from tests.real.daemon import eventually
from tests.real.test_held_segments import TOPIC, produce
from tests.real.topics import create_topic, set_topic
from tests.servers.kafka import KafkaBroker

pytestmark = pytest.mark.real


def test_an_active_segment_goes_in_one_step_when_it_was_forecast_to_and_is_told(tmp_path: Path) -> None:
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
        create_topic(broker, TOPIC, 1 << 20)
        clock = SystemClock()
        facts = resources.enter_context(open_facts(load_settings(flags=flags).settings, clock))
        tools = resources.enter_context(tools_for(log_dir, MemoryStore(), tmp_path / "state"))
        tools = replace(tools, facts=facts, clock=clock)
        rounds = Rounds(tools, partial(scan_log_dirs, [log_dir], TopicFilter((TOPIC,))))

        def look() -> dict[str, Any]:
            assert rounds.run_once().errors == []
            (row,) = board_json(tools.board)["partitions"]
            assert isinstance(row, dict)
            return row

        produce(broker, 5)
        look()
        set_topic(broker, TOPIC, {"retention.ms": "20000"})
        # The last record's time counts: on a slow machine it would be all over before the first look at the new retention.
        produce(broker, 5)
        rows: list[dict[str, Any]] = []

        def is_threatened() -> bool:
            rows.append(look())
            return rows[-1]["active_deadline_ms"] is not None

        eventually(is_threatened)
        row = rows[-1]
        assert (row["state"], row["segments_waiting"]) == ("at_risk", 0)
        # A look between the broker's roll and its deletion archives all of it, so none is taken meanwhile.
        active = Path(log_dir, f"{TOPIC}-0", f"{0:020d}.log")
        eventually(lambda: not active.exists())
        with capture_logs() as logs:

            def lost() -> list[tuple[int, int]]:
                return [(line["from_offset"], line["to_offset"]) for line in logs if line["event"] == "offsets_lost"]

            # An answer that is older than the listing is asked for once more before anything is told.
            eventually(lambda: look()["active_deadline_ms"] is None and lost() != [])
            look()
        assert clock.now_ms() >= row["active_deadline_ms"]
        assert lost() == [(0, 10)]
