"""What a round that cannot even begin tells: probes and metrics name the reason, not that of the round before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import pytest
from structlog.testing import capture_logs

from sidecar.broker.files import FileBrokerFacts
from sidecar.errors import (
    BrokerUnavailable,
    SettingsError,
    SidecarError,
    StagingFull,
    StateDirUnusable,
    StoreDenied,
    StoreUnavailable,
)
from sidecar.metrics import Metrics
from sidecar.partition.wait_reason import BrokerAway, WrongCluster
from sidecar.ports import FactsState
from sidecar.reporting.health_reporter import Health, HealthReporter, conditions_at_start
from sidecar.reporting.status_model import StatusModel
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import copy_partitions, rounds_over, tools_for


class ChangingCluster(FileBrokerFacts):
    """A broker whose address leads to another cluster from some moment on, until it does not any more."""

    refused: SettingsError | None = None

    def state(self) -> FactsState:
        """See `BrokerFacts`."""
        away = None if self.refused is None else WrongCluster(str(self.refused))
        return replace(super().state(), away=away, refused=self.refused)

    def refresh(self) -> None:
        """See `BrokerFacts`."""
        super().refresh()
        if self.refused is not None:
            raise self.refused


def test_servers_of_another_cluster_are_an_absent_broker_in_the_metrics(tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as made:
        facts = ChangingCluster([log_dir], assume_leader=True)
        context = replace(made, facts=facts)
        rounds = rounds_over(context, log_dir)
        for problem, away in (("", 0), ("the servers are of another cluster", 1), ("", 0)):
            facts.refused = SettingsError(problem) if problem else None
            if problem:
                with pytest.raises(SettingsError):
                    rounds.run_once()
            else:
                rounds.run_once()
            assert context.metrics.registry.get_sample_value("tiered_sidecar_broker_unreachable") == away


def test_a_round_that_cannot_begin_names_what_keeps_it_from_it() -> None:
    clock = ManualClock(0)
    health = Health(clock)
    reporter = HealthReporter(clock, Metrics(clock), health)
    refused = SettingsError("servers of another cluster")
    reporter.cycle_failed(refused, refused)
    assert health.not_ready() == {"broker": "servers of another cluster"}
    reporter.store_usable()
    reporter.cycle_ended(FactsState(0))
    reporter.cycle_failed(SettingsError("no log dir can be read"), refused)
    assert health.not_ready() == {"log_dirs": "no log dir can be read"}


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (StagingFull("state/journal.sqlite: the journal cannot be written"), "state_dir"),
        (StateDirUnusable("state/journal.sqlite: the journal cannot be used"), "state_dir"),
        (StoreUnavailable("no answer"), "store"),
        (BrokerUnavailable("no answer"), "broker"),
    ],
)
def test_a_round_that_breaks_off_blames_what_broke_and_no_disk(error: SidecarError, condition: str) -> None:
    clock = ManualClock(0)
    health = Health(clock)
    reporter = HealthReporter(clock, Metrics(clock), health)
    reporter.cycle_failed(error, None)
    assert health.not_ready() == {condition: str(error)}
    reporter.store_usable()
    reporter.cycle_ended(FactsState(0))
    assert health.not_ready() == {}


class WatchedHealth(Health):
    """Keeps what a probe and `/status` could have shown in between, whenever a condition is met."""

    def __init__(self, clock: ManualClock, conditions: dict[str, str]) -> None:
        super().__init__(clock, conditions=conditions)
        self.seen: list[tuple[bool, bool]] = []

    def met(self, condition: str) -> None:
        """See `Health`."""
        super().met(condition)
        self.seen.append((not self.not_ready(), "round_ended_ms" in self.status()))


@pytest.mark.parametrize("away", [None, BrokerAway("no answer")])
def test_no_probe_sees_the_first_check_as_ready_before_all_it_met_is_reported(away: BrokerAway | None) -> None:
    clock = ManualClock(0)
    health = WatchedHealth(clock, conditions_at_start("s3://bucket"))
    reporter = HealthReporter(clock, Metrics(clock), health)
    reporter.store_usable()
    reporter.cycle_ended(FactsState(None, away))
    # Ready never without a status, and with a broker that is away not for a moment.
    assert (True, False) not in health.seen
    assert [ready for ready, _ in health.seen if ready] == ([] if away else [True])


def test_a_silent_store_is_reported_in_the_middle_of_a_round_and_met_again_with_the_first_answer() -> None:
    clock = ManualClock(0)
    health, status = Health(clock), StatusModel(clock)
    reporter = HealthReporter(clock, Metrics(clock), health, status)
    reporter.store_usable()
    reporter.cycle_ended(FactsState(0))
    with capture_logs() as logs:
        reporter.store_silent("PutObject: read timeout")
        assert health.not_ready() == {"store": "PutObject: read timeout"}
        reporter.cycle_ended(FactsState(0))
        assert health.not_ready() == {"store": "PutObject: read timeout"}, "a round without a turn has asked nobody"
        reporter.store_silent(None)
        assert health.not_ready() == {}
    assert [(line["log_level"], line["event"]) for line in logs] == [
        ("warning", "store_not_responding"),
        ("info", "store_responding"),
    ]
    assert [error.text for error in status.figures().errors] == ["PutObject: read timeout"]
    assert "planned and pinned" in logs[0]["effect"]


class HealthWithAnswer(Health):
    """The store is silent, or answers again, while a cycle's conditions are being shown."""

    between: Callable[[], None] | None = None

    def met(self, condition: str) -> None:
        """See `Health`."""
        super().met(condition)
        if condition == "log_dirs" and self.between is not None:
            self.between()


