"""What the topic's retention would delete again is reported before the broker starts; or how to see that it deletes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.archive.bundle import log_size_bytes
from sidecar.cli.restore.report import as_json, show
from sidecar.reporting.progress import Progress
from sidecar.restore.outcome import Foretold, deleted_at_start, foretold
from sidecar.restore.plan import PartitionPlan, SegmentPlan, plan_partition
from sidecar.restore.request import RestoreRequest, TargetCluster
from sidecar.restore.restore import RestoreReport, plan_restore, restore
from sidecar.topic_policy import TopicPolicy
from tests.fakes.manual_clock import ManualClock
from tests.golden import manifest
from tests.restore.archives import CLOCK, archived, golden_topic_id, own_log_dir
from tests.runner.rig import archived_states

DELETE, COMPACT = frozenset({"delete"}), frozenset({"compact"})
ID = str(golden_topic_id("orders"))


@pytest.fixture(scope="module")
def plan() -> PartitionPlan:
    """Eight segments, whose largest timestamps are 1000, 2000, 3000 …"""
    found = plan_partition(archived_states(archived())["orders-0"], RestoreRequest("orders", Path()))
    assert len(found.segments) == 8
    return replace(found, segments=tuple(aged(segment, 1000 * at) for at, segment in enumerate(found.segments, 1)))


def aged(found: SegmentPlan, timestamp_ms: int) -> SegmentPlan:
    return replace(found, segment=replace(found.segment, max_timestamp_ms=timestamp_ms))


@pytest.mark.parametrize("count", range(9))
def test_by_age_up_to_the_first_segment_that_is_young_enough(plan: PartitionPlan, count: int) -> None:
    # A segment goes when it is older than the limit, not when it is as old.
    limit_ms = 9_999 - 1000 * count
    assert deleted_at_start(plan, TopicPolicy(DELETE, limit_ms, -1), 10_000) == count
    assert deleted_at_start(plan, TopicPolicy(None, limit_ms), 10_000) == count
    if count < 8:
        assert deleted_at_start(plan, TopicPolicy(DELETE, limit_ms - 999, -1), 10_000) == count


def test_one_that_is_young_keeps_those_above_it(plan: PartitionPlan) -> None:
    mixed = replace(plan, segments=(*plan.segments[:3], aged(plan.segments[3], 50_000), *plan.segments[4:]))
    assert deleted_at_start(mixed, TopicPolicy(DELETE, 1), 10_000) == 3
    # Without timestamps it is as old as its file.
    mixed = replace(plan, segments=(aged(plan.segments[0], -1), *plan.segments[1:]))
    assert deleted_at_start(mixed, TopicPolicy(DELETE, 1), 10_000) == 0


@pytest.mark.parametrize("count", range(9))
def test_by_size_as_long_as_the_rest_fills_the_limit(plan: PartitionPlan, count: int) -> None:
    rest_bytes = sum(log_size_bytes(found.segment) for found in plan.segments[count:])
    assert deleted_at_start(plan, TopicPolicy(DELETE, -1, rest_bytes), 0) == count
    assert deleted_at_start(plan, TopicPolicy(DELETE, -1, rest_bytes + 1), 0) == max(count - 1, 0)


def test_by_size_first_and_then_by_age(plan: PartitionPlan) -> None:
    rest_bytes = sum(log_size_bytes(found.segment) for found in plan.segments[3:])
    assert deleted_at_start(plan, TopicPolicy(DELETE, 4_999, rest_bytes), 10_000) == 5
    assert deleted_at_start(plan, TopicPolicy(DELETE, 9_999, rest_bytes), 10_000) == 3


@pytest.mark.parametrize(
    "policy", [TopicPolicy(), TopicPolicy(DELETE, -1, -1), TopicPolicy(COMPACT, 1, 1), TopicPolicy(DELETE)]
)
def test_nothing_is_foretold_where_nothing_is_deleted_or_nobody_knows(plan: PartitionPlan, policy: TopicPolicy) -> None:
    assert deleted_at_start(plan, policy, 2**60) == 0


def test_a_time_that_cuts_the_last_segment_makes_it_older(plan: PartitionPlan) -> None:
    *before, last = plan.segments
    cut = replace(plan, segments=(*before, replace(last, until_timestamp_ms=7_500)))
    assert deleted_at_start(plan, TopicPolicy(DELETE, 2_000), 10_000) == 7
    assert deleted_at_start(cut, TopicPolicy(DELETE, 2_000), 10_000) == 8


@pytest.mark.parametrize("count", range(9))
def test_when_the_first_that_is_left_goes(plan: PartitionPlan, count: int) -> None:
    limit_ms = 9_999 - 1000 * count
    next_ms = None if count == 8 else 1000 * (count + 1) + limit_ms + 1
    assert foretold(plan, TopicPolicy(DELETE, limit_ms, -1), 10_000) == Foretold(
        count, plan.segments[count - 1].end_offset if count else None, next_ms
    )
    if next_ms is not None:
        policy = TopicPolicy(DELETE, limit_ms, -1)
        assert deleted_at_start(plan, policy, next_ms - 1) == count
        assert deleted_at_start(plan, policy, next_ms) == count + 1
    for policy in (TopicPolicy(COMPACT, limit_ms), TopicPolicy(DELETE, -1), TopicPolicy(DELETE)):
        assert foretold(plan, policy, 0) == Foretold()


def test_one_without_timestamps_goes_when_its_file_is_old_enough(plan: PartitionPlan) -> None:
    blank = replace(plan, segments=(aged(plan.segments[0], -1), *plan.segments[1:]))
    assert foretold(blank, TopicPolicy(DELETE, 1_000), 10_000) == Foretold(next_ms=11_001)


def test_a_cut_segment_does_not_count_as_a_whole_one(plan: PartitionPlan) -> None:
    sizes_bytes = [log_size_bytes(found.segment) for found in plan.segments]
    first, *between, last = plan.segments
    late_start = replace(plan, segments=(replace(first, first_offset=first.segment.base_offset + 1), *between, last))
    early_end = replace(plan, segments=(first, *between, replace(last, end_offset=last.end_offset - 1)))
    # What stays of the first goes if the others fill the limit, however much it is; of the last nothing is sure.
    assert deleted_at_start(late_start, TopicPolicy(DELETE, -1, sum(sizes_bytes[1:])), 0) == 1
    assert deleted_at_start(late_start, TopicPolicy(DELETE, -1, sum(sizes_bytes[1:]) + 1), 0) == 0
    assert deleted_at_start(early_end, TopicPolicy(DELETE, -1, sum(sizes_bytes[1:-1])), 0) == 1
    assert deleted_at_start(early_end, TopicPolicy(DELETE, -1, sum(sizes_bytes[1:-1]) + 1), 0) == 0


def asked(tmp_path: Path, policy: TopicPolicy | None) -> RestoreRequest:
    cluster_id = str(manifest("4.3.0")["cluster_id"])
    cluster = None if policy is None else TargetCluster("b2:9092", cluster_id, ID, {0: 9, 1: 9}, policy)
    return RestoreRequest("orders", own_log_dir(tmp_path), topic_id=ID, cluster=cluster)


def planned(tmp_path: Path, policy: TopicPolicy | None) -> RestoreReport:
    return plan_restore(archived(), CLOCK, asked(tmp_path, policy))


def test_the_report_tells_what_will_be_deleted_and_how_to_prevent_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = planned(tmp_path, TopicPolicy(DELETE, -1, 0))
    show(report, colors=False, dry_run=True)
    reported = capsys.readouterr().err
    assert "orders-0 below offset 964 (8 of 8 segments), orders-1 below offset " in reported
    assert (
        "--alter --entity-type topics --entity-name orders --add-config retention.ms=-1,retention.bytes=-1" in reported
    )
    answer = as_json(report)
    assert answer["retention"] == {"cleanup_policy": ["delete"], "retention_ms": -1, "retention_bytes": 0}
    assert answer["partitions"][0]["retention_deletes_before_offset"] == 964


def test_nothing_is_said_where_nothing_will_be_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = planned(tmp_path, TopicPolicy(DELETE, -1, -1))
    show(report, colors=False, dry_run=True)
    assert "retention" not in capsys.readouterr().err
    assert as_json(report)["partitions"][0]["retention_deletes_before_offset"] is None


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (None, "not known here: "),
        (TopicPolicy(unanswered="no right to ask"), "not known here (no right to ask): "),
    ],
)
def test_where_nobody_tells_it_is_said_how_to_look(
    policy: TopicPolicy | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = planned(tmp_path, policy)
    show(report, colors=False, dry_run=True)
    reported = capsys.readouterr().err
    assert f"retention of orders is {why}" in reported
    assert "--describe --all --entity-type topics --entity-name orders" in reported
    assert as_json(report)["retention"] is None


def test_the_report_at_the_end_says_what_is_too_old_by_then(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = archived_states(archived())["orders-0"].segments[0].max_timestamp_ms
    clock = ManualClock(first + 60_000)
    request = asked(tmp_path, TopicPolicy(DELETE, 3_600_000, -1))
    before = plan_restore(archived(), clock, request)
    show(before, colors=False, dry_run=True)
    due_ms = first + 3_600_001
    assert f"delete the first segment of orders-0 at {due_ms} (" in capsys.readouterr().err
    assert as_json(before)["partitions"][0]["retention_deletes_before_offset"] is None
    assert as_json(before)["partitions"][0]["retention_deletes_next_ms"] == due_ms

    def takes_hours(progress: Progress) -> None:
        if progress.segments_done == 1 and clock.now_ms() < due_ms:
            clock.advance_ms(7_200_000)

    report = restore(archived(), clock, request, workers=1, progress=takes_hours)
    show(report, colors=False, dry_run=False)
    assert "delete within minutes of its start: orders-0 below offset " in capsys.readouterr().err
    assert as_json(report)["partitions"][0]["retention_deletes_before_offset"] > 0
