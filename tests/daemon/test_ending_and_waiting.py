"""What ends the process and with which code, and what is waited for instead."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Collection
from pathlib import Path

import pytest
import structlog

from sidecar import daemon, reload
from sidecar.archive.keys import below
from sidecar.discovery.scan import Scan
from sidecar.errors import OutcomeUnknown, SettingsError, StoreError, StoreUnavailable, StoreUnsafe
from sidecar.metrics import Metrics
from sidecar.reporting import health_reporter
from sidecar.reporting.health_reporter import Health
from sidecar.runner import run_loop
from sidecar.runner.checks import Checks
from sidecar.runner.run_loop import RunLoop
from tests.daemon.looping import LOGS, WAIT_S, eventually, headline, looping, not_ready, over_log_dirs, settings_for
from tests.descriptors import open_below
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import archived_states, copy_partitions, set_aside_last


def test_a_fault_of_our_own_ends_the_process_with_1_and_says_what_it_was(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: Checks, *_arguments: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Checks, "_look", fail)
    with structlog.testing.capture_logs() as logs:
        assert daemon.run(settings_for(tmp_path)) == 1
    assert_crashed(logs)


def assert_crashed(logs: list[structlog.typing.EventDict]) -> None:
    """The fault is in the log, with its traceback."""
    (crash,) = [entry for entry in logs if entry["event"] == "crashed"]
    assert crash["log_level"] == "critical"
    assert isinstance(crash["exc_info"], ZeroDivisionError)


def test_a_fault_that_ends_the_loop_while_files_are_pinned_gives_all_of_them_back(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned: list[list[str]] = []
    looked, uploading, failed = Checks._look, threading.Event(), threading.Event()

    def look(checks: Checks, scan: Scan, doubted: Collection[Path]) -> object:
        if not uploading.is_set():
            return looked(checks, scan, doubted)
        pinned.append(open_below(LOGS.resolve()))
        failed.set()
        raise ZeroDivisionError("a bug")

    def hang(operation: str, key: str) -> None:
        if operation == "upload" and "_probe" not in key:
            uploading.set()
            failed.wait(WAIT_S)

    store.before = hang
    monkeypatch.setattr(Checks, "_look", look)
    with structlog.testing.capture_logs() as logs:
        assert daemon.run(settings_for(tmp_path, scan_interval_s=1)) == 1
    assert_crashed(logs)
    (before,) = pinned
    assert before
    assert open_below(LOGS.resolve()) == []
    for state in archived_states(store).values():  # What was under way is committed whole, or not at all.
        assert all(below(state.lineage.root, segment.log_key) in store.objects for segment in state.segments)


def test_a_fault_in_the_thread_of_a_transfer_is_not_passed_over_either(tmp_path: Path, store: MemoryStore) -> None:
    def fail(operation: str, key: str) -> None:
        if operation == "upload" and "_probe" not in key:
            raise ZeroDivisionError("a bug")

    store.before = fail
    with structlog.testing.capture_logs() as logs:
        assert daemon.run(settings_for(tmp_path)) == 1
    assert "crashed" in [entry["event"] for entry in logs]


def test_settings_that_can_never_work_end_the_process(tmp_path: Path, store: MemoryStore) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "meta.properties").write_text("version=1\ncluster.id=AnotherClustersIdAAAAA\nnode.id=1\n")
    settings = over_log_dirs(settings_for(tmp_path), LOGS, tmp_path / "logs")
    with pytest.raises(SettingsError, match="different brokers or clusters"):
        daemon.run(settings)


def test_log_dirs_that_the_broker_formats_later_are_waited_for(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_loop, "START_WAIT_S_FIRST", 0.01)
    with looping(over_log_dirs(settings_for(tmp_path), tmp_path / "logs")) as loop:
        eventually(lambda: "does not exist" in loop.health.not_ready().get("log_dirs", ""))
        assert "not checked" in loop.health.not_ready()["store"]
        copy_partitions(tmp_path, "append-time-0")
        eventually(lambda: not loop.health.not_ready() and loop.row().get("segments_waiting") == 0)
    assert store.objects


def test_a_log_dir_whose_disk_was_unmounted_is_reported_and_hides_nothing_else(
    tmp_path: Path, store: MemoryStore
) -> None:
    log_dir = copy_partitions(tmp_path, "append-time-0")
    (tmp_path / "other").mkdir()
    other = copy_partitions(tmp_path / "other", "orders-0")
    (other / "meta.properties").rename(log_dir / "meta.properties")
    settings = over_log_dirs(settings_for(tmp_path), log_dir, other)
    with looping(settings) as loop:
        eventually(lambda: not loop.health.not_ready())
        other.rename(tmp_path / "unmounted")
        other.mkdir()
        eventually(lambda: "mount its disk" in loop.health.not_ready().get("log_dirs", ""))
        assert loop.row()["error"] is None


def test_a_log_dir_that_vanishes_ends_nothing_and_is_missed_until_it_is_back(
    tmp_path: Path, store: MemoryStore
) -> None:
    log_dir = copy_partitions(tmp_path, "append-time-0")
    (tmp_path / "other").mkdir()
    other = copy_partitions(tmp_path / "other", "orders-0")
    (other / "meta.properties").rename(log_dir / "meta.properties")
    settings = over_log_dirs(settings_for(tmp_path), log_dir, other)
    stalled_after_s = settings.broker.model_copy(
        update={"cleaner_stalled_after_s": 0.3}
    )  # So that it is looked at often.
    set_aside_last(log_dir / "append-time-0", tmp_path / "aside")
    with looping(settings.model_copy(update={"broker": stalled_after_s})) as loop:
        eventually(lambda: not loop.health.not_ready())
        other.rename(tmp_path / "away")
        eventually(lambda: "log_dirs" in loop.health.not_ready())
        time.sleep(0.5)  # noqa: TID251 - the watch over the cleaner looks, too
        before = sum("/append-time/" in key and "/commits/" in key for key in list(store.objects))
        for file in (tmp_path / "aside").iterdir():
            file.rename(log_dir / "append-time-0" / file.name)
        loop.wake.set()
        eventually(lambda: sum("/append-time/" in key and "/commits/" in key for key in list(store.objects)) > before)
        (tmp_path / "away").rename(other)
        eventually(lambda: not loop.health.not_ready())


def test_with_nobody_to_say_who_leads_nothing_is_well(tmp_path: Path, store: MemoryStore) -> None:
    settings = settings_for(tmp_path)
    alone = settings.model_copy(update={"broker": settings.broker.model_copy(update={"assume_leader": False})})
    with looping(alone) as loop:
        loop.metrics.watch_readiness(loop.health.not_ready, health_reporter.ALL_CONDITIONS)
        eventually(lambda: "first_check" not in loop.health.not_ready())
        assert "--assume-leader" in loop.health.not_ready()["leadership"]
        assert not_ready(loop) == {"leadership"}
        assert "All is well" not in headline(loop)


def test_patterns_that_match_no_topic_are_reported_until_they_match_one(tmp_path: Path, store: MemoryStore) -> None:
    settings = settings_for(tmp_path)
    slip = settings.model_copy(update={"topics": settings.topics.model_copy(update={"include": ("order",)})})
    with structlog.testing.capture_logs() as logs, looping(settings) as loop:
        loop.metrics.watch_readiness(loop.health.not_ready, health_reporter.ALL_CONDITIONS)
        eventually(lambda: not loop.health.not_ready())
        loop.loop.adopt(slip)
        # After the first round there may be no word of topics for a moment yet.
        eventually(lambda: "append-time" in loop.health.status().get("topics", {}).get("nothing_chosen", ""))
        # Without a broker to ask nobody knows whether another broker has the topic.
        assert not loop.health.not_ready()
        # What was being archived is shown until its task ends.
        nothing = "Nothing to do: of the topics here no topic matches; there are: append-time"
        eventually(lambda: headline(loop).startswith(nothing))
        loop.loop.adopt(settings)
        eventually(lambda: not loop.health.status()["topics"]["nothing_chosen"])
        eventually(lambda: headline(loop).startswith("All is well"))
    assert [entry["log_level"] for entry in logs if entry["event"] == "no_topic_selected"] == ["warning"]


def test_a_store_that_is_not_safe_is_not_waited_for(tmp_path: Path, store: MemoryStore) -> None:
    store.ignore_if_none_match = True
    with pytest.raises(StoreUnsafe, match="create-only put"):
        daemon.run(settings_for(tmp_path))


def test_what_a_start_has_learned_is_reported_once(tmp_path: Path, store: MemoryStore) -> None:
    reported: list[int] = []

    def settled() -> None:
        eventually(lambda: archived_states(store) != {})  # What the first check has found may still be uploading.
        reported.append(len(archived_states(store)))
        threading.Timer(3 * daemon.TICK_S, signal.raise_signal, (signal.SIGTERM,)).start()

    assert daemon.run(settings_for(tmp_path), settled=settled) == 0
    assert reported == [len(archived_states(store))]
    assert reported > [0]


@pytest.mark.parametrize(
    ("error", "operation"),
    [
        (StoreUnavailable("not yet"), ""),
        (StoreUnavailable("not yet"), "put_if_absent"),
        (OutcomeUnknown("not yet"), ""),
    ],
)
def test_a_store_that_comes_later_is_waited_for(
    error: StoreError, operation: str, tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_loop, "START_WAIT_S_FIRST", 0.01)
    is_there = threading.Event()

    def refuse(asked: str, _key: str) -> None:
        if not is_there.is_set() and asked == (operation or asked):
            raise error

    store.before = refuse
    with looping(settings_for(tmp_path)) as loop:
        eventually(lambda: "not yet" in loop.health.not_ready().get("store", ""))
        assert set(loop.health.not_ready()) == {"store", "first_check"}
        assert loop.status.figures().archive == str(tmp_path / "archive")
        assert loop.thread.is_alive()
        assert "single_writer" not in loop.health.not_ready()["store"]
        is_there.set()
        eventually(lambda: not loop.health.not_ready())
        assert not [key for key in store.objects if key.startswith("_probe/")]


def test_a_queue_that_is_full_is_gone_on_with_at_once(tmp_path: Path, store: MemoryStore) -> None:
    with looping(settings_for(tmp_path, max_queue=1, scan_interval_s=3000.0)) as loop:
        eventually(lambda: loop.row().get("segments_waiting") == 0 and loop.row()["reason"] == "")
        assert sum("/commits/" in key for key in list(store.objects)) == 2


def test_an_idle_loop_beats_however_long_its_interval(tmp_path: Path, store: MemoryStore) -> None:
    with looping(settings_for(tmp_path, scan_interval_s=3000.0)) as loop:
        eventually(lambda: not loop.health.not_ready())
        for _ in range(2):
            eventually(lambda: loop.health.heartbeat_age_s() > run_loop.BEAT_S / 2)
            eventually(lambda: loop.health.heartbeat_age_s() < run_loop.BEAT_S / 2)


def test_no_wait_of_the_loop_is_longer_than_a_beat(tmp_path: Path) -> None:
    clock, waits_s = ManualClock(0), list[float | None]()

    class Waited(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits_s.append(timeout)
            clock.sleep_s(timeout or 0.0)
            return False

    metrics, health, settings = Metrics(clock), Health(clock), settings_for(tmp_path)
    loop = RunLoop(
        settings, clock, metrics, health_reporter.HealthReporter(clock, metrics, health), threading.Event(), Waited()
    )
    loop._pause(10 * run_loop.BEAT_S)
    assert waits_s == [run_loop.BEAT_S] * 10
    assert health.heartbeat_age_s() == run_loop.BEAT_S


def test_a_container_that_is_too_small_for_the_settings_is_reported_at_the_start(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunLoop, "run", lambda _loop: None)
    for limit_bytes, expected in ((64 << 20, ["error"]), (64 << 30, [])):
        monkeypatch.setattr(reload, "memory_limit_bytes", lambda limit=limit_bytes: limit)
        with structlog.testing.capture_logs() as logs:
            assert daemon.run(settings_for(tmp_path)) == 0
        assert [entry["log_level"] for entry in logs if entry["event"] == "memory_limit_too_low"] == expected
