"""An idle partition is not planned again and has no task, check after check, until something that matters changes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.broker.files import FileBrokerFacts
from sidecar.errors import PartitionError
from sidecar.host.journal import Attempt
from sidecar.model import ObjectKey, PartitionFiles, SegmentFiles, TopicPartition
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.wait_reason import BehindArchive, BrokerAway, NotLeader
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.context import RunContext
from sidecar.runner.copy_executor import CopyExecutor
from sidecar.runner.partition_archiver import PartitionArchiver, Planning, idle_plan
from tests.archive.builders import LINEAGE
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.runner.rig import archived_states, copy_partitions, remove_offsets, rounds_over, status_of, tools_for

ORDERS = TopicPartition("orders", 0)


class ChangingFacts(FileBrokerFacts):
    """Facts that a test changes."""

    changes: dict[str, object] = {}  # noqa: RUF012 - replaced, never changed

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        """As the files have it, with the changes."""
        return replace(super().partition(files), **self.changes)  # type: ignore[arg-type]

    def confirm(self, files: PartitionFiles) -> PartitionFacts:
        """The same."""
        return self.partition(files)


@dataclass
class Idle:
    """Rounds over a partition whose segments are all archived, and what each round has done."""

    context: RunContext
    rounds: ArchiveLoop
    store: MemoryStore
    facts: ChangingFacts
    directory: Path
    done: Counter[str]

    def round(self) -> dict[str, int]:
        """How often the partition was planned again and had a task, and how many requests that took."""
        self.done.clear()
        self.store.calls.clear()
        self.report = self.rounds.run_once()
        return {"plans": self.done["plans"], "tasks": self.done["tasks"], "requests": self.store.calls.total()}


IDLE = {"plans": 0, "tasks": 0, "requests": 0}


@pytest.fixture
def idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Idle]:
    done: Counter[str] = Counter()
    planning, begin = PartitionArchiver.planning, CopyExecutor.begin

    def counted_planning(self: PartitionArchiver, *, lists: bool = False) -> Planning:
        done["plans"] += 1
        return planning(self, lists=lists)

    def counted_begin(self: CopyExecutor, end_s: float) -> None:
        done["tasks"] += 1
        begin(self, end_s)

    monkeypatch.setattr(PartitionArchiver, "planning", counted_planning)
    monkeypatch.setattr(CopyExecutor, "begin", counted_begin)
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    newest = max((log_dir / "orders-0").glob("*.log")).stem
    remove_offsets(log_dir / "orders-0", lambda offset: offset < int(newest))
    facts = ChangingFacts([log_dir], assume_leader=True)
    with tools_for(log_dir, store, tmp_path / "state") as made:
        context = replace(made, facts=facts)
        idle = Idle(context, rounds_over(context, log_dir), store, facts, log_dir / "orders-0", done)
        assert idle.round()["requests"] > 0
        idle.round()
        assert idle.round() == IDLE, "the plan behind the last commit, and its task, have found nothing left"
        yield idle


def test_nothing_is_done_where_nothing_changes(idle: Idle) -> None:
    before, archived = idle.report, archived_states(idle.store)
    for _ in range(3):
        assert idle.round() == IDLE
        assert idle.report.outcomes == before.outcomes
        assert idle.report.led == before.led != []
    assert archived_states(idle.store) == archived


def test_a_rolled_segment_is_seen(idle: Idle) -> None:
    source = golden("4.3.0") / "logs" / "orders-0"
    for file in source.iterdir():
        if not (idle.directory / file.name).exists():
            shutil.copy2(file, idle.directory)
    assert idle.round()["plans"] == 1
    assert sum(len(outcome.archived) for outcome in idle.report.outcomes) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"leads": False, "reason": NotLeader()},
        {"leader_epoch": 99},
        {"stable_end_offset": 1},
        {"reason": BrokerAway("no answer")},
        {"topic_id": None},
        {"log_start_offset": 7},
        {"transactions_decided": True},
        {"cluster_start_offset": 3},
        {"unanswered": True},
    ],
)
def test_changed_facts_are_seen_and_then_stand_themselves(idle: Idle, changes: dict[str, object]) -> None:
    idle.facts.changes = changes
    assert idle.round()["plans"] == 1
    seen = status_of(idle.context).figures().partitions[0].status
    assert seen.leads == bool(changes.get("leads", True))
    idle.facts.changes = {}
    assert idle.round()["plans"] == 1
    idle.round()
    assert idle.round() == IDLE


def test_who_leads_again_reads_the_archive_again(idle: Idle) -> None:
    idle.facts.changes = {"leads": False, "reason": NotLeader()}
    for expected in ({"plans": 1, "tasks": 0, "requests": 0}, IDLE, IDLE):
        assert idle.round() == expected
    idle.facts.changes = {}
    assert idle.round()["requests"] > 0


def test_what_is_forgotten_of_the_archive_is_read_again(idle: Idle) -> None:
    (archiver,) = idle.rounds.checks.archivers
    archiver.known.forget()
    assert idle.round()["requests"] > 0


def test_attempts_that_are_left_take_a_turn(idle: Idle) -> None:
    root = next(iter(archived_states(idle.store).values())).lineage.root
    keys = ObjectKey("segments/left.log"), ObjectKey("segments/left.indexes")
    idle.context.journal.begin(Attempt("left", root, 10**6, 10**6 + 1, *keys, 1, 1, 1, 1))
    assert idle.context.journal.roots() == {root}
    assert idle.round()["tasks"] == 1
    assert idle.context.journal.roots() == frozenset()
    assert idle.round() == IDLE


def test_attempts_are_left_alone_as_long_as_another_broker_leads(idle: Idle) -> None:
    root = next(iter(archived_states(idle.store).values())).lineage.root
    keys = ObjectKey("segments/left.log"), ObjectKey("segments/left.indexes")
    idle.context.journal.begin(Attempt("left", root, 10**6, 10**6 + 1, *keys, 1, 1, 1, 1))
    begun = below(root, keys[0])
    idle.store.put_if_absent(begun, b"bytes")
    idle.facts.changes = {"leads": False, "reason": NotLeader()}
    for _ in range(3):
        found = idle.round()
        assert (found["tasks"], found["requests"]) == (0, 0)
    assert idle.context.journal.roots() == {root}
    assert begun in idle.store.objects
    idle.facts.changes = {}
    idle.round()
    idle.round()
    assert idle.context.journal.roots() == frozenset()
    assert begun not in idle.store.objects


def test_facts_that_cannot_be_read_are_reported_each_time(idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(_: FileBrokerFacts, files: PartitionFiles) -> PartitionFacts:
        raise PartitionError(f"{files.topic_partition}: a checkpoint cannot be read")

    monkeypatch.setattr(ChangingFacts, "partition", unreadable)
    for _ in range(2):
        idle.round()
        assert [str(error) for error in idle.report.errors] == ["orders-0: a checkpoint cannot be read"]


def a_plan(**changes: object) -> PartitionPlan:
    files = PartitionFiles(ORDERS, Path("/logs"), Path("/logs/orders-0"), None, (), 0, (), False)
    facts = PartitionFacts(ORDERS, None, True, 1, 10, 0)
    return replace(PartitionPlan(files, facts, (), ()), **changes)  # type: ignore[arg-type]


STATE = PartitionState(LINEAGE, None, 1)
WAITING = (SegmentFiles(ORDERS, Path("/logs"), 0, 5, None, None, None, None, None),)  # type: ignore[arg-type]
FOLLOWS = replace(a_plan().facts, leads=False, reason=NotLeader())


@pytest.mark.parametrize(
    ("plan", "state", "stands"),
    [
        (a_plan(), STATE, True),
        (a_plan(reason=BehindArchive(9, 5)), STATE, True),
        (a_plan(), None, False),
        (a_plan(segments=WAITING), STATE, False),
        (a_plan(waiting=WAITING), STATE, False),
        (a_plan(hole=(0, 1)), STATE, False),
        (a_plan(error=PartitionError("x")), STATE, False),
        (a_plan(recheck_in_ms=5), STATE, False),
        (a_plan(facts=FOLLOWS, waiting=WAITING), None, True),
        (a_plan(facts=FOLLOWS, recheck_in_ms=5), None, False),
    ],
)
def test_only_what_waits_for_nothing_stands(plan: PartitionPlan, state: PartitionState | None, stands: bool) -> None:
    assert (idle_plan(plan, state) is not None) == stands


def test_a_plan_holds_only_for_what_it_was_made_from() -> None:
    plan = a_plan()
    known = idle_plan(plan, STATE)
    assert known is not None
    assert known.holds(replace(plan.files), replace(plan.facts), replace(STATE)), "equal, though not the same objects"
    assert not known.holds(replace(plan.files, active_base_offset=1), plan.facts, STATE)
    assert not known.holds(plan.files, replace(plan.facts, stable_end_offset=11), STATE)
    assert not known.holds(plan.files, plan.facts, replace(STATE, next_number=2))
    assert not known.holds(plan.files, plan.facts, None)