@pytest.mark.parametrize("why", [None, "PutObject: read timeout"])
def test_what_the_store_does_while_a_cycle_ends_is_not_hidden_until_the_next_one(why: str | None) -> None:
    clock = ManualClock(0)
    health = HealthWithAnswer(clock)
    reporter = HealthReporter(clock, Metrics(clock), health)
    reporter.store_usable()
    reporter.store_silent("GetObject: read timeout" if why is None else None)
    health.between = lambda: reporter.store_silent(why)
    reporter.cycle_ended(FactsState(0))
    assert health.not_ready() == ({} if why is None else {"store": why})


class HealthWithThread(Health):
    """Another thread hears of the store between the reason that this one has found and its display."""

    between: Callable[[], None] | None = None

    def unmet(self, condition: str, reason: str) -> None:
        """See `Health`."""
        between, self.between = self.between, None
        if between is not None:
            self.other = threading.Thread(target=between)
            self.other.start()
            self.other.join(0.2)  # It waits for this thread, or has ended by then.
        super().unmet(condition, reason)


def test_a_thread_does_not_show_what_another_one_has_replaced() -> None:
    clock = ManualClock(0)
    health = HealthWithThread(clock)
    reporter = HealthReporter(clock, Metrics(clock), health)
    reporter.store_usable()
    reporter.cycle_ended(FactsState(0))
    health.between = lambda: reporter.store_silent(None)
    reporter.store_silent("PutObject: read timeout")
    health.other.join()
    assert health.not_ready() == {}


def test_a_store_that_is_silent_again_when_its_probe_has_ended_is_not_met() -> None:
    clock = ManualClock(0)
    health = Health(clock)
    reporter = HealthReporter(clock, Metrics(clock), health)
    reporter.store_silent("PutObject: read timeout")
    reporter.store_usable()
    assert health.not_ready() == {"store": "PutObject: read timeout", "first_check": ANY}


