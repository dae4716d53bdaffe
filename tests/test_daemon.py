"""The supervisor and the loop in this process: what ends them, with which code, and what counts as a stall."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from sidecar import daemon
from sidecar.clock import SystemClock
from sidecar.config import Settings
from sidecar.errors import SettingsError, StoreUnavailable, StoreUnsafe
from sidecar.http import Board, Health
from sidecar.http.page.rows import row_of
from sidecar.http.page.summary import summary_of
from sidecar.http.status_json import board_json
from sidecar.metrics import Metrics
from sidecar.pipeline import assembly, reload, round_loop, round_signs
from sidecar.pipeline.round_loop import RoundLoop
from sidecar.pipeline.round_report import RoundReport
from sidecar.pipeline.rounds import Rounds
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.golden import golden
from tests.pipeline.rig import copy_partitions

LOGS = golden("4.3.0") / "logs"
WAIT_S = 30.0


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """What every settings' URL leads to."""
    found = MemoryStore()
    monkeypatch.setattr(assembly, "open_store", lambda *_arguments: found)
    return found


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

    def __init__(self, settings: Settings) -> None:
        clock = SystemClock()
        self.health = Health(clock, conditions=round_signs.CONDITIONS)
        self.metrics = Metrics(clock)
        self.stop, self.wake = threading.Event(), threading.Event()
        self.board = Board(clock)
        self.loop = RoundLoop(settings, clock, self.metrics, self.health, self.stop, self.wake, board=self.board)
        self.thread = threading.Thread(target=self.loop.run)

    def sample(self, name: str) -> float:
        return self.metrics.registry.get_sample_value(f"tiered_sidecar_{name}") or 0.0

    def labelled(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"tiered_sidecar_{name}", labels) or 0.0

    def row(self, partition: int = 0) -> dict[str, Any]:
        rows = [row for row in board_json(self.board)["partitions"] if row["partition"] == partition]
        return rows[0] if rows else {}


def not_ready(loop: Loop) -> set[str]:
    """Conditions whose gauge is 1."""
    return {
        condition
        for condition in round_signs.ALL_CONDITIONS
        if loop.metrics.registry.get_sample_value("tiered_sidecar_not_ready", {"condition": condition})
    }


def headline(loop: Loop) -> str:
    """What the status page says of all this."""
    figures = loop.board.figures()
    rows = [row_of(found, {}) for found in figures.partitions]
    status = {**loop.health.status(), "not_ready": loop.health.not_ready()}
    return summary_of(rows, figures, status, None, SystemClock().now_ms()).headline


@contextmanager
def looping(settings: Settings) -> Iterator[Loop]:
    loop = Loop(settings)
    loop.thread.start()
    try:
        yield loop
    finally:
        loop.stop.set()
        loop.wake.set()
        loop.thread.join(WAIT_S)
        assert not loop.thread.is_alive()


