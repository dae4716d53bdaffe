"""Changed settings are applied as a whole or not at all; a rejected change is reported, and the old settings stay in effect."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
import structlog

from sidecar import reload
from sidecar.config import Settings
from sidecar.config.changes import SettingsSource
from sidecar.config.loading import LoadedSettings, load_settings
from sidecar.doctor.machine import memory_needed_bytes
from sidecar.host import limits
from sidecar.http.page.rendering import StatusPage
from sidecar.metrics import Metrics
from sidecar.reload import SettingsReload
from sidecar.reporting.health_reporter import Health
from sidecar.reporting.status_model import StatusModel
from tests.fakes.manual_clock import ManualClock


class Operator:
    """Edits a settings file beside a process that watches it."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "settings.yaml"
        self.write(workers=2)
        self.clock = ManualClock(1_700_000_000_000)
        self.health, self.metrics = Health(self.clock), Metrics(self.clock)
        self.adopted: list[Settings] = []
        self.logged: list[LoadedSettings] = []
        source = SettingsSource(self.file, self.read, self.logged.append)
        self.round_is_over = threading.Event()
        self.round_is_over.set()
        self.reload = SettingsReload(source, self.adopt, self.metrics, self.health, self.clock)

    def adopt(self, settings: Settings) -> threading.Event:
        self.adopted.append(settings)
        return self.round_is_over

    def read(self) -> LoadedSettings:
        return load_settings(config_file=self.file)

    def write(self, **run: Any) -> None:
        self.write_text(f"store: {{url: {self.file.parent}/archive}}\nrun: {run}\n".replace("'", ""))

    def write_text(self, text: str) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(text)
        new.rename(self.file)

    def count(self, result: str) -> float:
        found = self.metrics.registry.get_sample_value("tiered_sidecar_config_reloads_total", {"result": result})
        assert found is not None
        return found

    def gauge(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"tiered_sidecar_{name}")

    @property
    def is_stale(self) -> bool:
        return bool(self.gauge("config_stale"))

    @property
    def shown(self) -> Any:
        return self.health.status()["config"]


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def test_a_file_that_nobody_touches_is_not_read_again(operator: Operator) -> None:
    for _ in range(5):
        operator.reload.look()
    assert (operator.adopted, operator.logged) == ([], [])
    assert (operator.shown["generation"], operator.shown["stale"]) == (1, False)


def test_a_change_is_read_when_the_file_has_been_left_alone_for_a_look(operator: Operator) -> None:
    before = operator.shown["fingerprint"]
    operator.write(workers=5)
    operator.reload.look()
    assert operator.adopted == []
    operator.write(workers=6)
    operator.reload.look()
    assert operator.adopted == []
    operator.reload.look()
    assert [settings.run.workers for settings in operator.adopted] == [6]
    assert len(operator.logged) == 1
    assert operator.count("applied") == 1
    assert operator.shown["generation"] == 2
    assert operator.shown["fingerprint"] != before


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("run: {workers: 7, state_dir: /elsewhere}", "refused"),
        ("run: {workers: 0}", "invalid"),
        ("run: {worker: 7}", "invalid"),
        ("run: [", "invalid"),
    ],
)
def test_what_cannot_be_taken_over_changes_nothing_and_is_reported_until_it_is_corrected(
    text: str, result: str, operator: Operator
) -> None:
    before = operator.shown
    operator.write_text(f"store: {{url: {operator.file.parent}/archive}}\n{text}\n")
    with structlog.testing.capture_logs() as logs:
        for _ in range(4):
            operator.reload.look()
    (reported,) = [entry for entry in logs if entry["event"] == "config_reload_refused"]
    assert reported["log_level"] == "error"
    if result == "refused":
        assert reported["settings"] == ("run.state_dir",)
        assert "restart to apply" in reported["remedy"]
    assert (operator.adopted, operator.logged) == ([], [])
    assert operator.count(result) == 1
    assert operator.is_stale
    assert operator.shown["stale"]
    assert operator.shown["refused"]["reason"]
    page = StatusPage(StatusModel(), operator.health, ManualClock(), 60.0).render("")[1].decode()
    assert "the changed settings were rejected, the old ones stay in effect: " in page
    assert (operator.shown["fingerprint"], operator.shown["generation"]) == (before["fingerprint"], 1)
    operator.write(workers=2)
    operator.reload.look()
    operator.reload.look()
    assert operator.count("unchanged") == 1
    assert not operator.is_stale
    assert operator.shown == before