def test_a_full_store_that_answers_reads_stays_unready_until_a_cycle_meets_no_error() -> None:
    clock = ManualClock(0)
    health = Health(clock)
    reporter = HealthReporter(clock, Metrics(clock), health)
    reporter.store_usable()
    reporter.cycle_ended(FactsState(0), store_error="PutObject: status 507")
    reporter.store_silent("CreateMultipartUpload: status 507")
    reporter.store_silent(None)
    assert health.not_ready() == {"store": "PutObject: status 507"}
    reporter.cycle_ended(FactsState(0))
    assert health.not_ready() == {}
    reporter.store_silent("PutObject: no answer")
    reporter.store_silent(None)
    assert health.not_ready() == {}


def test_before_the_first_answer_the_log_says_that_nothing_is_pinned() -> None:
    clock = ManualClock(0)
    health = Health(clock, conditions=conditions_at_start("s3://bucket/archive"))
    reporter = HealthReporter(clock, Metrics(clock), health)
    waits = {"store": "waiting for the first response of s3://bucket/archive", "first_check": ANY}
    assert health.not_ready() == waits
    with capture_logs() as logs:
        reporter.store_silent("PutObject: read timeout")
        reporter.store_not_usable(StoreUnavailable("PutObject: read timeout"), 4.0)
        assert health.not_ready() == {"store": "PutObject: read timeout", "first_check": ANY}
        reporter.store_silent(None)
        assert health.not_ready()["store"] == "the store responds again; the sidecar tests its functions"
        reporter.store_usable()
    assert health.not_ready() == {"first_check": "the first check of all partitions is still running"}
    assert [line["event"] for line in logs] == ["store_not_responding", "store_not_usable", "store_responding"]
    for line in logs[:2]:
        assert "Nothing is pinned until the store has responded once" in line["effect"]
        assert "nothing in the archive changed" in line["effect"]
        assert line["effect"].endswith("Bring the store back, or raise the retention of the topics")
    assert logs[1]["next_try_s"] == 4.0
    with capture_logs() as logs:
        reporter.store_not_usable(StoreDenied("PutObject: 403"), 4.0)
    assert logs[0]["effect"].endswith("Correct the keys or permissions, or raise the retention of the topics")


@pytest.mark.parametrize("waits_for", ["the store", "a response", "log dirs"])
def test_why_the_last_start_failed_is_shown_until_the_next_one_waits_for_something(waits_for: str) -> None:
    clock = ManualClock(0)
    health = Health(clock, conditions=conditions_at_start("s3://bucket/archive"))
    reporter = HealthReporter(clock, Metrics(clock), health)
    reporter.start_failed("keys/access-key-id: no such file")
    error = StoreDenied("PutObject: 403")
    reporter.store_not_usable(error, None)
    assert "start" in health.not_ready(), "this start ends, too"
    match waits_for:
        case "the store":
            reporter.store_not_usable(error, 4.0)
        case "a response":
            reporter.store_silent("PutObject: read timeout")
        case "log dirs":
            reporter.log_dirs_unformatted(error, 4.0)
    assert "start" not in health.not_ready()
    assert {"store", "first_check"} <= set(health.not_ready())


def test_that_no_topic_is_chosen_is_logged_once_and_only_a_slip_keeps_from_being_ready() -> None:
    clock = ManualClock()
    health, status = Health(clock), StatusModel(clock)
    reporter = HealthReporter(clock, Metrics(clock), health, status)
    with capture_logs() as logs:
        for reason, is_slip in (
            ("no replica", False),
            ("not known: answer of 11 bytes", False),
            ("no match", True),
            ("no match of 12 topics", True),
            ("", False),
        ):
            reporter.no_topic(reason, is_slip=is_slip)
            assert health.not_ready() == ({"topics": reason} if is_slip else {})
            assert health.status()["topics"] == {"nothing_chosen": reason}
    assert [(log["log_level"], log["reason"]) for log in logs] == [("warning", "no replica"), ("error", "no match")]
    assert [error.where for error in status.figures().errors] == ["topics"]
