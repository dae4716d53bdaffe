"""What begins, ends, vanishes or is listed again while a check is under way, and which task has which partition meanwhile."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from sidecar.archive.keys import below
from sidecar.broker.files import FileBrokerFacts
from sidecar.clock import SystemClock
from sidecar.discovery.scan import ScanResult
from sidecar.errors import PartitionError, StoreUnavailable
from sidecar.host.log_dir_fingerprint import LogDirFingerprint
from sidecar.model import ArchivedSegment, PartitionFiles, TopicPartition
from sidecar.partition.facts import PartitionFacts
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.checks import LATE_S
from sidecar.runner.context import RunContext
from tests.descriptors import open_below
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.retention.pinned_rig import held_names
from tests.runner.rig import (
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rolled_ranges,
    rounds_over,
    sample,
    set_aside_last,
    status_of,
    tools_for,
)
from tests.runner.test_asking_the_broker import Leadership
from tests.runner.waiting import within

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
def gated(tmp_path: Path, *topics: str, **policy: Any) -> Iterator[tuple[RunContext, ArchiveLoop, Gates, Path]]:
    log_dir, gates = copy_partitions(tmp_path, *(f"{topic}-0" for topic in topics)), Gates()
    with tools_for(log_dir, gates.store, tmp_path / "state", uploads_ahead=1, **policy) as context:
        loop = rounds_over(context, log_dir)
        with loop:
            try:
                yield context, loop, gates, log_dir
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
    with gated(tmp_path, *TOPICS, workers=2) as (_context, loop, gates, log_dir):
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
        loop.drive(within(WAIT_S, lambda: second.met.is_set() and len(loop.tasks) == 1))
        opening.opened.set()
        loop.drive(within(WAIT_S, lambda: not loop.checks.is_under_way))
        loop.drive(passed(1.0))
        second.opened.set()
        assert loop.finish().errors == []
        assert_whole(gates, log_dir)


def test_what_a_task_was_planned_with_by_a_listing_of_its_own_is_pinned_by_the_next_check(tmp_path: Path) -> None:
    with gated(tmp_path, "orders", workers=1, record_lost=True) as (context, loop, gates, log_dir):
        directory = log_dir / "orders-0"
        spans = rolled_ranges(log_dir, "orders-0")
        for number in (2, 1):
            set_aside_last(directory, tmp_path / f"aside.{number}")
        first = gates.close("upload", "orders", ".log")
        loop.begin_check()
        loop.drive(within(WAIT_S, lambda: first.met.is_set() and not loop.checks.is_under_way))
        for number in (1, 2):
            for path in (tmp_path / f"aside.{number}").iterdir():
                path.rename(directory / path.name)
        second = gates.close("upload", "orders", f"{spans[-2][0]:020}")
        first.opened.set()
        loop.drive(within(WAIT_S, second.met.is_set))
        loop.cycle()
        assert held_names(context) == [base_offset for base_offset, _ in spans[-2:]]
        remove_offsets(directory, lambda offset: offset >= spans[-1][1])
        loop.cycle()
        second.opened.set()
        assert loop.finish().errors == []
    state = archived_states(gates.store)["orders-0"]
    assert (ranges(state), state.holes) == (spans, ())


class LosesOrders(Leadership):
    """A broker that leads `orders` no more once it `has_lost` it."""

    has_lost = False

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        self.leads = not (self.has_lost and files.topic_partition.topic == "orders")
        return super().partition(files)


@pytest.mark.parametrize("loses", [False, True])
def test_a_partition_whose_task_fails_during_a_check_stays_in_the_status(loses: bool, tmp_path: Path) -> None:
    with gated(tmp_path, "orders", workers=2, retry_wait_s=60) as (context, loop, gates, log_dir):
        facts = LosesOrders(FileBrokerFacts([log_dir], assume_leader=True))
        object.__setattr__(context, "facts", facts)
        busy = gates.close("upload", "orders", ".log")

        def fails(operation: str, key: str) -> None:
            gates.before(operation, key)
            _no_upload_of_orders(operation, key)

        gates.store.before = fails
        loop.begin_check()
        loop.drive(within(WAIT_S, lambda: busy.met.is_set() and not loop.checks.is_under_way))
        shutil.copytree(golden("4.3.0") / "logs" / "single-0", log_dir / "single-0")
        opening, facts.has_lost = gates.close("list", "single"), loses
        loop.begin_check()
        loop.drive(within(WAIT_S, opening.met.is_set))
        busy.opened.set()
        loop.drive(within(WAIT_S, lambda: not loop.tasks))
        opening.opened.set()
        loop.drive(within(WAIT_S, lambda: not loop.checks.is_under_way))
        shown = {str(each.status.topic_partition): each.status for each in status_of(context).figures().partitions}
        assert shown.keys() == {"orders-0", "single-0"}
        orders = shown["orders-0"]
        assert (orders.error, orders.leads, orders.pending_segments > 0) == ("StoreUnavailable", not loses, not loses)
        rolled = [base_offset for base_offset, _ in rolled_ranges(log_dir, "orders-0")]
        assert held_names(context) == ([] if loses else rolled)


def test_a_partition_is_led_again_when_its_log_dir_can_be_listed_again(tmp_path: Path) -> None:
    with gated(tmp_path, "orders") as (_context, loop, _gates, log_dir):
        assert len(loop.run_once().led) == 1
        assert len(loop.run_once().led) == 1
        log_dir.rename(tmp_path / "away")
        assert loop.run_once().led == []
        (tmp_path / "away").rename(log_dir)
        assert len(loop.run_once().led) == 1


def test_a_fault_of_a_partition_that_backs_off_stops_no_check(tmp_path: Path) -> None:
    def fails(_files: PartitionFiles) -> LogDirFingerprint:
        raise PartitionError("the disk fails")

    with gated(tmp_path, "orders", "codecs-java", retry_wait_s=60) as (context, loop, gates, log_dir):
        gates.store.before = _no_upload_of_orders
        (failed,) = loop.run_once().errors
        assert isinstance(failed, StoreUnavailable)
        first = min((log_dir / "orders-0").glob("*.log"))
        first.unlink()
        context.disk.fingerprint = fails  # type: ignore[method-assign]
        assert loop.cycle().errors == []


def _no_upload_of_orders(operation: str, key: str) -> None:
    if operation == "upload" and "/orders/" in key:
        raise StoreUnavailable("no answer")


def test_a_dry_run_reports_an_archive_that_takes_long_and_cannot_be_read(tmp_path: Path) -> None:
    with gated(tmp_path, "orders", "codecs-java") as (context, loop, gates, _log_dir):

        def slow(operation: str, key: str) -> None:
            if "/orders/" in key:
                context.clock.sleep_s(LATE_S)
                raise StoreUnavailable("no answer")

        gates.store.before = slow
        work, report = loop.plan()
        assert [str(plan.files.topic_partition) for _, plan in work] == ["codecs-java-0"]
        assert [type(error) for error in report.errors] == [StoreUnavailable]


def test_what_is_archived_does_not_stay_waiting_after_a_check_that_ended_without_its_archive(tmp_path: Path) -> None:
    with gated(tmp_path, "orders") as (_context, loop, gates, log_dir):
        assert loop.run_once().errors == []
    with tools_for(log_dir, gates.store, tmp_path / "state") as context, rounds_over(context, log_dir) as restarted:
        opening = gates.close("list", "orders")
        restarted.begin_check()
        restarted.drive(within(WAIT_S, opening.met.is_set))
        context.clock.sleep_s(LATE_S)
        restarted.drive(within(WAIT_S, lambda: not restarted.checks.is_under_way))
        (late,) = status_of(context).figures().partitions
        assert (late.status.pending_segments, sample(context, "data_at_risk_in_seconds")) != (0, math.inf)
        opening.opened.set()
        restarted.drive(within(WAIT_S, lambda: not restarted.tasks.plannings))
        (read,) = status_of(context).figures().partitions
        assert (read.status.pending_segments, sample(context, "data_at_risk_in_seconds")) == (0, math.inf)
        assert sample(context, "pending_segments") == 0


def test_a_check_that_found_partitions_has_not_found_nothing(tmp_path: Path) -> None:
    with gated(tmp_path, "orders") as (_context, loop, _gates, log_dir):
        assert not loop.cycle().found_nothing
        loop.finish()
        shutil.rmtree(log_dir / "orders-0")
        assert loop.cycle().found_nothing


class DecidedFacts(Leadership):
    """A leader whose log start is as it was at the last question. `log_start`: what it is now."""

    log_start = 0

    def refresh(self) -> None:
        super().refresh()
        self.cluster_start_offset = self.log_start

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        return replace(super().partition(files), transactions_decided=True)


def test_an_answer_from_before_a_listing_does_not_settle_what_it_found_gone(tmp_path: Path) -> None:
    with gated(tmp_path, "orders", workers=1, record_lost=True) as (context, loop, gates, log_dir):
        facts = DecidedFacts(FileBrokerFacts([log_dir], assume_leader=True))
        object.__setattr__(context, "facts", facts)
        directory, scan = log_dir / "orders-0", loop.checks.scan
        spans = rolled_ranges(log_dir, "orders-0")
        for number in (2, 1):
            set_aside_last(directory, tmp_path / f"aside.{number}")
        last = gates.close("upload", "orders", f"{spans[-3][0]:020}")
        loop.begin_check()
        loop.drive(within(WAIT_S, lambda: last.met.is_set() and not loop.checks.is_under_way))
        for number in (1, 2):
            for path in (tmp_path / f"aside.{number}").iterdir():
                path.rename(directory / path.name)
        loop.cycle()
        assert held_names(context)[-2:] == [base_offset for base_offset, _ in spans[-2:]]
        asked, goes_on = Event(), Event()

        def slow_scan(doubted: Collection[Path] = ()) -> ScanResult:
            asked.set()
            assert goes_on.wait(WAIT_S)
            return scan(doubted)

        loop.checks.scan = slow_scan
        loop.begin_check()
        loop.drive(within(WAIT_S, asked.is_set))
        facts.log_start = spans[-1][1]
        remove_offsets(directory, lambda offset: offset >= spans[-1][1])
        last.opened.set()
        loop.drive(within(WAIT_S, lambda: not (loop.tasks or loop.tasks.plannings)))
        goes_on.set()
        loop.drive(within(WAIT_S, lambda: not loop.checks.is_under_way))
        loop.checks.scan = scan
        loop.finish()
        assert loop.run_once().errors == []
    state = archived_states(gates.store)["orders-0"]
    assert (ranges(state), state.holes) == (spans, ())


def test_an_interrupt_between_a_commit_and_its_next_step_ends_the_work(tmp_path: Path) -> None:
    def interrupted(_partition: TopicPartition, _segment: ArchivedSegment) -> None:
        raise KeyboardInterrupt

    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=1) as context:
        loop = rounds_over(context, log_dir)
        with pytest.raises(KeyboardInterrupt):
            loop.run_once(interrupted)
        assert len(archived_states(store)["orders-0"].segments) == 1
        assert open_below(log_dir) == []


def test_a_partition_that_vanished_while_it_waited_for_a_worker_is_archived_when_it_is_back(tmp_path: Path) -> None:
    with gated(tmp_path, "codecs-java", "orders", workers=1) as (_context, loop, gates, log_dir):
        busy = [gates.close("upload", topic, ".log") for topic in ("codecs-java", "orders")]
        loop.begin_check()
        loop.drive(within(WAIT_S, lambda: any(gate.met.is_set() for gate in busy) and not loop.checks.is_under_way))
        (queued,) = (gate for gate in busy if not gate.met.is_set())
        scan = loop.checks.scan
        shutil.copytree(golden("4.3.0") / "logs" / "single-0", log_dir / "single-0")
        opening = gates.close("list", "single")

        def without_it(doubted: Collection[Path] = ()) -> ScanResult:
            found = scan(doubted)
            return replace(
                found, partitions=tuple(f for f in found.partitions if f.topic_partition.topic != queued.topic)
            )

        loop.checks.scan = without_it
        loop.begin_check()
        loop.drive(within(WAIT_S, opening.met.is_set))
        for gate in busy:
            if gate is not queued:
                gate.opened.set()
        loop.drive(passed(1.0))
        loop.checks.scan = scan
        opening.opened.set()
        loop.drive(within(WAIT_S, lambda: not loop.checks.is_under_way))
        loop.begin_check()
        loop.drive(within(WAIT_S, queued.met.is_set))
        queued.opened.set()
        loop.drive(within(WAIT_S, lambda: not loop.is_busy))
        assert_whole(gates, log_dir)
        assert not loop.tasks.returning