def test_a_file_that_is_gone_is_refused_and_welcome_when_it_is_back(operator: Operator) -> None:
    operator.file.unlink()
    operator.reload.look()
    operator.reload.look()
    assert operator.is_stale
    assert "cannot read settings file" in operator.shown["refused"]["reason"]
    operator.write(workers=9)
    operator.reload.look()
    operator.reload.look()
    assert [settings.run.workers for settings in operator.adopted] == [9]
    assert not operator.is_stale


def test_who_asks_is_answered_at_once_and_also_if_nothing_has_changed(operator: Operator) -> None:
    operator.reload.look(asked=True)
    assert operator.count("unchanged") == 1
    operator.write(workers=5)
    operator.reload.look(asked=True)
    assert [settings.run.workers for settings in operator.adopted] == [5]
    operator.reload.look()
    assert operator.count("applied") == 1


def test_what_waits_for_the_end_of_a_round_is_pending_and_not_applied(operator: Operator) -> None:
    before = operator.shown
    operator.round_is_over.clear()
    operator.write(workers=5)
    operator.reload.look(asked=True)
    assert operator.shown["pending"]["fingerprint"] != before["fingerprint"]
    assert {**operator.shown, "pending": None} == before
    assert operator.gauge("config_pending") == 1
    assert operator.count("applied") == 0
    # Refused meanwhile: that stays so when what was handed over before holds.
    operator.write(workers=0)
    operator.reload.look(asked=True)
    operator.round_is_over.set()
    operator.reload.look()
    assert (operator.count("applied"), operator.count("invalid")) == (1, 1)
    assert (operator.gauge("config_pending"), operator.shown["pending"], operator.shown["generation"]) == (0, None, 2)
    assert operator.is_stale


def test_what_is_taken_back_before_it_holds_is_handed_over_too(operator: Operator) -> None:
    operator.round_is_over.clear()
    for workers in (5, 2):
        operator.write(workers=workers)
        operator.reload.look(asked=True)
    assert [settings.run.workers for settings in operator.adopted] == [5, 2]


def test_compaction_is_not_begun_in_a_container_that_is_too_small_for_it(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "memory_limit_bytes", lambda: 1 << 30)
    text = f"store: {{url: {operator.file.parent}/archive}}\ncompaction: {{topics: [orders]}}\n"
    operator.write_text(text)
    operator.reload.look(asked=True)
    assert operator.adopted == []
    assert operator.count("refused") == 1
    reason = operator.shown["refused"]["reason"]
    assert "this container has 1024 MiB: raise its limit" in reason
    # The chart changes no broker's pod.
    assert "and apply the recipe to the brokers again" in reason
    # Less memory than before is never refused, and neither is anything where there is enough.
    operator.write(workers=5)
    operator.reload.look(asked=True)
    monkeypatch.setattr(reload, "memory_limit_bytes", lambda: 64 << 30)
    operator.write_text(text)
    operator.reload.look(asked=True)
    assert len(operator.adopted) == 2


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        (["200000 100000\n"], 2),
        (["150000 100000\n"], 2),
        (["1000 100000\n"], 1),
        (["6400000 100000\n"], 32),
        (["max 100000\n"], 32),
        (["what\n"], 32),
        (["200000\n", "100000\n"], 2),
        (["-1\n", "100000\n"], 32),
    ],
)
def test_a_container_has_as_many_processors_as_its_quota(
    quota: list[str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tuple(tmp_path / str(number) for number in range(len(quota)))
    for file, text in zip(files, quota, strict=True):
        file.write_text(text)
    monkeypatch.setattr(limits, "CPU_FILES", ((tmp_path / "none",), files))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)))
    assert limits.processors() == expected


def test_a_large_node_is_no_reason_to_refuse_compaction_in_a_small_container(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`local[*]` is as many workers as the JVM counts processors, and that are those of the quota."""
    quota = tmp_path / "cpu.max"
    quota.write_text("200000 100000\n")
    monkeypatch.setattr(limits, "CPU_FILES", ((quota,),))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)))
    store = f"store: {{url: {operator.file.parent}/archive}}"
    operator.write_text(f"{store}\ncompaction: {{topics: [orders]}}\nspark: {{master: 'local[*]'}}\n")
    needed = memory_needed_bytes(load_settings(config_file=operator.file).settings, 2)
    monkeypatch.setattr(reload, "memory_limit_bytes", lambda: needed)
    operator.reload.look(asked=True)
    assert len(operator.adopted) == 1, operator.shown
