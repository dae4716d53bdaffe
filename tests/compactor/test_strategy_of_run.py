"""By which strategy `run` compacts an archive whose newest compaction was by another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sidecar.archive.state import PartitionState, newest_strategy
from sidecar.broker.files import FileBrokerFacts
from sidecar.commits.commit_log import CommitConflict
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.archive.plan import CompactionRequest, PartitionCompaction
from sidecar.compactor.archive_job import ArchiveJobs
from sidecar.compactor.candidate_queue import Candidate, CandidateAssessor, LedPartition
from sidecar.compactor.topic_rule import RuleChanged, TopicRules
from sidecar.config import Settings
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import PartitionError
from sidecar.rewriting.local_engine import LocalEngines
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.context import RunContext
from sidecar.topic_policy import TopicPolicy
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import NOW_MS, compactor, only_state, use
from tests.runner.rig import copy_partitions, tools_for

BY_HEADER = CompactionRules(NOW_MS, strategy=Strategy.HEADER, header="v")
BY_OFFSET = TopicPolicy(cleanup_policy=frozenset({"compact"}), compaction_strategy="offset")


class Reported(FileBrokerFacts):
    """A broker, or none, that reports this of each topic."""

    reported = TopicPolicy()

    def policy(self, topic: str) -> TopicPolicy:
        """See `BrokerFacts`."""
        return self.reported


@dataclass(frozen=True)
class Orders:
    """An archived partition, next to a sidecar that leads it."""

    context: RunContext
    settings: Settings
    facts: Reported
    store: MemoryStore
    led: LedPartition
    directory: Path

    @property
    def state(self) -> PartitionState:
        return only_state(self.store)

    def compact_by_hand(self, rules: CompactionRules) -> None:
        (result,) = compactor(self.store, self.directory).compact([CompactionRequest(self.led.root, rules)])
        assert result.error is None

    def compact_in_run(self, before_commit: Callable[[], object] = lambda: None) -> PartitionCompaction:
        """`before_commit`: called right before the last checks."""
        rules = TopicRules(self.settings.compaction, self.facts.policy)
        policy = rules.policy_of("orders")
        assert policy is not None
        calls = count()

        def is_cut_off() -> bool:
            """Asked before the rewrite, before the upload, and right before the commit."""
            if next(calls) == 2:
                before_commit()
            return False

        work = Candidate(self.led, policy, CandidateAssessor(self.store, self.store.clock)(self.led, policy))
        (result,) = ArchiveJobs(self.settings, self.context, LocalEngines(), rules.rule_of, is_cut_off)([work])
        return result


@contextmanager
def archived_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compaction: dict[str, Any], reported: TopicPolicy
) -> Iterator[Orders]:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore(ManualClock(NOW_MS))
    use(monkeypatch, store)
    settings = Settings.model_validate(
        {
            "store": {"url": str(tmp_path / "archive")},
            "compaction": {**compaction, "staging_dir": str(tmp_path / "work")},
        }
    )
    facts = Reported([log_dir], assume_leader=True)
    facts.reported = reported
    with tools_for(log_dir, store, tmp_path / "state") as context:
        context = replace(context, facts=facts)
        (led,) = ArchiveLoop(context, partial(scan_log_dirs, [log_dir], TopicFilter(("orders",)))).run_once().led
        yield Orders(context, settings, facts, store, led, tmp_path)


@pytest.mark.parametrize(
    ("compaction", "reported", "changes"),
    [
        ({"topics": ["orders"]}, TopicPolicy(), False),
        ({"topics": [{"pattern": "orders", "strategy": "offset"}]}, TopicPolicy(), True),
        ({"topics": ["orders"], "strategy": "offset"}, TopicPolicy(), True),
        ({"topics": ["orders"]}, BY_OFFSET, True),
    ],
)
def test_a_default_does_not_change_the_strategy_of_an_archive(
    compaction: dict[str, Any], reported: TopicPolicy, changes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with archived_orders(tmp_path, monkeypatch, compaction, reported) as orders, capture_logs() as logs:
        orders.compact_by_hand(BY_HEADER)
        before = orders.state
        result = orders.compact_in_run()
    warned = [log for log in logs if log["event"] == "compaction_changes_strategy"]
    assert [(log["log_level"], log["old"], log["new"]) for log in warned] == [
        ("warning", "header 'v'", "offset")
    ] * changes
    if changes:
        assert result.error is None
        clean = orders.state.clean
        assert clean is not None
        assert clean.strategy == "offset"
    else:
        assert isinstance(result.error, PartitionError)  # The worker sets the partition aside, with this reason.
        assert "its newest compaction used strategy header 'v', this one would use offset" in str(result.error)
        assert "Set it in the topic's entry of compaction.topics" in str(result.error)
        assert orders.state == before


def test_a_strategy_that_is_declared_no_more_commits_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with archived_orders(tmp_path, monkeypatch, {"topics": ["orders"]}, BY_OFFSET) as orders:
        orders.compact_by_hand(BY_HEADER)
        before = orders.state
        result = orders.compact_in_run(lambda: setattr(orders.facts, "reported", TopicPolicy()))
        assert isinstance(result.error, RuleChanged)
        assert "the newest compaction used strategy header 'v', this one would use offset" in str(result.error)
        assert orders.state == before


@pytest.mark.parametrize("reported", [TopicPolicy(), BY_OFFSET], ids=["default", "declared"])
def test_no_strategy_follows_on_another_one_that_was_committed_since_the_job_began(
    reported: TopicPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with archived_orders(tmp_path, monkeypatch, {"topics": ["orders"]}, reported) as orders:
        orders.compact_by_hand(CompactionRules(NOW_MS))
        segments = orders.state.segments
        # It changes no segment: only the commit says by which strategy all of them are clean now.
        result = orders.compact_in_run(lambda: orders.compact_by_hand(BY_HEADER))
        assert isinstance(result.error, CommitConflict)
        assert "another compaction committed first, by strategy header 'v'" in str(result.error)
        assert orders.state.segments == segments
        assert newest_strategy(orders.state) == BY_HEADER.in_use
