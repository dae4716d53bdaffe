"""What the loop tells of itself while it works: rows, headline, conditions, stalls, successes, and no secrets."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import structlog

from sidecar import daemon
from sidecar.config import Settings
from sidecar.errors import ObjectDamaged, SidecarError, StagingFull, StateDirUnusable, StoreDenied, StoreUnavailable
from sidecar.host.journal import Attempt, Journal
from sidecar.http.pages import status_json
from sidecar.ports import FactsState
from sidecar.reporting.health_reporter import Health
from sidecar.reporting.status_model import StatusModel
from sidecar.runner import run_loop
from sidecar.runner.checks import Checks
from sidecar.runner.run_loop import RunLoop
from sidecar.runner.topic_choice import NothingChosen
from tests.daemon.looping import (
    WAIT_S,
    Loop,
    committed,
    eventually,
    headline,
    looping,
    over_log_dirs,
    settings_for,
    stop_when,
)
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import copy_partitions


def test_a_partition_that_cannot_be_looked_at_has_a_row(tmp_path: Path, store: MemoryStore) -> None:
    log_dir = copy_partitions(tmp_path, "append-time-0")
    with looping(over_log_dirs(settings_for(tmp_path), log_dir)) as loop:
        eventually(lambda: loop.row().get("state") == "archived")
        os.mkfifo(log_dir / "append-time-0" / f"{10**12:020d}.log")
        eventually(lambda: loop.row().get("state") == "stopped")
        assert "is not a regular file; move it out" in loop.row()["reason"]
        assert headline(loop) == "Needs attention"


def test_a_log_dir_that_cannot_be_read_is_reported_with_what_to_do(tmp_path: Path, store: MemoryStore) -> None:
    log_dirs = [copy_partitions(tmp_path / name, "append-time-0") for name in ("one", "other")]
    shutil.rmtree(log_dirs[1] / "append-time-0")
    with looping(over_log_dirs(settings_for(tmp_path), *log_dirs)) as loop:
        eventually(lambda: not loop.health.not_ready())
        shutil.rmtree(log_dirs[1])
        eventually(lambda: "log_dirs" in loop.health.not_ready())
        reason = loop.health.not_ready()["log_dirs"]
        assert str(log_dirs[1]) in reason
        assert reason.endswith("(No such file or directory); correct the path, or mount its disk")
        assert loop.health.status()["problems"] == [reason]


def test_a_slip_in_the_patterns_is_reported_before_the_process_is_ready(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked, may_answer = threading.Event(), threading.Event()

    def slowly(*_: object) -> NothingChosen:
        is_asked.set()
        assert may_answer.wait(WAIT_S)
        return NothingChosen("no topic matches", is_slip=True)

    monkeypatch.setattr(run_loop, "nothing_chosen", slowly)
    settings = settings_for(tmp_path)
    topics = settings.topics.model_copy(update={"include": ("append",)})
    with looping(settings.model_copy(update={"topics": topics})) as loop:
        assert is_asked.wait(WAIT_S)
        assert "first_check" in loop.health.not_ready()
        may_answer.set()
        eventually(lambda: "first_check" not in loop.health.not_ready())
        assert loop.health.not_ready() == {"topics": "no topic matches"}


def test_a_right_that_is_missing_is_reported_on_the_page_and_in_status(tmp_path: Path) -> None:
    loop = Loop(settings_for(tmp_path))
    loop.loop.reporter.cycle_ended(FactsState(0, None, ("allow it Describe on topic orders",)))
    (error,) = loop.status.figures().errors
    assert (error.where, error.kind, error.text) == ("broker", "RightMissing", "allow it Describe on topic orders")
    assert loop.health.status()["missing_rights"] == ["allow it Describe on topic orders"]


def test_a_partition_that_rests_after_a_fault_stays_visible_and_counts_as_pending(
    tmp_path: Path, store: MemoryStore
) -> None:
    is_allowed = threading.Event()

    def deny(operation: str, key: str) -> None:
        if operation == "upload" and "/append-time/" in key and not is_allowed.is_set():
            raise StoreDenied("not allowed")

    store.before = deny
    with looping(settings_for(tmp_path, retry_wait_s=0.2)) as loop:
        eventually(lambda: loop.row().get("error") == "StoreDenied")
        for _ in range(3):
            ended_ms = loop.health.status().get("round_ended_ms", 0)
            eventually(lambda: loop.health.status().get("round_ended_ms", 0) > ended_ms)  # noqa: B023
            eventually(lambda: loop.row()["error"] == "StoreDenied")  # Not while it is tried again.
            assert "store" in loop.health.not_ready()
            assert loop.sample("pending_segments") > 0
            assert loop.sample("oldest_pending_segment_age_seconds") > 0
        is_allowed.set()
        eventually(lambda: not loop.health.not_ready())
        assert loop.row()["error"] is None
        assert loop.sample("pending_segments") == 0


def test_a_damaged_commit_stops_its_partition_and_leaves_the_process_ready(tmp_path: Path, store: MemoryStore) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0", "orders-1")
    settings = over_log_dirs(settings_for(tmp_path, retry_wait_s=0.2), log_dir)
    settings = settings.model_copy(update={"topics": settings.topics.model_copy(update={"include": ("orders",)})})
    with looping(settings) as loop:
        eventually(lambda: all(loop.row(number).get("state") == "archived" for number in (0, 1)))

    def damage(operation: str, key: str) -> None:
        if operation == "read" and "/orders/0/" in key and "/commits/" in key:
            raise ObjectDamaged(f"{key}: read with CRC-32C 00000001, but the store has 00000002")

    store.before = damage
    restarted = settings.model_copy(update={"run": settings.run.model_copy(update={"state_dir": tmp_path / "new"})})
    with looping(restarted) as loop:
        eventually(lambda: loop.row().get("error") == "CorruptFile" and not loop.health.not_ready())
        assert "read with CRC-32C" in loop.row()["reason"]
        assert loop.row(1)["state"] == "archived"
        assert loop.labelled("partitions", state="stopped") == 1


def test_a_proxy_that_damages_uploads_keeps_the_process_from_being_ready(tmp_path: Path, store: MemoryStore) -> None:
    is_repaired = threading.Event()

    def damage(operation: str, key: str) -> None:
        if operation == "upload" and "/segments/" in key and not is_repaired.is_set():
            raise ObjectDamaged(f"{key}: other bytes arrived")

    store.before = damage
    with looping(settings_for(tmp_path, retry_wait_s=0.2)) as loop:
        eventually(lambda: "other bytes arrived" in loop.health.not_ready().get("store", ""))
        assert loop.labelled("partitions", state="stopped") == 1
        is_repaired.set()
        eventually(lambda: not loop.health.not_ready())


@pytest.mark.parametrize("kind", [StagingFull, StateDirUnusable])
def test_a_journal_that_fails_keeps_the_process_from_being_ready(
    kind: type[SidecarError], tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_room = threading.Event()
    begin = Journal.begin

    def begin_if_there_is_room(journal: Journal, attempt: Attempt) -> None:
        if not has_room.is_set():
            raise kind("the journal cannot be written")
        begin(journal, attempt)

    monkeypatch.setattr(Journal, "begin", begin_if_there_is_room)
    with looping(settings_for(tmp_path, retry_wait_s=0.2)) as loop:
        eventually(lambda: loop.health.not_ready() == {"state_dir": "the journal cannot be written"})
        assert loop.labelled("errors_total", kind=kind.__name__) > 0
        assert headline(loop) == "Needs attention"
        for _ in range(3):  # Also while the partition rests.
            ended_ms = loop.health.status()["round_ended_ms"]
            eventually(lambda: loop.health.status()["round_ended_ms"] > ended_ms)  # noqa: B023
            assert "state_dir" in loop.health.not_ready()
        has_room.set()
        eventually(lambda: not loop.health.not_ready())
        assert committed(store, "append-time") > 0


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_deleted_state_directory_keeps_the_process_from_being_ready_and_is_logged_once(
    comes_back: bool, tmp_path: Path, store: MemoryStore
) -> None:
    with structlog.testing.capture_logs() as logs, looping(settings_for(tmp_path)) as loop:
        eventually(lambda: not loop.health.not_ready())
        (directory,) = (tmp_path / "state").iterdir()
        shutil.rmtree(directory)
        if comes_back:
            directory.mkdir()
            (directory / "lock").touch()
        for _ in range(3):
            ended_ms = loop.health.status()["round_ended_ms"]
            eventually(lambda: loop.health.status()["round_ended_ms"] > ended_ms)  # noqa: B023
        assert list(loop.health.not_ready()) == ["state_dir"]
        assert f"{directory}: the state directory was deleted" in loop.health.not_ready()["state_dir"]
    (found,) = [log for log in logs if log["event"] == "state_dir_deleted"]
    assert (found["log_level"], found["path"]) == ("error", str(directory))


@pytest.mark.parametrize("where", ["in the store", "on the disk"])
def test_only_a_hang_outside_of_the_store_is_a_stall(
    where: str, tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, released = threading.Event(), threading.Event()

    def hang(*_arguments: object) -> None:
        hanging.set()
        released.wait(WAIT_S)
        if where == "on the disk":
            raise ZeroDivisionError("the end of this test")

    if where == "in the store":
        store.before = lambda operation, key: hang() if operation == "upload" and "_probe" not in key else None
    else:
        monkeypatch.setattr(Checks, "_look", hang)
    ages_s: list[float] = []
    beaten = Health.heartbeat_age_s

    def look(health: Health) -> None:
        hanging.wait(WAIT_S)
        time.sleep(4 * daemon.TICK_S)  # noqa: TID251

        def is_seen() -> bool:
            ages_s.append(beaten(health))
            # Who beats may not have had its turn yet.
            return where == "on the disk" or ages_s[-1] <= 2 * daemon.TICK_S

        try:
            eventually(is_seen)
        finally:
            released.set()

    class Watched(Health):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            threading.Thread(target=look, args=(self,)).start()

    monkeypatch.setattr(daemon, "Health", Watched)
    if where == "in the store":
        monkeypatch.setattr(RunLoop, "_pause", stop_when(released.is_set))
        assert daemon.run(settings_for(tmp_path)) == 0
        assert ages_s[-1] <= 2 * daemon.TICK_S
    else:
        assert daemon.run(settings_for(tmp_path)) == 1
        assert ages_s[-1] >= 3 * daemon.TICK_S


def test_status_is_json(tmp_path: Path, store: MemoryStore) -> None:
    with looping(settings_for(tmp_path)) as loop:
        eventually(lambda: not loop.health.not_ready())
        (row,) = json.loads(json.dumps(status_json(loop.status)))["partitions"]
    assert (row["topic"], row["partition"], row["error"], row["reason"]) == ("append-time", 0, None, "")


def test_an_upload_that_lasts_keeps_nothing_else_from_being_shown(tmp_path: Path, store: MemoryStore) -> None:
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
        "policies": [
            # Tiered, so that its active segment, old as it is, is not deleted before it rolls.
            {"pattern": "append-time", "remote_storage_enable": True, "local_retention_ms": 3_600_000},
            {"pattern": "orders", "retention_ms": -1},
        ],
    }
    with looping(Settings.model_validate(settings)) as loop:
        try:
            eventually(lambda: sum("/append-time/" in key and "/commits/" in key for key in list(store.objects)) == 2)
            # An upload goes on, and yet nothing of what is done counts as threatened, and what failed is known.
            eventually(lambda: loop.sample("data_at_risk_in_seconds") != 0.0)
            eventually(lambda: loop.labelled("errors_total", kind="StoreUnavailable") >= 2)
            eventually(lambda: loop.labelled("partitions", state="stopped") == 2)
            eventually(lambda: loop.health.status().get("round_ended_ms") is not None)
            rows = [row for row in status_json(loop.status)["partitions"] if row["topic"] == "append-time"]
            assert [row["deadline_ms"] for row in rows] == [None]
        finally:
            released.set()


def test_what_gets_on_is_a_success_though_an_upload_lasts(tmp_path: Path, store: MemoryStore) -> None:
    released = threading.Event()
    store.before = lambda operation, key: (
        released.wait(WAIT_S) and None if operation == "upload" and "/orders/" in key else None
    )
    settings = settings_for(tmp_path, workers=6).model_dump()
    settings["topics"] |= {"include": ["append-time", "orders"]}
    with looping(Settings.model_validate(settings)) as loop:
        try:
            eventually(lambda: committed(store, "append-time") == 2)
            eventually(lambda: loop.sample("last_success_timestamp_seconds") > 0)
            assert committed(store, "orders") == 0
        finally:
            released.set()


def test_a_secret_in_a_librarys_words_is_on_no_page(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hunter2-of-the-store"
    tree = settings_for(tmp_path).model_dump()
    tree["store"]["s3"] |= {"access_key_id": "someone", "secret_access_key": secret}
    reported: list[tuple[Health, StatusModel]] = []

    class Seen(StatusModel):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            reported.append((healths[0], self))

    class SeenHealth(Health):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            healths.append(self)

    healths: list[Health] = []
    monkeypatch.setattr(daemon, "StatusModel", Seen)
    monkeypatch.setattr(daemon, "Health", SeenHealth)

    def refuse(operation: str, key: str) -> None:
        if operation == "upload" and "_probe" not in key:
            raise StoreUnavailable(f"refused, signed with {secret}")

    store.before = refuse
    monkeypatch.setattr(RunLoop, "_pause", stop_when(lambda: "refused" in str(reported[0][0].not_ready())))
    assert daemon.run(Settings.model_validate(tree)) == 0
    ((health, board),) = reported
    texts = [json.dumps(status_json(board)), json.dumps(health.status()), json.dumps(dict(health.not_ready()))]
    assert "refused, signed with ****" in texts[0]
    assert status_json(board)["partitions"][0]["reason"].startswith("refused, signed with ****")
    assert "refused, signed with ****" in texts[2]
    assert not [text for text in texts if secret in text]