def eventually(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S  # noqa: TID251 - threads have no other clock
    while not condition():
        assert time.monotonic() < deadline_s  # noqa: TID251
        time.sleep(0.01)  # noqa: TID251


def test_a_fault_of_our_own_ends_the_process_with_1_and_says_what_it_was(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: Rounds, *_arguments: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Rounds, "plan", fail)
    with structlog.testing.capture_logs() as logs:
        assert daemon.run(settings_for(tmp_path)) == 1
    (crash,) = [entry for entry in logs if entry["event"] == "crashed"]
    assert crash["log_level"] == "critical"
    assert isinstance(crash["exc_info"], ZeroDivisionError)


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
    monkeypatch.setattr(round_loop, "START_WAIT_S_FIRST", 0.01)
    with looping(over_log_dirs(settings_for(tmp_path), tmp_path / "logs")) as loop:
        eventually(lambda: "does not exist" in loop.health.not_ready().get("log_dirs", ""))
        copy_partitions(tmp_path, "append-time-0")
        eventually(lambda: not loop.health.not_ready() and loop.row().get("segments_waiting") == 0)
    assert store.objects


def test_a_log_dir_whose_disk_was_unmounted_is_told_and_hides_nothing_else(tmp_path: Path, store: MemoryStore) -> None:
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


def test_with_nobody_to_say_who_leads_nothing_is_well(tmp_path: Path, store: MemoryStore) -> None:
    settings = settings_for(tmp_path)
    alone = settings.model_copy(update={"broker": settings.broker.model_copy(update={"assume_leader": False})})
    with looping(alone) as loop:
        loop.metrics.watch_readiness(loop.health.not_ready, round_signs.ALL_CONDITIONS)
        eventually(lambda: "first_round" not in loop.health.not_ready())
        assert "--assume-leader" in loop.health.not_ready()["leadership"]
        assert not_ready(loop) == {"leadership"}
        assert "All is well" not in headline(loop)


def test_patterns_that_match_no_topic_are_told_until_they_match_one(tmp_path: Path, store: MemoryStore) -> None:
    settings = settings_for(tmp_path)
    slip = settings.model_copy(update={"topics": settings.topics.model_copy(update={"include": ("order",)})})
    with structlog.testing.capture_logs() as logs, looping(settings) as loop:
        loop.metrics.watch_readiness(loop.health.not_ready, round_signs.ALL_CONDITIONS)
        eventually(lambda: not loop.health.not_ready())
        loop.loop.adopt(slip)
        eventually(lambda: "append-time" in loop.health.status()["topics"]["nothing_chosen"])
        # Without a broker to ask nobody knows whether another broker has the topic.
        assert not loop.health.not_ready()
        assert headline(loop).startswith("Nothing to do: of what lies here no topic matches; there are: append-time")
        loop.loop.adopt(settings)
        eventually(lambda: not loop.health.status()["topics"]["nothing_chosen"])
        assert headline(loop).startswith("All is well")
    assert [entry["log_level"] for entry in logs if entry["event"] == "no_topic_is_chosen"] == ["warning"]


def test_a_partition_that_cannot_be_looked_at_has_a_row(tmp_path: Path, store: MemoryStore) -> None:
    log_dir = copy_partitions(tmp_path, "append-time-0")
    with looping(over_log_dirs(settings_for(tmp_path), log_dir)) as loop:
        eventually(lambda: loop.row().get("state") == "archived")
        os.mkfifo(log_dir / "append-time-0" / f"{10**12:020d}.log")
        eventually(lambda: loop.row().get("state") == "stopped")
        assert "is no regular file; move it out" in loop.row()["reason"]
        assert headline(loop) == "Needs attention"


def test_a_store_that_is_not_safe_is_not_waited_for(tmp_path: Path, store: MemoryStore) -> None:
    store.ignore_if_none_match = True
    with pytest.raises(StoreUnsafe, match="create-only put"):
        daemon.run(settings_for(tmp_path))


def test_a_store_that_comes_later_is_waited_for(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_loop, "START_WAIT_S_FIRST", 0.01)
    is_there = threading.Event()

    def refuse(_operation: str, _key: str) -> None:
        if not is_there.is_set():
            raise StoreUnavailable("not yet")

    store.before = refuse
    with looping(settings_for(tmp_path)) as loop:
        eventually(lambda: "not yet" in loop.health.not_ready().get("store", ""))
        assert loop.board.figures().archive == str(tmp_path / "archive")
        is_there.set()
        eventually(lambda: not loop.health.not_ready())


def test_a_right_that_is_missing_is_told_on_the_page_and_in_status(tmp_path: Path) -> None:
    loop = Loop(settings_for(tmp_path))
    loop.loop._signs.round_ended(RoundReport(missing_rights=("allow it Describe on topic orders",)))
    (error,) = loop.board.figures().errors
    assert (error.where, error.kind, error.text) == ("broker", "RightMissing", "allow it Describe on topic orders")
    assert loop.health.status()["missing_rights"] == ["allow it Describe on topic orders"]


def test_a_partition_that_rests_after_a_fault_stays_visible_and_counts_as_pending(
    tmp_path: Path, store: MemoryStore
) -> None:
    denied = Fault("upload", 0, FaultKind.DENIED, key_part="append-time")
    store.faults.append(denied)
    with looping(settings_for(tmp_path, retry_wait_s=1.0)) as loop:
        eventually(lambda: loop.row().get("error") == "StoreDenied")
        for _ in range(3):
            ended_ms = loop.health.status().get("round_ended_ms", 0)
            eventually(lambda: loop.health.status().get("round_ended_ms", 0) > ended_ms)  # noqa: B023
            if loop.row()["error"] is None:
                break  # Its rest was over.
            assert "store" in loop.health.not_ready()
            assert loop.sample("pending_segments") > 0
            assert loop.sample("oldest_pending_segment_age_seconds") > 0
        eventually(lambda: not loop.health.not_ready())
        assert loop.row()["error"] is None
        assert loop.sample("pending_segments") == 0


def test_a_queue_that_is_full_is_gone_on_with_at_once(tmp_path: Path, store: MemoryStore) -> None:
    with looping(settings_for(tmp_path, max_queue=1, scan_interval_s=3000.0)) as loop:
        eventually(lambda: loop.row().get("segments_waiting") == 0 and loop.row()["reason"] == "")
        assert sum("/commits/" in key for key in store.objects) == 2


def test_an_idle_loop_beats_however_long_its_interval(tmp_path: Path, store: MemoryStore) -> None:
    with looping(settings_for(tmp_path, scan_interval_s=3000.0)) as loop:
        eventually(lambda: not loop.health.not_ready())
        time.sleep(2 * round_loop.BEAT_S)  # noqa: TID251
        assert loop.health.heartbeat_age_s() < 2 * round_loop.BEAT_S


@pytest.mark.parametrize("where", ["in the store", "on the disk"])
def test_only_a_hang_outside_of_the_store_is_a_stall(
    where: str, tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, released = threading.Event(), threading.Event()

    def hang(*_arguments: object) -> None:
        hanging.set()
        released.wait(WAIT_S)

    if where == "in the store":
        store.before = lambda operation, key: hang() if operation == "upload" and "_probe" not in key else None
    else:
        monkeypatch.setattr(Rounds, "plan", hang)
    ages_s: list[float] = []
    beaten = Health.heartbeat_age_s

    def look(health: Health) -> None:
        hanging.wait(WAIT_S)
        time.sleep(4 * daemon.TICK_S)  # noqa: TID251
        ages_s.append(beaten(health))
        released.set()

    class Watched(Health):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            threading.Thread(target=look, args=(self,)).start()

    monkeypatch.setattr(daemon, "Health", Watched)
    if where == "in the store":
        monkeypatch.setattr(RoundLoop, "_pause", lambda loop, *_seconds, **_options: loop._stop.set())
        assert daemon.run(settings_for(tmp_path)) == 0
        assert ages_s[0] <= 2 * daemon.TICK_S
    else:
        assert daemon.run(settings_for(tmp_path)) == 1  # What `hang` returns is no plan.
        assert ages_s[0] >= 3 * daemon.TICK_S


def test_status_is_json(tmp_path: Path, store: MemoryStore) -> None:
    with looping(settings_for(tmp_path)) as loop:
        eventually(lambda: not loop.health.not_ready())
        (row,) = json.loads(json.dumps(board_json(loop.board)))["partitions"]
    assert (row["topic"], row["partition"], row["error"], row["reason"]) == ("append-time", 0, None, "")


def test_a_round_that_lasts_tells_what_it_has_done(tmp_path: Path, store: MemoryStore) -> None:
    released = threading.Event()

    def hang(operation: str, key: str) -> None:
        if operation == "upload" and "/orders/" in key:
            released.wait(WAIT_S)
        if operation == "upload" and "/compacted/" in key:
            raise StoreUnavailable("not for this one")

    store.before = hang
    settings = settings_for(tmp_path, workers=6).model_dump()
    settings["topics"] |= {
        "include": ["append-time", "compacted", "orders"],
        "policies": [{"pattern": "append-time", "retention_ms": 3_600_000}, {"pattern": "orders", "retention_ms": -1}],
    }
    with looping(Settings.model_validate(settings)) as loop:
        try:
            eventually(lambda: sum("/append-time/" in key and "/commits/" in key for key in list(store.objects)) == 2)
            # The round goes on, and yet nothing of what is done counts as threatened, and what failed is known.
            eventually(lambda: loop.sample("data_at_risk_in_seconds") != 0.0)
            eventually(lambda: loop.labelled("errors_total", kind="StoreUnavailable") == 2)
            eventually(lambda: loop.labelled("partitions", state="stopped") == 2)
            assert loop.health.status().get("round_ended_ms") is None
            rows = [row for row in board_json(loop.board)["partitions"] if row["topic"] == "append-time"]
            assert [row["deadline_ms"] for row in rows] == [None]
        finally:
            released.set()


def test_a_long_round_is_a_success_as_long_as_it_gets_on(tmp_path: Path, store: MemoryStore) -> None:
    released = threading.Event()
    store.before = lambda operation, key: (
        released.wait(WAIT_S) and None if operation == "upload" and "/orders/" in key else None
    )
    settings = settings_for(tmp_path, workers=6).model_dump()
    settings["topics"] |= {"include": ["append-time", "orders"]}
    with looping(Settings.model_validate(settings)) as loop:
        try:
            eventually(lambda: loop.sample("last_success_timestamp_seconds") > 0)
            assert loop.health.status().get("round_ended_ms") is None
        finally:
            released.set()


def test_a_secret_in_a_librarys_words_is_on_no_page(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hunter2-of-the-store"
    tree = settings_for(tmp_path).model_dump()
    tree["store"]["s3"] |= {"access_key_id": "someone", "secret_access_key": secret}
    told: list[tuple[Health, Board]] = []

    class Seen(Board):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            told.append((healths[0], self))

    class SeenHealth(Health):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            healths.append(self)

    healths: list[Health] = []
    monkeypatch.setattr(daemon, "Board", Seen)
    monkeypatch.setattr(daemon, "Health", SeenHealth)

    def refuse(operation: str, key: str) -> None:
        if operation == "upload" and "_probe" not in key:
            raise StoreUnavailable(f"refused, signed with {secret}")

    store.before = refuse
    monkeypatch.setattr(RoundLoop, "_pause", lambda loop, *_waits, **_options: loop._stop.set())
    assert daemon.run(Settings.model_validate(tree)) == 0
    ((health, board),) = told
    texts = [json.dumps(board_json(board)), json.dumps(health.status()), json.dumps(dict(health.not_ready()))]
    assert "refused, signed with ****" in texts[0]
    assert board_json(board)["partitions"][0]["reason"].startswith("refused, signed with ****")
    assert "refused, signed with ****" in texts[2]
    assert not [text for text in texts if secret in text]


def test_a_container_that_is_too_small_for_the_settings_is_told_at_the_start(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RoundLoop, "run", lambda _loop: None)
    for limit_bytes, expected in ((64 << 20, ["error"]), (64 << 30, [])):
        monkeypatch.setattr(reload, "memory_limit_bytes", lambda limit=limit_bytes: limit)
        with structlog.testing.capture_logs() as logs:
            assert daemon.run(settings_for(tmp_path)) == 0
        assert [entry["log_level"] for entry in logs if entry["event"] == "memory_limit_too_low"] == expected
