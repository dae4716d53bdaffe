"""A loop in this process, and what is to be seen of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sidecar.clock import SystemClock
from sidecar.config import Settings
from sidecar.engine_ports import CompactionEngines
from sidecar.http.page.rows import row_of
from sidecar.http.page.summary import summary_of
from sidecar.http.pages import status_json
from sidecar.metrics import Metrics
from sidecar.reporting import health_reporter
from sidecar.reporting.health_reporter import Health
from sidecar.reporting.status_model import StatusModel
from sidecar.rewriting.local_engine import LocalEngines
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.run_loop import RunLoop
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden

LOGS = golden("4.3.0") / "logs"
WAIT_S = 120.0


def settings_for(tmp_path: Path, **run: Any) -> Settings:
    return Settings.model_validate(
        {
            "store": {"url": str(tmp_path / "archive")},
            "broker": {"log_dirs": [LOGS], "assume_leader": True, "settle_ms": 0, "snapshot_grace_ms": 0},
            "topics": {"include": ["append-time"]},
            "run": {"state_dir": tmp_path / "state", "watch": False, "scan_interval_s": 0.05, **run},
            "http": {"bind": None},
        }
    )


def over_log_dirs(settings: Settings, *log_dirs: Path) -> Settings:
    """The same over other log dirs."""
    return settings.model_copy(update={"broker": settings.broker.model_copy(update={"log_dirs": log_dirs})})


class Loop:
    """A loop in a thread of its own, and what it tells."""

    def __init__(self, settings: Settings, engines: CompactionEngines | None = None) -> None:
        clock = SystemClock()
        self.health = Health(clock, conditions=health_reporter.conditions_at_start(settings.store.url))
        self.metrics = Metrics(clock)
        self.stop, self.wake = threading.Event(), threading.Event()
        self.status = StatusModel(clock)
        reporter = health_reporter.HealthReporter(clock, self.metrics, self.health, self.status)
        self.loop = RunLoop(settings, clock, self.metrics, reporter, self.stop, self.wake, engines or LocalEngines())
        self.thread = threading.Thread(target=self.loop.run)

    def sample(self, name: str) -> float:
        return self.metrics.registry.get_sample_value(f"tiered_sidecar_{name}") or 0.0

    def labelled(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"tiered_sidecar_{name}", labels) or 0.0

    def row(self, partition: int = 0) -> dict[str, Any]:
        rows = [row for row in status_json(self.status)["partitions"] if row["partition"] == partition]
        return rows[0] if rows else {}


def not_ready(loop: Loop) -> set[str]:
    """Conditions whose gauge is 1."""
    return {
        condition
        for condition in health_reporter.ALL_CONDITIONS
        if loop.metrics.registry.get_sample_value("tiered_sidecar_not_ready", {"condition": condition})
    }


def headline(loop: Loop) -> str:
    """What the status page says of all this."""
    figures = loop.status.figures()
    rows = [row_of(found, {}) for found in figures.partitions]
    status = {**loop.health.status(), "not_ready": loop.health.not_ready()}
    return summary_of(rows, figures, status, loop.health.awaited(), None, SystemClock().now_ms()).headline


def stop_when(condition: Callable[[], bool]) -> Callable[..., None]:
    """A `RunLoop._pause` that goes on as always, and stops the loop once something holds."""
    pause = RunLoop._pause

    def pause_or_stop(
        run_loop: RunLoop, _seconds: float, _deaf_s: float = 0.0, loop: ArchiveLoop | None = None
    ) -> None:
        pause(run_loop, 0.05, 0.0, loop)
        if condition():
            run_loop.stop.set()

    return pause_or_stop


@contextmanager
def looping(settings: Settings, engines: CompactionEngines | None = None) -> Iterator[Loop]:
    loop = Loop(settings, engines)
    loop.thread.start()
    try:
        yield loop
    finally:
        loop.stop.set()
        loop.wake.set()
        loop.thread.join(WAIT_S)
        assert not loop.thread.is_alive()


def committed(store: MemoryStore, topic: str) -> int:
    """How many commits of a topic there are."""
    return sum(f"/{topic}/" in key and "/commits/" in key for key in list(store.objects))


def eventually(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S  # noqa: TID251 - threads have no other clock
    while not condition():
        assert time.monotonic() < deadline_s  # noqa: TID251
        time.sleep(0.01)  # noqa: TID251
