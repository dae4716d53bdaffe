"""What the status model shows of partitions: before and after their turn, at risk, at a hole, and where they are not led."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.broker.files import FileBrokerFacts
from sidecar.http.pages import status_json
from sidecar.reporting.status_model import PartitionFigures
from sidecar.runner.context import RunContext
from sidecar.runner.partition_status import AT_RISK_MS
from sidecar.topic_policy import TopicPolicy
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.runner.rig import copy_partitions, remove_offsets, rolled_ranges, rounds_over, status_of, tools_for

NAME = "orders-0"


def orders(context: RunContext) -> PartitionFigures:
    (found,) = status_of(context).figures().partitions
    return found


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return copy_partitions(tmp_path, NAME)


def test_a_partition_waits_before_its_turn_and_is_archived_after_it(log_dir: Path, tmp_path: Path) -> None:
    spans = rolled_ranges(log_dir, NAME)
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        work, report = rounds.plan()
        look = orders(context).status
        assert (look.pending_segments, look.archived_end_offset, look.error) == (len(spans), None, None)
        assert look.local_start_offset == 0
        first_written_s = min((log_dir / NAME).glob("*.log")).stat().st_mtime
        assert look.oldest_pending_ms == pytest.approx(1000 * first_written_s, abs=1)
        assert look.local_end_offset is not None
        assert look.local_end_offset >= spans[-1][1]
        rounds.work(work, report)
        found = orders(context)
        assert (found.status.pending_segments, found.status.pending_bytes, found.status.reason) == (0, 0, None)
        assert found.status.oldest_pending_ms is None
        assert (found.extent.segments, found.extent.end_offset) == (len(spans), spans[-1][1])
        assert (found.segments_archived, found.uploads) == (len(spans), ())
        assert sum(status_of(context).figures().snapshots[origin] for origin in ("broker", "rebuilt")) == len(spans)


def test_a_start_over_an_archive_shows_all_of_it_at_once(log_dir: Path, tmp_path: Path) -> None:
    store = MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds_over(context, log_dir).run_once()
        before = orders(context).extent
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds_over(context, log_dir).plan()
        found = orders(context)
        assert found.extent == before
        assert found.segments_archived == 0


class ShortRetention(FileBrokerFacts):
    """Facts of files, and a retention that a test sets."""

    retention_ms = 0

    def policy(self, topic: str) -> TopicPolicy:
        return replace(super().policy(topic), cleanup_policy=frozenset({"delete"}), retention_ms=self.retention_ms)


@pytest.mark.parametrize("left_ms", [AT_RISK_MS - 60_000, AT_RISK_MS + 60_000])
def test_what_the_broker_deletes_within_the_hour_is_at_risk(left_ms: int, log_dir: Path, tmp_path: Path) -> None:
    facts = ShortRetention([log_dir], assume_leader=True)
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        context = replace(context, facts=facts)
        rounds = rounds_over(context, log_dir)
        facts.retention_ms = 10**12
        rounds.plan()
        deadline_ms = orders(context).status.deadline_ms
        assert deadline_ms is not None
        facts.retention_ms = 10**12 - (deadline_ms - context.clock.now_ms()) + left_ms
        rounds.plan()
        look = orders(context).status
        assert look.deadline_ms == context.clock.now_ms() + left_ms
        assert (look.at_risk_end_offset is not None) == (left_ms < AT_RISK_MS)
        rounds.run_once()
        look = orders(context).status
        assert (look.deadline_ms, look.at_risk_end_offset) == (None, None)


def test_a_hole_stays_drawn_while_its_partition_rests(log_dir: Path, tmp_path: Path) -> None:
    spans = rolled_ranges(log_dir, NAME)
    with tools_for(log_dir, MemoryStore(), tmp_path / "state", retry_wait_s=60, max_queue=2, pins=2) as context:
        rounds = rounds_over(context, log_dir)
        rounds.run_once()
        archived_end_offset = orders(context).status.archived_end_offset
        assert archived_end_offset == spans[1][1]
        remove_offsets(log_dir / NAME, lambda offset: offset >= spans[4][0])
        for _ in range(2):
            rounds.run_once()
            look = orders(context).status
            assert (look.hole, look.error) == ((archived_end_offset, spans[4][0]), "CoverageHole")
        (error,) = status_of(context).figures().errors
        assert (error.where, error.kind, error.count) == (NAME, "CoverageHole", 1)
        (row,) = status_json(status_of(context))["partitions"]
        assert [one["kind"] for one in row["ranges"]] == ["archived_raw", "gap", "local_only"]
        assert row["state"] == "gap"


def test_offsets_recorded_as_lost_are_in_the_bar_and_among_the_errors(log_dir: Path, tmp_path: Path) -> None:
    spans = rolled_ranges(log_dir, NAME)
    with tools_for(log_dir, MemoryStore(), tmp_path / "state", record_lost=True, max_queue=2, pins=2) as context:
        rounds = rounds_over(context, log_dir)
        rounds.run_once()
        remove_offsets(log_dir / NAME, lambda offset: offset >= spans[4][0])
        rounds.run_once()
        (row,) = status_json(status_of(context))["partitions"]
        assert [one["kind"] for one in row["ranges"]][:3] == ["archived_raw", "lost", "archived_raw"]
        assert "OffsetsLost" in {error.kind for error in status_of(context).figures().errors}


def test_a_partition_that_the_store_refuses_is_stopped_and_says_why(log_dir: Path, tmp_path: Path) -> None:
    store = MemoryStore()
    store.faults.append(Fault("upload", 0, FaultKind.DENIED, key_part="orders"))
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds_over(context, log_dir).run_once()
        found = orders(context)
        assert found.status.error == "StoreDenied"
        assert found.status.error_text
        assert found.reason == found.status.error_text
        assert found.uploads == ()
        assert [error.kind for error in status_of(context).figures().errors] == ["StoreDenied"]


def test_what_failed_stays_failed_until_it_has_come_through(log_dir: Path, tmp_path: Path) -> None:
    store = MemoryStore()
    store.faults.append(Fault("upload", 0, FaultKind.DENIED, key_part="orders"))
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        rounds.run_once()
        work, report = rounds.plan()
        assert orders(context).status.error == "StoreDenied"
        rounds.work(work, report)
        look = orders(context).status
        assert (look.error, look.reason, look.pending_segments) == (None, None, 0)


def test_a_partition_that_is_not_led_waits_for_nothing(log_dir: Path, tmp_path: Path) -> None:
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        context = replace(context, facts=FileBrokerFacts([log_dir], assume_leader=False))
        rounds_over(context, log_dir).plan()
        look = orders(context).status
        assert (look.leads, look.pending_segments, look.deadline_ms) == (False, 0, None)


def test_a_hole_inside_the_local_log_is_drawn_where_it_is(log_dir: Path, tmp_path: Path) -> None:
    spans = rolled_ranges(log_dir, NAME)
    gone = {spans[2][0], spans[3][0]}
    remove_offsets(log_dir / NAME, lambda offset: offset not in gone)
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        rounds_over(context, log_dir).run_once()
        (row,) = status_json(status_of(context))["partitions"]
    assert (row["error"], row["state"]) == ("CoverageHole", "gap")
    kinds = [(one["kind"], one["base_offset"], one["end_offset"]) for one in row["ranges"]]
    assert ("gap", spans[2][0], spans[3][1]) in kinds
    assert [kind for kind, _, _ in kinds] == ["archived_raw", "local_only", "gap", "local_only"]


def test_a_retention_that_no_broker_has_reported_is_not_taken_for_none(log_dir: Path, tmp_path: Path) -> None:
    def metric(context: RunContext, name: str) -> float | None:
        return context.metrics.registry.get_sample_value(f"tiered_sidecar_{name}")

    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        rounds.plan()
        assert (orders(context).status.deadline_ms, orders(context).status.is_retention_known) == (None, False)
        assert metric(context, "retention_unknown_partitions") == 1
        assert math.isnan(metric(context, "data_at_risk_in_seconds") or 0)
        rounds.run_once()
        rounds.plan()
        assert orders(context).status.is_retention_known
        assert metric(context, "data_at_risk_in_seconds") == math.inf
    facts = ShortRetention([log_dir], assume_leader=True)
    facts.retention_ms = -1
    with tools_for(log_dir, MemoryStore(), tmp_path / "unlimited") as context:
        rounds_over(replace(context, facts=facts), log_dir).plan()
        assert (orders(context).status.deadline_ms, orders(context).status.is_retention_known) == (None, True)
        assert metric(context, "data_at_risk_in_seconds") == math.inf
