"""A broker that has just started does not tell at once what is stable: `backfill` waits for it, and does not end well without."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from sidecar.broker.files import FileBrokerFacts
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import BrokerUnavailable, PartitionError
from sidecar.logformat.names import RECOVERY_POINT_CHECKPOINT
from sidecar.model import PartitionFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.wait_reason import Away, BrokerAway, NoStableOffset
from sidecar.ports import FactsState
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.backfill import ANSWER_WAIT_S, plan_answered
from sidecar.runner.context import RunContext
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.runner.rig import copy_partitions, rounds_over, tools_for

LOG_DIR = golden("4.3.0") / "logs"


class Starting(FileBrokerFacts):
    """A broker that leads, but says nothing of `orders` at its first looks."""

    def __init__(self, silent_looks: int, away: Away | None = None) -> None:
        self.looks, self.silent_looks, self.away = -1, silent_looks, away  # the first look is the constructor's
        super().__init__([LOG_DIR], assume_leader=True)

    def refresh(self) -> None:
        super().refresh()
        self.looks += 1

    def state(self) -> FactsState:
        return FactsState(0, self.away)

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        facts = super().partition(files)
        if self.looks > self.silent_looks or files.topic_partition.topic != "orders":
            return facts
        return replace(facts, leads=False, reason=NoStableOffset(4, "UNKNOWN_LEADER_EPOCH"), unanswered=True)


def rounds_of(context: RunContext) -> ArchiveLoop:
    return ArchiveLoop(context, partial(scan_log_dirs, [LOG_DIR], TopicFilter(("orders", "append-time"))))


@pytest.mark.parametrize("silent_looks", [0, 3])
def test_it_asks_again_until_all_is_answered(silent_looks: int, tmp_path: Path) -> None:
    facts, clock = Starting(silent_looks), ManualClock(0)
    with tools_for(LOG_DIR, MemoryStore(), tmp_path) as context:
        work, _ = plan_answered(rounds_of(replace(context, facts=facts)), clock)
    assert facts.looks == silent_looks + 1
    assert all(plan.segments and plan.error is None for _, plan in work)


def test_what_stays_unanswered_is_an_error_and_the_others_go_on(tmp_path: Path) -> None:
    facts, clock = Starting(10**6), ManualClock(0)
    with tools_for(LOG_DIR, MemoryStore(), tmp_path) as context:
        rounds = rounds_of(replace(context, facts=facts))
        report = rounds.work(*plan_answered(rounds, clock))
    assert clock.monotonic_s() >= ANSWER_WAIT_S
    errors = {str(found.files.topic_partition): found.error for found in report.outcomes if found.error}
    assert sorted(errors) == ["orders-0", "orders-1"]
    assert all(isinstance(error, PartitionError) for error in errors.values())
    assert "UNKNOWN_LEADER_EPOCH; run again" in str(errors["orders-0"])
    assert report.exit_code == 3
    assert [found.archived for found in report.outcomes if found.files.topic_partition.topic == "append-time"] != [[]]


def test_a_copy_without_the_checkpoint_files_is_an_error(tmp_path: Path) -> None:
    log_dir, clock = copy_partitions(tmp_path, "orders-0"), ManualClock(0)
    (log_dir / RECOVERY_POINT_CHECKPOINT).unlink()
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        rounds = rounds_over(replace(context, facts=FileBrokerFacts([log_dir], assume_leader=True)), log_dir)
        report = rounds.work(*plan_answered(rounds, clock))
    (error,) = report.errors
    assert (report.exit_code, clock.monotonic_s()) == (3, 0)
    assert "copy its checkpoint files, too" in str(error)


def test_a_broker_that_is_away_is_not_waited_for(tmp_path: Path) -> None:
    clock = ManualClock(0)
    with tools_for(LOG_DIR, MemoryStore(), tmp_path) as context:
        rounds = rounds_of(replace(context, facts=Starting(1, away=BrokerAway("connection refused"))))
        with pytest.raises(BrokerUnavailable, match="connection refused"):
            plan_answered(rounds, clock)
    assert clock.monotonic_s() < ANSWER_WAIT_S
