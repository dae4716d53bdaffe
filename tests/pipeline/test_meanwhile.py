"""A round in which an upload hangs: what rolls, and what retention takes meanwhile, is planned, held open and told all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Condition, Event, Thread

import pytest

from sidecar.clock import ManualClock
from sidecar.errors import StoreUnavailable
from sidecar.partition.wait_reason import Wait
from sidecar.pipeline.tools import Tools
from sidecar.runner.meanwhile import Busy
from sidecar.runner.round_report import RoundReport
from tests.fakes.memory_store import MemoryStore
from tests.pipeline.held_rig import held_names, open_deleted
from tests.pipeline.rig import (
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

PARTITIONS = ("orders-0", "append-time-0", "codecs-java-0")
WAIT_S = 240.0
LOOK_S = 30


class Hang:
    """A store that answers to nothing from an upload on, until it is let go."""

    def __init__(self) -> None:
        self.due_at: str | None = None
        self.is_silent = False
        self.is_met, self.is_over = Event(), Event()
        self.store = MemoryStore(before=self.before)

    def before(self, operation: str, _key: str) -> None:
        if self.due_at is not None and operation.startswith(self.due_at):
            self.due_at = ""
            self.is_met.set()
            assert self.is_over.wait(WAIT_S)


class Site:
    """Rounds with one worker over partitions whose last two segments have not rolled yet."""

    def __init__(self, tools: Tools, log_dir: Path, hang: Hang) -> None:
        self.tools = replace(tools, is_store_silent=lambda: hang.is_silent)
        self.log_dir, self.hang = log_dir, hang
        self.rounds = rounds_over(self.tools, log_dir)
        self._looks_begun, self._look_ended, self._changed = 0, 0, Condition()
        look = self.rounds._look_meanwhile
        self.rounds._look_meanwhile = lambda busy: self._look_meanwhile(look, busy)  # type: ignore[method-assign]
        self._reports: list[RoundReport] = []
        self._thread = Thread(target=lambda: self._reports.append(self.rounds.run_once()))

    def _look_meanwhile(self, look: Callable[[Busy], None], busy: Busy) -> None:
        with self._changed:
            self._looks_begun += 1
            number = self._looks_begun
        look(busy)
        with self._changed:
            self._look_ended = number
            self._changed.notify_all()

    def roll(self, *partitions: str) -> None:
        """One more segment of each of them is there."""
        for partition in partitions:
            aside = min((self.log_dir.parent / "aside").glob(f"{partition}.*"))
            for path in aside.iterdir():
                path.rename(self.log_dir / partition / path.name)
            aside.rmdir()

    def begin(self, due_at: str = "upload") -> None:
        """A round that hangs from such an operation on."""
        self.hang.due_at = due_at
        self._thread.start()
        assert self.hang.is_met.wait(WAIT_S)

    def look(self) -> None:
        """Time goes by until the disks have been looked at, by a look that begins from now on."""
        assert isinstance(self.tools.clock, ManualClock)
        with self._changed:
            due = self._looks_begun + 1
            for _ in range(int(WAIT_S)):
                # Again: the round may not have begun to wait yet.
                self.tools.clock.advance_ms(LOOK_S * 1000)
                if self._changed.wait_for(lambda: self._look_ended >= due, 1):
                    return
        raise AssertionError("nobody has looked")

    def end(self) -> RoundReport:
        """The store answers, and the round ends."""
        self.hang.due_at, self.hang.is_silent = None, False
        self.hang.is_over.set()
        self._thread.join(WAIT_S)
        return self._reports[0]

    def pending(self, partition: str) -> int:
        """As people are told."""
        looks = {
            str(found.status.topic_partition): found.status for found in status_of(self.tools).figures().partitions
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
def site(tmp_path: Path, **policy: object) -> Iterator[Site]:
    log_dir, hang = copy_partitions(tmp_path, *PARTITIONS), Hang()
    (tmp_path / "aside").mkdir()
    for partition in PARTITIONS:
        for number in (2, 1):
            set_aside_last(log_dir / partition, tmp_path / "aside" / f"{partition}.{number}")
    policy = {"record_lost": True, "look_s": LOOK_S, "round_s": 1000, "uploads_ahead": 1, **policy}
    with tools_for(log_dir, hang.store, tmp_path / "state", **policy) as tools:
        made = Site(tools, log_dir, hang)
        try:
            yield made
        finally:
            if made._thread.ident is not None:
                made.end()


def test_what_rolls_while_an_upload_hangs_is_archived_though_retention_takes_it(tmp_path: Path) -> None:
    with site(tmp_path) as made:
        made.rounds.run_once()
        made.roll("orders-0")
        made.begin()
        made.roll(*PARTITIONS)
        made.look()
        assert held_names(made.tools) == [0, 724, 850, 868]
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


@pytest.mark.parametrize("is_silent", [True, False], ids=["the store is silent", "the round's time is over"])
def test_turns_that_have_not_begun_are_left_to_the_next_round_with_what_rolled_since(
    tmp_path: Path, is_silent: bool
) -> None:
    with site(tmp_path, round_s=1_000_000 if is_silent else LOOK_S + 1) as made:
        made.begin()
        made.look()
        made.hang.is_silent = is_silent
        made.roll(*PARTITIONS)
        made.roll(*PARTITIONS)
        made.look()
        for partition, start in zip(PARTITIONS, (964, 302, 1650), strict=True):
            remove_offsets(made.log_dir / partition, lambda offset, start=start: offset >= start)
        made.look()
        report = made.end()
        assert report.errors == []
        assert [one.reason for one in report.outcomes].count(Wait.ROUND_OVER) >= 2
        while made.rounds.run_once().look_again_s == 0:
            continue
        made.assert_whole()


def test_an_archive_that_is_not_known_is_asked_for_by_a_turn_where_the_store_is_silent(tmp_path: Path) -> None:
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


def test_a_process_that_is_to_end_looks_no_more_and_lets_go(tmp_path: Path) -> None:
    with site(tmp_path) as made:
        made.begin()
        made.roll(*PARTITIONS)
        made.look()
        made.tools.stop.set()
        assert made.end().errors == []
        assert held_names(made.tools) == []
