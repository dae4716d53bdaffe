"""By which strategy `run` compacts an archive whose newest compaction was by another one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sidecar.broker.files import FileBrokerFacts
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.archive.plan import CompactionRequest
from sidecar.compactor.archive_job import ArchiveJobs
from sidecar.compactor.candidate_queue import Compacting, Look
from sidecar.compactor.topic_rule import TopicRules
from sidecar.config import Settings
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import PartitionError
from sidecar.rewriting.local_stages import LocalEngines
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.topic_policy import TopicPolicy
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.pipeline.archives import NOW_MS, compactor, only_state, use
from tests.pipeline.rig import copy_partitions, tools_for

BY_OFFSET = TopicPolicy(cleanup_policy=frozenset({"compact"}), compaction_strategy="offset")


class Reported(FileBrokerFacts):
    """A broker, or none, that reports this of each topic."""

    reported = TopicPolicy()

    def policy(self, topic: str) -> TopicPolicy:
        """See `BrokerFacts`."""
        return self.reported


@pytest.mark.parametrize(
    ("compaction", "reported", "changes"),
    [
        ({"topics": ["orders"]}, TopicPolicy(), False),
        ({"topics": [{"pattern": "orders", "strategy": "header"}]}, TopicPolicy(), False),
        ({"topics": [{"pattern": "orders", "strategy": "offset"}]}, TopicPolicy(), True),
        ({"topics": ["orders"], "strategy": "offset"}, TopicPolicy(), True),
        ({"topics": ["orders"]}, BY_OFFSET, True),
    ],
)
def test_a_default_does_not_change_the_strategy_of_an_archive(
    compaction: dict[str, Any], reported: TopicPolicy, changes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    with tools_for(log_dir, store, tmp_path / "state") as tools, capture_logs() as logs:
        tools = replace(tools, facts=facts)
        (led,) = ArchiveLoop(tools, partial(scan_log_dirs, [log_dir], TopicFilter(("orders",)))).run_once().led
        rules = CompactionRules(NOW_MS, strategy=Strategy.HEADER, header="v")
        (first,) = compactor(store, tmp_path).compact([CompactionRequest(led.root, rules)])
        assert first.error is None
        before = only_state(store)
        policy = TopicRules(settings.compaction, facts.policy).policy_of("orders")
        assert policy is not None
        work = Compacting(led, policy, Look(store, store.clock)(led, policy))
        (result,) = ArchiveJobs(
            settings, tools, LocalEngines(), TopicRules(settings.compaction, facts.policy).policy_of
        )([work])
    warned = [log for log in logs if log["event"] == "compaction_changes_strategy"]
    assert [(log["log_level"], log["old"], log["new"]) for log in warned] == [
        ("warning", "header 'v'", "offset")
    ] * changes
    if changes:
        assert result.error is None
        clean = only_state(store).clean
        assert clean is not None
        assert clean.strategy == "offset"
    else:
        assert isinstance(result.error, PartitionError)  # The worker sets the partition aside, with this reason.
        assert "its newest compaction used strategy header 'v', this one would use offset" in str(result.error)
        assert "Set it in the topic's entry of compaction.topics" in str(result.error)
        assert only_state(store) == before
