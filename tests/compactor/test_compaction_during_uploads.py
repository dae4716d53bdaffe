"""The thread beside the uploads: it turns, it ends with them, and what it waits for is ended when that takes too long."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog

from sidecar.archive.state import PartitionState
from sidecar.broker.files import FileBrokerFacts
from sidecar.clock import SystemClock
from sidecar.compactor import archive_job
from sidecar.compactor.candidate_queue import Candidate
from sidecar.compactor.group_compactor import GroupCompactor
from sidecar.compactor.wiring import BackgroundWorkers, Chore, wire_compaction
from sidecar.config import Settings
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.engine_ports import StageEngine
from sidecar.errors import CompactionCutOff, Fenced, StoreUnavailable
from sidecar.rewriting.local_engine import LocalEngines
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.spark.scratch import Scratch
from tests.compactor.compaction_rig import ended
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import archive, archived_states, copy_partitions, tools_for

WAIT_S = 120.0
ROOT = Path(__file__).parents[2]


class Turns:
    """Counts; `hold` keeps a turn from ending."""

    def __init__(self, more: int = 0, error: Exception | None = None) -> None:
        self.count, self.more, self.error = 0, more, error
        self.hold: threading.Event | None = None
        self.begun = threading.Event()

    def cycle(self) -> bool:
        self.count += 1
        self.begun.set()
        if self.error is not None:
            raise self.error
        if self.hold is not None:
            assert self.hold.wait(WAIT_S)
        return self.count <= self.more


def beside(turns: Turns, stop: threading.Event | None = None, **parameters: Any) -> BackgroundWorkers:
    defaults: dict[str, Any] = {
        "stop": stop or threading.Event(),
        "ending": threading.Event(),
        "cut_off": threading.Event(),
        "interval_s": 3000.0,
        "drain_s": 0.3,
        "give_up": lambda: None,
        "beat": lambda: None,
    }
    return BackgroundWorkers({"compaction": turns.cycle}, SystemClock(), **{**defaults, **parameters})


def eventually(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S  # noqa: TID251 - threads have no other clock
    while not condition():
        assert time.monotonic() < deadline_s  # noqa: TID251
        time.sleep(0.01)  # noqa: TID251


def test_where_there_may_be_more_it_goes_on_at_once_else_it_waits_and_ends_promptly() -> None:
    turns = Turns(more=5)
    with beside(turns):
        eventually(lambda: turns.count == 6)
        time.sleep(0.1)  # noqa: TID251
    assert turns.count == 6


def test_it_turns_again_after_the_interval() -> None:
    turns = Turns()
    with beside(turns, interval_s=0.01):
        eventually(lambda: turns.count > 3)


def test_the_signal_to_drain_ends_it_without_the_end_of_the_context() -> None:
    turns, stop = Turns(), threading.Event()
    with beside(turns, stop, interval_s=0.01) as thread:
        stop.set()
        eventually(lambda: not thread.living())


def test_work_that_does_not_end_in_time_is_cut_off_and_the_loop_beats_meanwhile() -> None:
    turns, beats, given_up = Turns(), [], []
    turns.hold = hold = threading.Event()

    def give_up() -> None:
        given_up.append(True)
        hold.set()

    with structlog.testing.capture_logs() as logs:
        with beside(turns, give_up=give_up, beat=lambda: beats.append(True)):
            assert turns.begun.wait(WAIT_S)
        assert given_up
        assert beats
    assert [entry["event"] for entry in logs] == ["compaction_interrupted"]


def test_work_that_ends_in_time_is_waited_for() -> None:
    turns = Turns()
    turns.hold = hold = threading.Event()
    timer = threading.Timer(0.2, hold.set)
    with structlog.testing.capture_logs() as logs, beside(turns, drain_s=WAIT_S):
        assert turns.begun.wait(WAIT_S)
        timer.start()
    assert logs == []


def test_a_reload_waits_a_moment_and_no_longer_and_what_runs_commits_nothing_more() -> None:
    turns, cut_off = Turns(), threading.Event()
    turns.hold = hold = threading.Event()
    begun_s = time.monotonic()  # noqa: TID251
    with structlog.testing.capture_logs() as logs:
        with beside(turns, cut_off=cut_off, drain_s=WAIT_S) as old:
            assert turns.begun.wait(WAIT_S)
            assert not cut_off.is_set()
        assert time.monotonic() - begun_s < WAIT_S / 4  # noqa: TID251
        assert cut_off.is_set()
        assert old.living()
        (line,) = logs
        assert (line["event"], line["reason"]) == ("compaction_interrupted", "the settings changed")
        assert "may still succeed" in line["running_job"]
        new = Turns()
        with beside(new, earlier=old) as thread:
            time.sleep(0.1)  # noqa: TID251
            assert new.count == 0, "two compactions at once would need the memory of both"
            hold.set()
            eventually(lambda: new.count > 0)
        assert not thread.living()


def test_groups_do_not_wait_for_a_compaction_of_the_archive_that_a_reload_cut_off() -> None:
    archiving, groups = Turns(), Turns()
    archiving.hold = hold = threading.Event()
    with beside(archiving) as old:
        assert archiving.begun.wait(WAIT_S)
    new, parameters = Turns(), {"stop": threading.Event(), "ending": threading.Event(), "cut_off": threading.Event()}
    with BackgroundWorkers(
        {"compaction": new.cycle, "before-upload": groups.cycle},
        SystemClock(),
        **parameters,
        interval_s=3000.0,
        drain_s=0.3,
        give_up=lambda: None,
        beat=lambda: None,
        earlier=old,
    ):
        assert groups.begun.wait(WAIT_S / 6)
        assert new.count == 0
        hold.set()
        assert new.begun.wait(WAIT_S)


def test_the_end_waits_for_a_thread_of_settings_before_without_turning_round() -> None:
    turns, stop, beats = Turns(), threading.Event(), []
    turns.hold = hold = threading.Event()
    with beside(turns) as old:
        assert turns.begun.wait(WAIT_S)
    timer = threading.Timer(0.5, hold.set)
    with beside(Turns(), stop, earlier=old, beat=lambda: beats.append(True)):
        stop.set()
        timer.start()
    assert not old.living()
    assert 0 < len(beats) < 20


def test_a_thousand_reloads_keep_no_threads_that_have_ended() -> None:
    old = None
    for _ in range(1100):
        old = BackgroundWorkers(
            {"compaction": Turns().cycle},
            SystemClock(),
            stop=threading.Event(),
            ending=threading.Event(),
            cut_off=threading.Event(),
            interval_s=3000.0,
            drain_s=0.3,
            give_up=lambda: None,
            beat=lambda: None,
            earlier=old,
        )
    assert old is not None
    assert not old.living()


def test_a_fault_of_a_thread_that_a_reload_cut_off_is_handed_to_the_loop() -> None:
    turns = Turns()
    turns.hold = hold = threading.Event()

    def turn() -> bool:
        Turns.cycle(turns)
        raise ZeroDivisionError("a bug")

    turns.cycle = turn  # type: ignore[method-assign]
    with beside(turns) as old:
        assert turns.begun.wait(WAIT_S)
    with beside(Turns(), earlier=old) as thread:
        thread.require_sound()
        hold.set()
        eventually(lambda: not old.living())
        with pytest.raises(ZeroDivisionError):
            thread.require_sound()


def test_a_process_that_stops_gives_work_its_time_and_then_no_commit() -> None:
    turns, cut_off, stop = Turns(), threading.Event(), threading.Event()
    turns.hold = hold = threading.Event()
    with structlog.testing.capture_logs() as logs, beside(turns, stop, cut_off=cut_off, give_up=hold.set):
        assert turns.begun.wait(WAIT_S)
        stop.set()
        assert not cut_off.is_set()
    assert cut_off.is_set()
    assert [(line["event"], line["reason"]) for line in logs] == [("compaction_interrupted", "the process stops")]


def test_a_fault_of_our_own_is_handed_to_the_loop() -> None:
    with beside(Turns(error=ZeroDivisionError("a bug"))) as thread:
        eventually(lambda: not thread.living())
        with pytest.raises(ZeroDivisionError):
            thread.require_sound()


def test_a_chore_is_done_every_so_often_and_its_errors_end_nothing() -> None:
    clock, done = ManualClock(0), []

    def work() -> None:
        done.append(clock.monotonic_s())
        if len(done) == 1:
            raise StoreUnavailable("gone")

    chore = Chore("gc", 60, work, clock)
    with structlog.testing.capture_logs() as logs:
        for _ in range(150):
            chore.cycle()
            clock.sleep_s(1)
    assert done == [60, 120]
    assert [(entry["event"], entry["error"]) for entry in logs] == [("periodic_task_failed", "gone")]


def settings_for(tmp_path: Path, **sections: Any) -> Settings:
    store = {"url": str(tmp_path / "archive")}
    fast = {"check_interval_s": 0.01, "min_cleanable_dirty_ratio": 0}
    return Settings.model_validate(
        {"store": store, "gc": {"enabled": False}, **sections, "compaction": {**fast, **sections.get("compaction", {})}}
    )


def test_without_topics_and_garbage_there_is_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    log_dir = copy_partitions(tmp_path, "orders-0")
    with (
        tools_for(log_dir, MemoryStore(), tmp_path / "state") as context,
        wire_compaction(settings_for(tmp_path), context, LocalEngines(), lambda _: None) as compaction,
    ):
        assert set(threading.enumerate()) <= before
        compaction.require_sound()


def test_what_a_round_has_archived_is_offered_and_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0", "compacted-0"), MemoryStore()
    seen: list[Candidate] = []
    reported: list[Any] = []

    def compact(work: Sequence[Candidate]) -> Iterable[Any]:
        seen.extend(work)
        return [ended(one, Fenced("done")) for one in work]

    monkeypatch.setattr(archive_job, "ArchiveJobs", lambda *_: compact)
    settings = settings_for(tmp_path, compaction={"topics": [{"pattern": "orders", "min_cleanable_dirty_ratio": 0.1}]})
    with tools_for(log_dir, store, tmp_path / "state") as context:
        report = archive(context, log_dir)
        running = replace(context, clock=SystemClock())
        with wire_compaction(settings, running, LocalEngines(), reported.append) as compaction:
            compaction.offer(report.led)
            eventually(lambda: bool(seen))
    state: PartitionState = archived_states(store)["orders-0"]
    (one,) = seen
    assert one.led.root == state.lineage.root
    assert (one.led.end_offset, one.assessment.first_uncleanable_offset) == (state.end_offset, state.end_offset)
    assert one.assessment.cleanable_bytes == sum(segment.parts[0].size_bytes for segment in state.segments)
    assert reported


def test_partitions_that_are_not_led_are_not_offered(tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        assert [led.topic_partition.topic for led in archive(context, log_dir).led] == ["orders"]
        follower = replace(context, facts=FileBrokerFacts([log_dir]))
        assert archive(follower, log_dir).led == []


def test_a_staging_directory_that_cannot_be_made_stops_nobody_who_needs_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    staging = {"staging_dir": str(tmp_path / "file" / "staging")}
    settings = settings_for(tmp_path, gc={"enabled": True}, compaction={**staging, "topics": []})
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with (
        tools_for(log_dir, store, tmp_path / "state") as context,
        wire_compaction(settings, replace(context, clock=SystemClock()), LocalEngines(), lambda _: None) as compaction,
    ):
        assert compaction.thread is not None
        assert archive(context, log_dir).errors == []
        compaction.require_sound()
    assert archived_states(store)["orders-0"].segments


def test_what_was_to_be_compacted_there_before_its_upload_goes_as_it_is_with_an_alarm(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    staging = {"staging_dir": str(tmp_path / "file" / "staging")}
    settings = settings_for(tmp_path, compaction={**staging, "when": "before_upload", "topics": [".*"]})
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    woken = threading.Event()
    with structlog.testing.capture_logs() as logs, tools_for(log_dir, store, tmp_path / "state") as context:
        running = replace(context, clock=SystemClock())
        with wire_compaction(settings, running, LocalEngines(), lambda _: None, wake=woken.set) as compaction:
            rounds = ArchiveLoop(
                context, partial(scan_log_dirs, [log_dir], TopicFilter((".*",))), compaction.before_upload
            )
            assert rounds.run_once().errors == []
            assert archived_states(store) == {}
            assert woken.wait(WAIT_S)
            assert rounds.run_once().errors == []
            compaction.require_sound()
        exposed, _ = context.metrics.exposition()
        assert re.search(rb'errors_total\{kind="StagingFull"\} [1-9]', exposed)
    assert {segment.generation for segment in archived_states(store)["orders-0"].segments} == {0}
    (alarm,) = [entry for entry in logs if entry["event"] == "archived_without_compaction"]
    assert (alarm["log_level"], alarm["reason"]) == ("error", "compaction_failed")
    assert "Not a directory; make it writable" in alarm["detail"]


def test_work_files_of_killed_processes_are_removed_at_the_start_and_those_in_use_stay(tmp_path: Path) -> None:
    program = "import os, sys; from pathlib import Path; from sidecar.spark.scratch import Scratch\n"
    program += "for kind in ('copies', 'compaction'):\n"
    program += "    files = Scratch(Path(sys.argv[1]), kind); (files.path / 'x').write_bytes(b'x')\n"
    program += "    globals()[kind] = files\n"
    program += "os.kill(os.getpid(), 9)"
    staging = tmp_path / "staging"
    subprocess.run([sys.executable, "-c", program, str(staging)], cwd=ROOT, check=False)
    assert len(list(staging.iterdir())) == 2
    settings = settings_for(tmp_path, gc={"enabled": True}, compaction={"staging_dir": str(staging)})
    log_dir = copy_partitions(tmp_path, "orders-0")
    other = Scratch(staging, "compaction")
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        running = replace(context, clock=SystemClock())
        with wire_compaction(settings, running, LocalEngines(), lambda _: None):
            assert list(staging.iterdir()) == []
        used = other.path
        with wire_compaction(settings, running, LocalEngines(), lambda _: None):
            assert list(staging.iterdir()) == [used]
    other.remove()
    assert list(staging.iterdir()) == []


def test_work_files_that_are_asked_for_after_their_end_touch_no_file_of_others(tmp_path: Path) -> None:
    files = Scratch(tmp_path / "staging", "copies")
    with files:
        pass
    with (tmp_path / "another").open("wb") as another:
        with pytest.raises(CompactionCutOff):
            _ = files.path
        assert os.fstat(another.fileno()).st_ino == (tmp_path / "another").stat().st_ino
    assert list((tmp_path / "staging").iterdir()) == []


class LateEngines(LocalEngines):
    """Counts who asks for an engine."""

    def __init__(self) -> None:
        self.asked = 0

    def for_bytes(self, size_bytes: int, *, local_files: bool = False) -> StageEngine:
        self.asked += 1
        return super().for_bytes(size_bytes, local_files=local_files)


def test_a_group_that_a_reload_cut_off_closes_no_file_of_others_and_starts_no_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = tmp_path / "staging"
    parameters = {"when": "before_upload", "topics": [".*"], "staging_dir": str(staging)}
    settings = settings_for(tmp_path, compaction=parameters)
    log_dir, store, engines = copy_partitions(tmp_path, "orders-0", "compacted-0"), MemoryStore(), LateEngines()
    looking, goes_on, waits = threading.Event(), threading.Event(), threading.Event()
    look_at = GroupCompactor._look_at

    def blocked(self: GroupCompactor, *arguments: Any) -> Any:
        if waits.is_set():
            looking.set()
            assert goes_on.wait(WAIT_S)
        return look_at(self, *arguments)

    monkeypatch.setattr(GroupCompactor, "_look_at", blocked)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        running = replace(context, clock=SystemClock())
        woken = threading.Event()
        with wire_compaction(settings, running, engines, lambda _: None, wake=woken.set) as compaction:
            scan = partial(scan_log_dirs, [log_dir], TopicFilter(("compacted",)))
            ArchiveLoop(context, scan, compaction.before_upload).run_once()
            assert woken.wait(WAIT_S)
            assert len(list(staging.iterdir())) == 1
            waits.set()
            scan = partial(scan_log_dirs, [log_dir], TopicFilter((".*",)))
            ArchiveLoop(context, scan, compaction.before_upload).run_once()
            assert looking.wait(WAIT_S)
            asked = engines.asked
        assert compaction.thread is not None
        assert compaction.thread.living()
        with (tmp_path / "another").open("wb") as another:
            goes_on.set()
            eventually(lambda: not compaction.thread.living())
            assert os.fstat(another.fileno()).st_ino == (tmp_path / "another").stat().st_ino
        compaction.require_sound()
    assert engines.asked == asked
    assert list(staging.iterdir()) == []
