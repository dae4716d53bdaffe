"""What begins, ends, vanishes or is listed again while a check is under way, and which task has which partition meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from sidecar.archive.keys import below
from sidecar.clock import SystemClock
from sidecar.pipeline.tools import Tools
from sidecar.runner.archive_loop import ArchiveLoop
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.pipeline.held_rig import held_names
from tests.pipeline.rig import (
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rolled_ranges,
    rounds_over,
    set_aside_last,
    tools_for,
)
from tests.pipeline.waiting import within

TOPICS = ("append-time", "codecs-java", "orders")
WAIT_S = 60.0


@dataclass(slots=True)
class Gate:
    """Keeps operations on the objects of a topic waiting until it is opened. `met`: one has come."""

    operation: str
    topic: str
    part: str = ""
    met: Event = field(default_factory=Event)
    opened: Event = field(default_factory=Event)


class Gates:
    """A store with gates."""

    def __init__(self) -> None:
        self.all: list[Gate] = []
        self.store = MemoryStore(before=self.before)

    def close(self, operation: str, topic: str, part: str = "") -> Gate:
        self.all.append(Gate(operation, topic, part))
        return self.all[-1]

    def before(self, operation: str, key: str) -> None:
        for gate in tuple(self.all):
            if operation == gate.operation and f"/{gate.topic}/" in key and gate.part in key:
                gate.met.set()
                assert gate.opened.wait(WAIT_S)


@contextmanager
def gated(tmp_path: Path, *topics: str, **policy: Any) -> Iterator[tuple[Tools, ArchiveLoop, Gates, Path]]:
    log_dir, gates = copy_partitions(tmp_path, *(f"{topic}-0" for topic in topics)), Gates()
    with tools_for(log_dir, gates.store, tmp_path / "state", uploads_ahead=1, **policy) as tools:
        loop = rounds_over(tools, log_dir)
        with loop:
            try:
                yield tools, loop, gates, log_dir
            finally:
                for gate in gates.all:
                    gate.opened.set()


def passed(seconds: float) -> Callable[[], bool]:
    """Whether so much time has passed by the machine's own clock."""
    clock = SystemClock()
    end_s = clock.monotonic_s() + seconds
    return lambda: clock.monotonic_s() >= end_s


def assert_whole(gates: Gates, log_dir: Path) -> None:
    """All that rolled is archived, once, and every object that a commit names is there."""
    found = archived_states(gates.store)
    rolled = {path.name: rolled_ranges(log_dir, path.name) for path in log_dir.iterdir() if path.is_dir()}
    for state in found.values():
        for segment in state.segments:
            for key in (segment.log_key, segment.indexes_key):
                assert below(state.lineage.root, key) in gates.store.objects, f"{key} is named by a commit, and gone"
    assert {name: ranges(state) for name, state in found.items()} == {
        name: whole for name, whole in rolled.items() if whole
    }


def test_a_task_that_begins_while_a_check_plans_is_the_only_one_of_its_partition(tmp_path: Path) -> None:
    with gated(tmp_path, *TOPICS, workers=2) as (_tools, loop, gates, log_dir):
        busy = [gates.close("upload", topic, ".log") for topic in TOPICS]
        loop.begin_check()
        loop.drive(within(WAIT_S, lambda: sum(gate.met.is_set() for gate in busy) == 2))
        (queued,) = (gate for gate in busy if not gate.met.is_set())
        queued.opened.set()
        second = gates.close("upload", queued.topic, ".indexes")
        shutil.copytree(golden("4.3.0") / "logs" / "single-0", log_dir / "single-0")
        opening = gates.close("list", "single")
        loop.begin_check()
        loop.drive(within(WAIT_S, opening.met.is_set))
        for gate in busy:
            gate.opened.set()
        loop.drive(within(WAIT_S, lambda: second.met.is_set() and len(loop._tasks) == 1))
        opening.opened.set()
        loop.drive(within(WAIT_S, lambda: loop._check is None))
        loop.drive(passed(1.0))
        second.opened.set()
        assert loop.finish().errors == []
        assert_whole(gates, log_dir)


def test_what_a_task_was_planned_with_by_a_listing_of_its_own_is_pinned_by_the_next_check(tmp_path: Path) -> None:
    with gated(tmp_path, "orders", workers=1, record_lost=True) as (tools, loop, gates, log_dir):
        directory = log_dir / "orders-0"
        spans = rolled_ranges(log_dir, "orders-0")
        for number in (2, 1):
            set_aside_last(directory, tmp_path / f"aside.{number}")
        first = gates.close("upload", "orders", ".log")
        loop.begin_check()
        loop.drive(within(WAIT_S, lambda: first.met.is_set() and loop._check is None))
        for number in (1, 2):
            for path in (tmp_path / f"aside.{number}").iterdir():
                path.rename(directory / path.name)
        second = gates.close("upload", "orders", f"{spans[-2][0]:020}")
        first.opened.set()
        loop.drive(within(WAIT_S, second.met.is_set))
        loop.cycle()
        assert held_names(tools) == [base_offset for base_offset, _ in spans[-2:]]
        remove_offsets(directory, lambda offset: offset >= spans[-1][1])
        loop.cycle()
        second.opened.set()
        assert loop.finish().errors == []
    state = archived_states(gates.store)["orders-0"]
    assert (ranges(state), state.holes) == (spans, ())
