"""What waits for the same reason for minutes is reported in the log, once, and so is its end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sidecar.broker.files import FileBrokerFacts
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import CoverageHole
from sidecar.model import PartitionFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.wait_reason import (
    AboveHighWatermark,
    Away,
    LeaderUnknown,
    NoStableOffset,
    OpenTransaction,
    Wait,
    WaitReason,
    render,
)
from sidecar.ports import FactsState
from sidecar.runner.long_waits import LONG_WAIT_S, LongWaits
from tests.compactor.before_upload_rig import rig as before_upload_rig
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.runner.rig import copy_partitions, tools_for
from tests.runner.test_asking_the_broker import AWAY, Leadership, rounds_of

EVENTS = {"segments_delayed", "segments_wait_over"}
HELD = AboveHighWatermark(0, 100)


@pytest.fixture(scope="module")
def files() -> PartitionFiles:
    found = scan_log_dirs([golden("4.3.0") / "logs"], TopicFilter(("orders",))).partitions
    return found[0]


@dataclass
class Looks:
    """Looks at one partition, by an injected clock."""

    files: PartitionFiles
    clock: ManualClock = field(default_factory=lambda: ManualClock(0))

    def __post_init__(self) -> None:
        self.waits = LongWaits(self.clock)

    def plan(self, reason: WaitReason | None, waiting: int = 2, first: int = 0, **facts: Any) -> PartitionPlan:
        reported = PartitionFacts(self.files.topic_partition, None, **{"leads": True, **facts}, **EPOCH_AND_ENDS)
        return PartitionPlan(self.files, reported, (), self.files.segments[first : first + waiting], reason)

    def look(
        self, after_s: float, *plans: PartitionPlan, away: Away | None = None, is_present: bool = True
    ) -> list[tuple[str, int]]:
        self.clock.sleep_s(after_s)
        present = {self.files.topic_partition} if is_present else set()
        with capture_logs() as logs:
            self.waits.looked(plans, away, present)
        assert {(line["event"], line["log_level"]) for line in logs} <= {
            ("segments_delayed", "warning"),
            ("segments_wait_over", "info"),
        }
        return [(line["event"], line["waited_s"]) for line in logs]


EPOCH_AND_ENDS: dict[str, Any] = {"leader_epoch": 4, "stable_end_offset": 100, "log_start_offset": 0}


@pytest.fixture
def looks(files: PartitionFiles) -> Looks:
    return Looks(files)


def test_it_is_reported_once_when_it_has_lasted_and_once_when_it_is_over(looks: Looks) -> None:
    waits = looks.plan(HELD)
    assert looks.look(0, waits) == []
    assert looks.look(LONG_WAIT_S - 1, waits) == []
    assert looks.look(1, waits) == [("segments_delayed", 300)]
    assert looks.look(5 * LONG_WAIT_S, waits) == []
    assert looks.look(1, looks.plan(None, waiting=0)) == [("segments_wait_over", 1801)]
    assert looks.look(LONG_WAIT_S, looks.plan(None, waiting=0)) == []


def test_figures_in_a_reason_make_no_other_one(looks: Looks) -> None:
    assert looks.look(0, looks.plan(HELD)) == []
    assert looks.look(LONG_WAIT_S, looks.plan(AboveHighWatermark(0, 139))) == [("segments_delayed", 300)]


@pytest.mark.parametrize(
    ("before", "later"),
    [
        (OpenTransaction(0, 7, 50, 100), OpenTransaction(0, 7, 50, 139)),
        (OpenTransaction(0, 7, 50, 100), OpenTransaction(0, 7, 90, 139)),
        (OpenTransaction(0, 7, 50, 100), OpenTransaction(0, 8, 60, 139)),
        (NoStableOffset(4, "no answer"), NoStableOffset(5, "FENCED_LEADER_EPOCH")),
    ],
)
def test_a_segment_that_one_transaction_or_leader_after_another_holds_waits_on(
    before: WaitReason, later: WaitReason, looks: Looks
) -> None:
    assert looks.look(0, looks.plan(before)) == []
    assert looks.look(LONG_WAIT_S, looks.plan(later)) == [("segments_delayed", 300)]
    assert looks.look(1, looks.plan(before)) == []


def test_another_segment_is_another_wait(looks: Looks) -> None:
    assert looks.look(0, looks.plan(OpenTransaction(0, 7, 50, 100))) == []
    assert looks.look(LONG_WAIT_S, looks.plan(OpenTransaction(140, 7, 50, 139))) == []


def test_a_partition_that_gets_on_does_not_wait(looks: Looks) -> None:
    for first in range(4):
        assert looks.look(LONG_WAIT_S - 1, looks.plan(HELD, first=first)) == []


def test_another_reason_is_waited_for_anew(looks: Looks) -> None:
    assert looks.look(0, looks.plan(HELD)) == []
    assert looks.look(LONG_WAIT_S, looks.plan(HELD)) == [("segments_delayed", 300)]
    other = looks.plan(Wait.CLEANER_RUNNING)
    assert looks.look(1, other) == [("segments_wait_over", 301)]
    assert looks.look(LONG_WAIT_S, other) == [("segments_delayed", 300)]


@pytest.mark.parametrize(
    "changes",
    [
        {"facts": {"leads": False}},
        {"is_on_purpose": True},
        {"error": CoverageHole("reported by itself")},
        {"reason": None},
        {"waiting": ()},
    ],
)
def test_what_is_right_at_rest_or_reported_by_itself_is_not_reported(changes: dict[str, Any], looks: Looks) -> None:
    plan = looks.plan(HELD, **changes.pop("facts", {}))
    for _ in range(3):
        assert looks.look(LONG_WAIT_S, replace(plan, **changes)) == []


def test_a_leader_that_does_not_answer_is_reported(looks: Looks) -> None:
    plan = looks.plan(NoStableOffset(4, "no answer"), leads=False, unanswered=True)
    assert looks.look(0, plan) == []
    assert looks.look(LONG_WAIT_S, plan) == [("segments_delayed", 300)]


@pytest.mark.parametrize("reason", [Wait.NO_LEADER, LeaderUnknown("LEADER_NOT_AVAILABLE")])
def test_a_partition_that_no_broker_leads_is_reported(reason: WaitReason, looks: Looks) -> None:
    plan = looks.plan(reason, leads=False)
    plan = replace(plan, facts=replace(plan.facts, reason=reason))
    assert looks.look(0, plan) == []
    assert looks.look(LONG_WAIT_S, plan) == [("segments_delayed", 300)]


def test_a_broker_that_is_away_tells_nothing_new(looks: Looks) -> None:
    waits, away = looks.plan(HELD), looks.plan(AWAY)
    assert looks.look(0, waits) == []
    assert looks.look(2 * LONG_WAIT_S, away, away=AWAY) == []
    assert looks.look(1, waits) == [("segments_delayed", 601)]


def test_a_partition_that_rests_waits_on_and_one_that_is_gone_does_not(looks: Looks) -> None:
    waits = looks.plan(HELD)
    assert looks.look(0, waits) == []
    assert looks.look(LONG_WAIT_S) == []
    assert looks.look(1, waits) == [("segments_delayed", 301)]
    assert looks.look(1, is_present=False) == []
    assert looks.look(LONG_WAIT_S, waits) == []


class Refusing(Leadership):
    """A broker that answers, but says nothing of this partition but a reason."""

    def state(self) -> FactsState:
        return FactsState(None)


@pytest.mark.parametrize(
    ("reason", "reported"), [(NoStableOffset(4, "FENCED_LEADER_EPOCH"), 1), (Wait.LEADERSHIP_NOT_ON_DISK, 0)]
)
def test_rounds_tell_it(reason: Any, reported: int, tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    facts = Refusing(FileBrokerFacts([log_dir], assume_leader=True), away=reason, leads=reported > 0)
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        context = replace(context, facts=facts)
        rounds = rounds_of(context, log_dir)
        with capture_logs() as logs:
            for _ in range(4):
                assert rounds.run_once().errors == []
                context.clock.sleep_s(LONG_WAIT_S / 2)
        found = [line for line in logs if line["event"] in EVENTS]
        assert [(line["event"], line["from_offset"], line["reason"]) for line in found] == [
            ("segments_delayed", 0, render(reason))
        ] * reported
        facts.away, facts.leads = None, True
        with capture_logs() as logs:
            rounds.run_once()
        assert [line["event"] for line in logs if line["event"] in EVENTS] == ["segments_wait_over"] * reported


def test_what_waits_to_be_compacted_first_waits_on_purpose(tmp_path: Path) -> None:
    with before_upload_rig(tmp_path, "orders-0") as site, capture_logs() as logs:
        for _ in range(3):
            site.round()
            site.context.clock.sleep_s(LONG_WAIT_S * 0.9)
    assert [line["event"] for line in logs if line["event"] in EVENTS] == []
