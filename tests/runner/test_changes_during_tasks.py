"""A task whose upload hangs: what rolls, and what retention takes meanwhile, is planned, pinned and reported all the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from sidecar.errors import StoreDenied, StoreUnavailable
from sidecar.runner.checks import CycleReport
from sidecar.runner.context import RunContext
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.retention.pinned_rig import held_names, open_deleted
from tests.runner.rig import (
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rolled_ranges,
    rounds_over,
    set_aside_last,
    status_of,
    tools_for,
)
from tests.runner.waiting import within

PARTITIONS = ("orders-0", "append-time-0", "codecs-java-0")
WAIT_S = 240.0
LOOK_S = 30


class Hang:
    """A store that answers to nothing from an upload on, until it is let go."""

    def __init__(self) -> None:
        self.due_at: str | None = None
        self.partition = ""
        self.is_silent = False
        self.is_met, self.is_over = Event(), Event()
        self.store = MemoryStore(before=self.before)

    def before(self, operation: str, key: str) -> None:
        if self.due_at is not None and operation.startswith(self.due_at) and self.partition in {"", _partition_of(key)}:
            self.due_at, self.partition = "", _partition_of(key)
            self.is_met.set()
            assert self.is_over.wait(WAIT_S)


def _partition_of(key: str) -> str:
    """As its directory is named; "" for keys of no partition."""
    return next((name for name in PARTITIONS if f"/{name.rpartition('-')[0]}/" in key), "")


class Site:
    """A loop with one worker over partitions whose last two segments have not rolled yet."""

    def __init__(self, context: RunContext, log_dir: Path, hang: Hang) -> None:
        self.context = replace(context, is_store_silent=lambda: hang.is_silent)
        self.log_dir, self.hang = log_dir, hang
        self.rounds = rounds_over(self.context, log_dir)
        self.is_open = False

    def roll(self, *partitions: str) -> None:
        """One more segment of each of them is there."""
        for partition in partitions:
            aside = min((self.log_dir.parent / "aside").glob(f"{partition}.*"))
            for path in aside.iterdir():
                path.rename(self.log_dir / partition / path.name)
            aside.rmdir()
            # Clocks of file systems tick every few milliseconds, and the clock of the test says that the directory is settled.
            found = (self.log_dir / partition).stat()
            os.utime(self.log_dir / partition, ns=(found.st_atime_ns, found.st_mtime_ns + 100_000_000))

    def open(self) -> None:
        """Begin the loop's threads."""
        self.rounds.__enter__()
        self.is_open = True

    def begin(self, due_at: str = "upload") -> None:
        """A check, and tasks of which one hangs from such an operation on."""
        self.hang.due_at = due_at
        self.open()
        self.rounds.begin_check()
        self.rounds.drive(within(WAIT_S, self.hang.is_met.is_set))
        assert self.hang.is_met.is_set()

    def look(self, after_s: int = LOOK_S) -> CycleReport:
        """Another check, while the task hangs."""
        assert isinstance(self.context.clock, ManualClock)
        self.context.clock.advance_ms(after_s * 1000)
        return self.rounds.cycle()

    def end(self) -> CycleReport:
        """The store answers, and all comes to its end."""
        self.hang.due_at, self.hang.is_silent = None, False
        self.hang.is_over.set()
        report = self.rounds.finish()
        self.close()
        return report

    def close(self) -> None:
        """End the loop's threads."""
        self.hang.is_over.set()
        if self.is_open:
            self.is_open = False
            self.rounds.__exit__(None, None, None)

    def pending(self, partition: str) -> int:
        """As people read it."""
        looks = {
            str(found.status.topic_partition): found.status for found in status_of(self.context).figures().partitions
        }
        return looks[partition].pending_segments

    def assert_whole(self) -> None:
        """All that ever rolled is archived, and nothing is left open."""
        found = archived_states(self.hang.store)
        aside = copy_partitions(self.log_dir.parent / "all", *PARTITIONS)
        assert {name: ranges(state) for name, state in found.items()} == {
            name: rolled_ranges(aside, name) for name in PARTITIONS
        }
        assert all(state.holes == () for state in found.values())
        assert open_deleted(self.log_dir) == []


@contextmanager
def site(tmp_path: Path, **policy: Any) -> Iterator[Site]:
    log_dir, hang = copy_partitions(tmp_path, *PARTITIONS), Hang()
    (tmp_path / "aside").mkdir()
    for partition in PARTITIONS:
        for number in (2, 1):
            set_aside_last(log_dir / partition, tmp_path / "aside" / f"{partition}.{number}")
    policy = {"record_lost": True, "uploads_ahead": 1, **policy}
    with tools_for(log_dir, hang.store, tmp_path / "state", **policy) as context:
        made = Site(context, log_dir, hang)
        try:
            yield made
        finally:
            made.close()


