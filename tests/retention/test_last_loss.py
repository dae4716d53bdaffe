"""How long a loss of offsets is reported."""

from __future__ import annotations

import re
from pathlib import Path

from sidecar.config import load_settings
from sidecar.metrics import Metrics
from sidecar.model import TopicPartition
from sidecar.partition.domain_events import OffsetsLost
from sidecar.runner.assembly import open_tools
from tests.fakes.manual_clock import ManualClock
from tests.golden import golden

NAME = TopicPartition("orders", 0)


def test_when_offsets_were_lost_last_outlives_the_process(tmp_path: Path) -> None:
    """The alert on a loss lasts for a day, restarts or not."""
    settings = load_settings(
        flags={
            "store.url": (tmp_path / "archive").as_uri(),
            "broker.log_dirs": [golden("4.3.0") / "logs"],
            "run.state_dir": tmp_path / "state",
        }
    ).settings
    clock = ManualClock(1_700_000_000_000)

    def shown(metrics: Metrics) -> float:
        text = metrics.exposition()[0].decode()
        (reported_s,) = re.findall(r"^tiered_sidecar_last_loss_timestamp_seconds (\S+)$", text, re.MULTILINE)
        return float(reported_s)

    with open_tools(settings, clock=clock) as context:
        assert shown(context.metrics) == 0
        context.emit(OffsetsLost(NAME, 3, 5))
    with open_tools(settings, clock=ManualClock(clock.now_ms() + 60_000)) as context:
        assert shown(context.metrics) == clock.now_ms() / 1000
        context.emit(OffsetsLost(NAME, 0, 3, is_recorded=False))
    with open_tools(settings, clock=ManualClock(clock.now_ms() + 90_000)) as context:
        assert shown(context.metrics) == clock.now_ms() / 1000 + 60
