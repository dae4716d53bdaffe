"""Retention deletes up to the high watermark, not up to the last stable offset: what waits for a transaction is pinned, too.

Source: UnifiedLog.deletableSegments. A topic that the broker tiers itself loses nothing so: it deletes only what was copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sidecar.broker.files import FileBrokerFacts
from sidecar.errors import StoreUnavailable
from sidecar.model import PartitionFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.wait_reason import AboveLastStableOffset, DeletedBelowLogStart, render
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import (
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rolled_ranges,
    rounds_over,
    tools_for,
)
from tests.runner.test_asking_the_broker import Leadership


@dataclass
class Hanging(Leadership):
    """A leader whose last stable offset stays where it is while a transaction hangs. `high_watermark`: None for the log's end."""

    stable: int | None = None
    high_watermark: int | None = None

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        found = super().partition(files)
        stable = found.stable_end_offset if self.stable is None else self.stable
        return replace(
            found,
            stable_end_offset=stable,
            transactions_decided=True,
            transaction_open=stable < (self.high_watermark or found.stable_end_offset),
        )


@pytest.mark.parametrize("hangs", [False, True], ids=["no transaction", "a transaction"])
def test_what_waits_for_a_transaction_is_archived_though_retention_took_it(tmp_path: Path, hangs: bool) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    rolled = rolled_ranges(log_dir, "orders-0")
    with tools_for(log_dir, store, tmp_path / "state", record_lost=True) as context:
        facts = Hanging(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=0)
        facts.stable = rolled[0][1] if hangs else None
        rounds = rounds_over(replace(context, facts=facts), log_dir)
        if not hangs:  # The same without a transaction: a store that is away.
            store.before = _away
            rounds.run_once()
            store.before = _answers
        else:
            rounds.run_once()
        # retention.ms is over for the first four segments, all of them below the high watermark.
        remove_offsets(log_dir / "orders-0", lambda offset: offset >= rolled[3][1])
        facts.stable, facts.cluster_start_offset = None, rolled[3][1]
        rounds.run_once()
        rounds.run_once()
    assert ranges(archived_states(store)["orders-0"]) == rolled
    assert archived_states(store)["orders-0"].holes == ()


def test_a_stable_offset_that_the_log_start_has_raised_decides_nothing_of_what_was_deleted(tmp_path: Path) -> None:
    """Source: UnifiedLog.maybeIncrementFirstUnstableOffset."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    rolled = rolled_ranges(log_dir, "orders-0")
    with tools_for(log_dir, store, tmp_path / "state", record_lost=True) as context:
        facts = Hanging(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=0, stable=rolled[0][1])
        rounds = rounds_over(replace(context, facts=facts), log_dir)
        rounds.run_once()
        remove_offsets(log_dir / "orders-0", lambda offset: offset >= rolled[3][1])
        facts.stable = facts.cluster_start_offset = facts.high_watermark = rolled[3][1]
        for _ in range(2):
            (outcome,) = rounds.run_once().outcomes
            assert outcome.archived == []
            assert outcome.reason == DeletedBelowLogStart(rolled[1][0], rolled[3][1])
            assert "Write one" in render(outcome.reason)
        facts.high_watermark = rolled[4][1]  # The next record is written, and the last stable offset does not follow.
        (outcome,) = rounds.run_once().outcomes
        assert (outcome.archived, outcome.reason) == ([], AboveLastStableOffset(rolled[1][0], rolled[0][1]))
        facts.stable = rolled[4][1]
        rounds.run_once()
    assert ranges(archived_states(store)["orders-0"]) == rolled[:5]


def _answers(_operation: str, _key: str) -> None:
    pass


def _away(operation: str, _key: str) -> None:
    if operation == "upload":
        raise StoreUnavailable("no answer")
