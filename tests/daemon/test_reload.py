"""The loop in this process takes changed settings over: between checks, in place, and without forgetting what it knows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from sidecar.config import Settings
from sidecar.engine_ports import StagedRun, StageEngine, Stages
from sidecar.errors import SidecarError, StoreUnavailable
from sidecar.host import process_store
from sidecar.http.pages import status_json
from sidecar.metrics import MeteredStore
from sidecar.partition.run_limits import RunLimits
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.runner import run_loop
from sidecar.runner.cleaner_watch import CleanerWatch
from sidecar.runner.context import RunContext
from tests.daemon.looping import WAIT_S, Loop, committed, eventually, looping, settings_for
from tests.fakes.memory_store import MemoryStore

EAGER = {"topics": ["compacted"], "check_interval_s": 0.05, "min_cleanable_dirty_ratio": 0.0}


def changed(settings: Settings, **sections: dict[str, Any]) -> Settings:
    tree = settings.model_dump()
    return Settings.model_validate({**tree, **{name: {**tree[name], **new} for name, new in sections.items()}})


def topics_shown(loop: Loop) -> set[str]:
    return {row["topic"] for row in status_json(loop.status)["partitions"]}


def test_changed_settings_hold_from_the_next_check_on_and_no_upload_is_disturbed(
    tmp_path: Path, store: MemoryStore
) -> None:
    uploading, released = threading.Event(), threading.Event()

    def hang(operation: str, key: str) -> None:
        if operation == "upload" and "_probe" not in key and not released.is_set():
            uploading.set()
            released.wait(WAIT_S)

    store.before = hang
    settings = settings_for(tmp_path, scan_interval_s=3000.0)
    with looping(settings) as loop:
        assert uploading.wait(WAIT_S)
        wanted = changed(settings, topics={"include": ["orders"]}, run={"scan_interval_s": 0.05})
        taken_over = loop.loop.adopt(changed(wanted, store={"bandwidth_bytes_per_s": 1 << 30}))
        assert taken_over.wait(WAIT_S)
        assert loop.loop._changing.budget.uploads.bytes_per_s is not None
        eventually(lambda: topics_shown(loop) == {"append-time", "orders"})
        assert committed(store, "append-time") == 0
        assert committed(store, "orders") == 0
        released.set()
        eventually(lambda: committed(store, "orders") > 0)
        # What had begun was finished by the old settings, and is left alone by the new ones.
        eventually(lambda: committed(store, "append-time") == 2)
        eventually(lambda: topics_shown(loop) == {"orders"})


def test_settings_that_change_while_a_start_waits_leave_the_pauses_between_its_tries(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_loop, "START_WAIT_S_FIRST", 3000.0)

    def refuse(_operation: str, _key: str) -> None:
        raise StoreUnavailable("not yet")

    store.before = refuse
    settings = settings_for(tmp_path)

    def tries() -> int:
        return sum(entry["event"] == "store_not_usable" for entry in logs)

    with structlog.testing.capture_logs() as logs, looping(settings) as loop:
        eventually(lambda: "not yet" in loop.health.not_ready().get("store", ""))
        assert loop.loop.adopt(changed(settings, run={"workers": 3})).wait(WAIT_S)
        eventually(lambda: tries() == 2)
        loop.stop.wait(1.0)
        assert tries() == 2


def test_compaction_begins_and_ends_with_settings_that_name_topics(tmp_path: Path, store: MemoryStore) -> None:
    settings = settings_for(tmp_path)
    with looping(settings) as loop:
        eventually(lambda: not loop.health.not_ready() and loop.row()["segments_waiting"] == 0)
        assert not loop.health.status().get("compaction", {}).get("partitions")
        on = changed(settings, compaction={"topics": ["append-time"], "check_interval_s": 0.05})
        loop.loop.adopt(on)
        eventually(lambda: bool(loop.health.status()["compaction"]["partitions"]))
        assert "compaction" in {thread.name for thread in threading.enumerate()}
        loop.loop.adopt(changed(on, compaction={"enabled": False}, gc={"enabled": False}))
        eventually(lambda: "compaction" not in {thread.name for thread in threading.enumerate()})
        # Nobody is left to tell of them.
        eventually(lambda: loop.health.status()["compaction"]["partitions"] == [])


class HangsOnce:
    """Engines of which the first works until it is asked to stop, as a long job on Spark does."""

    def __init__(self) -> None:
        self.begun, self.stopped = threading.Event(), threading.Event()

    @property
    def cores(self) -> int:
        return 1

    def for_bytes(self, _size_bytes: int, *, local_files: bool = False) -> StageEngine:
        return LocalEngine() if self.begun.is_set() else self

    @contextmanager
    def staged(self, _stages: Stages, _tasks: Sequence[Any]) -> Iterator[StagedRun]:
        self.begun.set()
        self.stopped.wait(WAIT_S)
        raise SidecarError("the engine was stopped")
        yield

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any], *, uploads: bool = False) -> Generator[Any]:
        return LocalEngine().run(function, tasks, uploads=uploads)

    def stop(self) -> None:
        self.stopped.set()


def test_a_compaction_that_runs_is_cut_off_by_other_settings_and_begins_again(tmp_path: Path) -> None:
    def commits() -> int:
        # Directories go as their last file does, which `rglob` would take ill.
        found = (Path(directory, name) for directory, _, names in os.walk(tmp_path / "archive") for name in names)
        return sum("/compacted/" in str(path) and "/commits/" in str(path) for path in found)

    # A directory, since compactions open the store by themselves.
    engines = HangsOnce()
    settings = settings_for(tmp_path, drain_timeout_s=0.4)
    on = changed(settings, topics={"include": ["compacted"]}, compaction=EAGER)
    with looping(on, engines) as loop:
        assert engines.begun.wait(WAIT_S)
        before = commits()
        loop.loop.adopt(changed(on, compaction={**EAGER, "retry_wait_s": 2.0}))
        assert engines.stopped.wait(WAIT_S)
        eventually(lambda: loop.sample("compaction_last_success_timestamp_seconds") > 0)
        assert commits() > before
        assert loop.row()["error"] is None


class Unstoppable(HangsOnce):
    """Work of this process: nothing ends it from outside."""

    def stop(self) -> None:
        pass

    @contextmanager
    def staged(self, stages: Stages, tasks: Sequence[Any]) -> Iterator[StagedRun]:
        self.begun.set()
        assert self.stopped.wait(WAIT_S)
        with LocalEngine().staged(stages, tasks) as run:
            yield run


def test_uploads_do_not_wait_for_a_compaction_that_other_settings_cut_off_and_it_commits_nothing(
    tmp_path: Path,
) -> None:
    engines = Unstoppable()
    settings = settings_for(tmp_path, drain_timeout_s=0.4)
    on = changed(settings, topics={"include": ["compacted"]}, compaction=EAGER)
    with looping(on, engines) as loop:
        assert engines.begun.wait(WAIT_S)
        off = changed(on, compaction={"enabled": False}, gc={"enabled": False})
        eventually(lambda: loop.row(0).get("segments_waiting") == 0 and "transaction" in loop.row(1)["reason"])
        eventually(lambda: status_json(loop.status)["uploads"] == [])
        commits = sorted((tmp_path / "archive").rglob("commits/*"))
        assert loop.loop.adopt(off).wait(WAIT_S), "checks go on while the old job is at work"
        assert "compaction" in {thread.name for thread in threading.enumerate()}
        engines.stopped.set()
        eventually(lambda: "compaction" not in {thread.name for thread in threading.enumerate()})
        assert sorted((tmp_path / "archive").rglob("commits/*")) == commits
        assert loop.health.status()["compaction"]["partitions"] == []


def test_bandwidth_and_policies_change_in_place(tmp_path: Path, store: MemoryStore) -> None:
    settings = settings_for(tmp_path)
    with looping(settings) as loop:
        eventually(lambda: not loop.health.not_ready())
        changing = loop.loop._changing
        assert changing.budget.uploads.bytes_per_s is None
        entry = {"pattern": ".*", "retention_ms": 3_600_000}
        faster = {"bandwidth_bytes_per_s": 1 << 20, "read_bytes_per_s": 1 << 21}
        loop.loop.adopt(changed(settings, store=faster, topics={"policies": [entry]}, run={"workers": 7}))
        eventually(lambda: changing.budget.uploads.bytes_per_s is not None)
        assert changing.budget.reads.bytes_per_s == 1 << 21
        assert loop.labelled("io_limit_bytes_per_second", direction="upload") == 1 << 20
        assert loop.labelled("io_limit_bytes_per_second", direction="read") == 1 << 21
        # Tasks of a compaction in this process ask through it, too: by the settings as they were when the job began.
        assert isinstance(process_store.store_of(settings.store), MeteredStore)
        assert [found.retention_ms for found in changing.policies] == [3_600_000]
        loop.loop.adopt(settings)
        eventually(lambda: changing.budget.uploads.bytes_per_s is None and changing.policies == [])


def test_the_last_of_several_changes_counts(tmp_path: Path, store: MemoryStore) -> None:
    settings = settings_for(tmp_path)
    with looping(settings) as loop:
        for topic in ("orders", "compacted", "empty"):
            loop.loop.adopt(changed(settings, topics={"include": [topic]}))
        eventually(lambda: topics_shown(loop) == {"empty"})


def test_the_numbers_of_the_work_and_of_the_cleaners_watch_change_too(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies: list[RunLimits] = []
    limits_s: list[float] = []
    monkeypatch.setattr(RunContext, "adopt", lambda _context, policy: policies.append(policy))
    monkeypatch.setattr(CleanerWatch, "is_due", lambda watch: bool(limits_s.append(watch.stalled_after_s)))
    settings = settings_for(tmp_path)
    run = {
        "workers": 7,
        "uploads_ahead": 5,
        "max_queue": 11,
        "retry_wait_s": 13.0,
        "record_lost": True,
        "spare_page_cache": False,
    }
    with looping(settings) as loop:
        eventually(lambda: not loop.health.not_ready())
        broker = {"settle_ms": 17, "cleaner_stalled_after_s": 3600.0}
        assert loop.loop.adopt(changed(settings, run=run, broker=broker)).wait(WAIT_S)
        eventually(lambda: limits_s[-1] == 3600.0)
    (policy,) = policies
    assert (policy.workers, policy.uploads_ahead, policy.max_queue) == (7, 5, 11)
    assert (policy.retry_wait_s, policy.record_lost, policy.spares_cache) == (13.0, True, False)
    assert policy.settling.settle_ms == 17
    assert set(limits_s) == {settings.broker.cleaner_stalled_after_s, 3600.0}
