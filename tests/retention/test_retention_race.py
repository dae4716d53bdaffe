"""When the broker deletes what is not archived yet: the forecast, the order, and the bytes that outlive it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from sidecar.broker.files import FileBrokerFacts
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import CoverageHole, SegmentChanged
from sidecar.host.pinned_files import PinnedFiles
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles, TopicPartition
from sidecar.partition.domain_events import PartitionsChecked
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.retention import deletion_deadline_ms, growth_bytes_per_ms
from sidecar.partition.status import PartitionStatus
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.partition_archiver import PartitionArchiver
from sidecar.segment.local_disk import LocalDisk
from sidecar.topic_policy import TopicPolicy
from tests.descriptors import open_below
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden, golden_copy
from tests.retention.test_pinned_logs import Answering, listed
from tests.runner.one_partition import archived, planned
from tests.runner.rig import archived_states, copy_partitions, ranges, remove_offsets, rolled_ranges, tools_for

NOW_MS = 1_700_000_000_000
DELETE = frozenset({"delete"})
ORDERS = TopicPartition("orders", 0)


def a_segment(number: int, size_bytes: int, age_ms: int) -> SegmentFiles:
    log = FileIdentity(Path("/logs/orders-0"), f"{number}.log", number, size_bytes, (NOW_MS - age_ms) * 1_000_000)
    return SegmentFiles(ORDERS, Path("/logs"), number * 10, number * 10 + 10, log, None, None, None, None)


def a_log(*segments: SegmentFiles, active_bytes: int = 0) -> PartitionFiles:
    active = FileIdentity(Path("/logs/orders-0"), "99.log", 99, active_bytes, NOW_MS * 1_000_000)
    return PartitionFiles(
        ORDERS, Path("/logs"), Path("/logs/orders-0"), None, segments, 990, (), False, active_log=active
    )


@pytest.mark.parametrize(
    ("policy", "deadline_in_ms"),
    [
        (TopicPolicy(), None),
        (TopicPolicy(cleanup_policy=DELETE, retention_ms=-1, retention_bytes=-1), None),
        (TopicPolicy(cleanup_policy=frozenset({"compact"}), retention_ms=5_000), None),
        (TopicPolicy(cleanup_policy=DELETE, retention_ms=60_000), 20_000),
        (TopicPolicy(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=60_000), 20_000),
        (TopicPolicy(cleanup_policy=DELETE, retention_ms=10_000), -30_000),
        # 100 bytes lie above the first segment, 10 more come each second.
        (TopicPolicy(cleanup_policy=DELETE, retention_bytes=400), 30_000),
        (TopicPolicy(cleanup_policy=DELETE, retention_bytes=100), 0),
        (TopicPolicy(cleanup_policy=DELETE, retention_ms=60_000, retention_bytes=400), 20_000),
        # What the broker tiers itself it deletes by the local limits, where those are set.
        (TopicPolicy(retention_ms=60_000, remote_storage_enable=True, local_retention_ms=45_000), 5_000),
        (TopicPolicy(retention_ms=60_000, remote_storage_enable=True, local_retention_ms=-2), 20_000),
        (TopicPolicy(retention_ms=60_000, remote_storage_enable=False, local_retention_ms=1), 20_000),
    ],
)
def test_the_forecast_follows_the_topics_configuration(policy: TopicPolicy, deadline_in_ms: int | None) -> None:
    segments = (a_segment(0, 100, 40_000), a_segment(1, 50, 36_000), a_segment(2, 50, 30_000))
    files = a_log(*segments)
    assert growth_bytes_per_ms(files) == pytest.approx(0.01)
    found = deletion_deadline_ms(files, segments[0], policy, NOW_MS - 40_000, NOW_MS)
    assert found == (None if deadline_in_ms is None else NOW_MS + deadline_in_ms)


def test_the_largest_timestamp_is_that_of_the_time_index() -> None:
    (files,) = scan_log_dirs([golden("4.3.0") / "logs"], TopicFilter(("orders",))).partitions[:1]
    segment = files.segments[0]
    largest_timestamp_ms = LocalDisk().largest_timestamp_ms
    assert 0 < largest_timestamp_ms(segment) != segment.log.mtime_ns // 1_000_000
    assert largest_timestamp_ms(replace(segment, time_index=None)) == segment.log.mtime_ns // 1_000_000


def test_the_earliest_deadline_goes_first_and_what_is_not_threatened_last() -> None:
    facts = PartitionFacts(ORDERS, None, True, 0, 100, 0)
    segment = a_segment(0, 100, 40_000)
    older = a_segment(1, 100, 90_000)
    plans = [
        PartitionPlan(a_log(segment), facts, (segment,), (), deadline_ms=NOW_MS + 5),
        PartitionPlan(a_log(older), facts, (older,), ()),
        PartitionPlan(a_log(segment), facts, (segment,), ()),
        PartitionPlan(a_log(segment), facts, (segment,), (), deadline_ms=NOW_MS - 5),
    ]
    ordered = sorted(plans, key=lambda plan: plan.deletion_order)
    assert [plans.index(plan) for plan in ordered] == [3, 0, 1, 2]


def test_segments_that_retention_takes_between_planning_and_reading_are_archived_all_the_same(tmp_path: Path) -> None:
    copy, store = golden_copy("4.3.0", tmp_path / "copy") / "logs", MemoryStore()
    expected = rolled_ranges(copy, "append-time-0")
    directory = copy / "append-time-0"

    def delete_all_rolled(operation: str, key: str) -> None:
        if operation == "upload":
            for base_offset, _ in expected:
                for file in directory.glob(f"{base_offset:020d}.*"):
                    file.unlink()

    store = MemoryStore(before=delete_all_rolled)
    with tools_for(copy, store, tmp_path / "state", uploads_ahead=1) as context:
        report = ArchiveLoop(context, partial(scan_log_dirs, [copy], TopicFilter(("append-time",)))).run_once()
        assert report.errors == []
    assert len(expected) == 2
    assert ranges(archived_states(store)["append-time-0"]) == expected


def test_a_held_file_that_changed_is_not_taken_and_all_descriptors_are_given_back(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"0123456789")
    status = path.stat()
    file = FileIdentity.of(path.parent, path.name, status)
    held = PinnedFiles(limit=1)
    held.keep([file, replace(file, inode=1)])
    path.write_bytes(b"0123")
    with pytest.raises(SegmentChanged, match="between listing and reading"):
        held.take(file)
    held.keep([file])
    held.release()
    assert open_below(tmp_path) == []


def test_a_partition_that_cannot_be_planned_is_at_risk_all_the_same(tmp_path: Path) -> None:
    log_dir = golden("4.3.0") / "logs"
    (files,) = scan_log_dirs([log_dir], TopicFilter(("append-time",))).partitions
    with tools_for(log_dir, MemoryStore(), tmp_path) as context:
        archiver = PartitionArchiver(context, files)
        assert archiver.deadline_ms(files) is None  # nothing is known of the topic
        status = PartitionStatus(files.topic_partition, True, 0, 0, deadline_ms=context.clock.now_ms() + 60_000)
        context.metrics.handle(PartitionsChecked((status,), frozenset()))
        assert b"tiered_sidecar_data_at_risk_in_seconds 60.0" in context.metrics.exposition()[0]
        context.metrics.handle(PartitionsChecked((), frozenset()))
        assert b"tiered_sidecar_data_at_risk_in_seconds +Inf" in context.metrics.exposition()[0]


@dataclass
class SecondAnswer(Answering):
    """A leader whose next answer has the log start of now."""

    start_offset: int = 0
    asked: int = 0

    def confirm(self, files: PartitionFiles) -> PartitionFacts:
        self.asked, self.cluster_start_offset = self.asked + 1, self.start_offset
        return super().confirm(files)


@pytest.mark.parametrize("is_retention", [True, False])
def test_retention_between_the_answer_and_the_listing_needs_no_person(is_retention: bool, tmp_path: Path) -> None:
    """Nothing is pinned: the first check of a process, or beyond the limit of pins."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        facts = SecondAnswer(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=0)
        context = replace(context, facts=facts)
        archiver = PartitionArchiver(context, listed(log_dir))
        plan = planned(context, archiver, listed(log_dir))
        assert archived(context, archiver, replace(plan, segments=plan.segments[:1])).error is None
        remove_offsets(log_dir / "orders-0", lambda offset: offset >= 248)
        facts.start_offset, facts.asked = 248 if is_retention else 0, 0
        plans = [planned(context, archiver, listed(log_dir)) for _ in range(2)]
    assert [plan.hole for plan in plans] == [(140, 248)] * 2
    assert [isinstance(plan.error, CoverageHole) for plan in plans] == [not is_retention] * 2
    assert facts.asked == 1