def test_what_rolls_while_an_upload_hangs_is_archived_though_retention_takes_it(tmp_path: Path) -> None:
    with site(tmp_path) as made:
        made.rounds.run_once()
        made.roll("orders-0")
        made.begin()
        made.roll(*PARTITIONS)
        made.look()
        assert held_names(made.context) == [0, 724, 850, 868]
        assert [made.pending(partition) for partition in PARTITIONS] == [2, 1, 1]
        for partition, start in zip(PARTITIONS, (964, 104, 1250), strict=True):
            remove_offsets(made.log_dir / partition, lambda offset, start=start: offset >= start)
        made.look()
        assert [made.pending(partition) for partition in PARTITIONS] == [2, 1, 1], "what is only held open, too"
        made.roll("append-time-0", "codecs-java-0")
        made.look()
        report = made.end()
        assert report.errors == []
        assert made.rounds.run_once().errors == []
        made.assert_whole()


def test_partitions_without_a_task_are_planned_and_pinned_while_another_hangs(tmp_path: Path) -> None:
    with site(tmp_path) as made:
        made.begin()
        made.look()
        made.roll(*PARTITIONS)
        made.roll(*PARTITIONS)
        made.look()
        for partition, start in zip(PARTITIONS, (964, 302, 1650), strict=True):
            remove_offsets(made.log_dir / partition, lambda offset, start=start: offset >= start)
        made.look()
        assert made.end().errors == []
        made.assert_whole()


def test_a_task_that_hangs_keeps_no_other_partition_from_being_archived(tmp_path: Path) -> None:
    with site(tmp_path, workers=2) as made:
        made.begin()
        made.roll(*PARTITIONS)
        made.look()
        others = {f"{partition}" for partition in PARTITIONS} - {made.hang.partition}

        def are_archived() -> bool:
            found = archived_states(made.hang.store)
            return all(name in found and ranges(found[name]) == rolled_ranges(made.log_dir, name) for name in others)

        made.rounds.drive(within(WAIT_S, are_archived))
        assert are_archived()
        assert made.hang.partition not in archived_states(made.hang.store)
        assert made.end().errors == []


def test_what_rolls_before_an_archive_could_be_read_is_pinned_where_the_store_is_silent(tmp_path: Path) -> None:
    with site(tmp_path) as made:
        made.hang.store.before = _fails
        assert {type(error) for error in made.rounds.run_once().errors} == {StoreUnavailable}
        made.hang.store.before = made.hang.before
        made.hang.is_silent = True
        made.begin("")
        made.roll(*PARTITIONS)
        made.look()
        made.roll(*PARTITIONS)
        made.look()
        for partition, start in zip(PARTITIONS, (964, 302, 1650), strict=True):
            remove_offsets(made.log_dir / partition, lambda offset, start=start: offset >= start)
        made.look()
        assert made.end().errors == []
        assert made.rounds.run_once().errors == []
        made.assert_whole()


def _fails(_operation: str, _key: str) -> None:
    raise StoreUnavailable("no answer")


def test_what_rolls_above_a_gap_is_pinned_though_what_lies_below_waits(tmp_path: Path) -> None:
    name = PARTITIONS[0]
    with site(tmp_path) as made:
        made.hang.store.before = _takes_no_upload
        made.open()
        made.look()
        made.rounds.finish()
        made.roll(name)
        made.roll(name)
        *_, lost, last = spans = rolled_ranges(made.log_dir, name)
        remove_offsets(made.log_dir / name, lambda offset: offset >= last[0])
        for _ in range(2):  # Only the leader's next answer shows that retention took what is gone.
            made.look()
            made.rounds.finish()
        remove_offsets(made.log_dir / name, lambda offset: offset >= last[1])
        made.hang.store.before = made.hang.before
        for _ in range(4):
            made.look()
            assert made.rounds.finish().errors == []
    state = archived_states(made.hang.store)[name]
    assert ranges(state) == [span for span in spans if span != lost]
    assert [(hole.base_offset, hole.end_offset) for hole in state.holes] == [lost]


def _takes_no_upload(operation: str, _key: str) -> None:
    if operation == "upload":
        raise StoreUnavailable("no answer")


def _denies(_operation: str, _key: str) -> None:
    raise StoreDenied("the key has expired")


@pytest.mark.parametrize("retry_wait_s", [0, 3_600], ids=["each check tries again", "all back off"])
def test_what_rolls_while_the_store_denies_is_pinned(tmp_path: Path, retry_wait_s: int) -> None:
    with site(tmp_path, retry_wait_s=retry_wait_s) as made:
        assert made.rounds.run_once().errors == []
        made.hang.store.before = _denies
        made.open()
        for _ in range(2):
            made.roll(*PARTITIONS)
            made.look()
            made.rounds.finish()
        for partition, start in zip(PARTITIONS, (964, 302, 1650), strict=True):
            remove_offsets(made.log_dir / partition, lambda offset, start=start: offset >= start)
        made.hang.store.before = made.hang.before
        for _ in range(2):
            made.look(1 + retry_wait_s)
            assert made.rounds.finish().errors == []
        made.close()
        made.assert_whole()


def test_a_process_that_is_to_end_looks_no_more_and_lets_go(tmp_path: Path) -> None:
    with site(tmp_path) as made:
        made.begin()
        made.roll(*PARTITIONS)
        made.look()
        made.context.stop.set()
        assert made.end().errors == []
        assert held_names(made.context) == []
