"""Metrics: names, events, ages that grow by themselves, and no label that grows with the broker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sidecar.errors import ObjectMissing
from sidecar.metrics import MeteredStore, Metrics
from sidecar.metrics.compaction import Weighed
from sidecar.metrics.declarations import PREFIX
from sidecar.model import (
    ArchivedSegment,
    FileIdentity,
    ObjectKey,
    Part,
    PartName,
    SegmentFiles,
    SnapshotOrigin,
    SnapshotProvenance,
    TopicPartition,
)
from sidecar.partition import domain_events as events
from sidecar.partition.status import PartitionCondition, PartitionStatus
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.reference_pages import declared_metrics

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
ORDERS = TopicPartition("orders", 0)
READY = PartitionCondition.READY
SEGMENT = SegmentFiles(
    ORDERS, Path("logs"), 0, 10, FileIdentity(Path("logs/orders-0"), "0.log", 1, 100, 0), None, None, None, None
)


def a_status(segments: int = 1, age_s: float = 0, condition: PartitionCondition = READY) -> PartitionStatus:
    oldest_ms = NOW_MS - round(age_s * 1000) if segments else None
    return PartitionStatus(
        ORDERS, True, 0, 10, pending_segments=segments, condition=condition, oldest_pending_ms=oldest_ms
    )


def committed(snapshot_result: str) -> events.SegmentCommitted:
    snapshot = SnapshotProvenance(SnapshotOrigin.REBUILT, exact=True)
    parts = (Part(PartName.LOG, 0, 100, 0), Part(PartName.OFFSET_INDEX, 0, 8, 0))
    key = ObjectKey("k")
    entry = ArchivedSegment("id", 0, 10, key, key, parts, (), 0, 0, 1, snapshot)
    return events.SegmentCommitted(SEGMENT, entry, snapshot_result)


def checked(*statuses: PartitionStatus) -> events.PartitionsChecked:
    named = (replace(status, topic_partition=TopicPartition("orders", n)) for n, status in enumerate(statuses))
    return events.PartitionsChecked(tuple(named), frozenset())


def values(metrics: Metrics) -> dict[str, float]:
    """Samples by name and labels, as Prometheus reads them."""
    page, _ = metrics.exposition()
    return {
        sample.name + "".join(f",{name}={value}" for name, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def metrics(clock: ManualClock) -> Metrics:
    return Metrics(clock)


def test_a_segments_journey_is_counted(metrics: Metrics) -> None:
    metrics.handle(checked(a_status(2, age_s=60)))
    metrics.handle(events.SegmentUploaded(SEGMENT, 108, 1.5))
    metrics.handle(committed("equal"))
    metrics.handle(events.BacklogChanged(ORDERS, 1, 100, NOW_MS, None, 0))
    found = values(metrics)
    assert found[f"{PREFIX}_segments_total,result=ok,stage=uploaded"] == 1
    assert found[f"{PREFIX}_bytes_total,stage=committed"] == 108
    assert found[f"{PREFIX}_snapshots_total,origin=rebuilt"] == 1
    assert found[f"{PREFIX}_snapshots_total,origin=broker"] == 0
    assert found[f"{PREFIX}_snapshot_conformance_total,result=equal"] == 1
    assert found[f"{PREFIX}_upload_duration_seconds_sum"] == 1.5
    assert found[f"{PREFIX}_pending_segments"] == 1


def test_ages_grow_while_nothing_happens(metrics: Metrics, clock: ManualClock) -> None:
    metrics.handle(checked(a_status(age_s=60)))
    metrics.broker.read.at_ms = NOW_MS
    clock.advance_ms(40_000)
    found = values(metrics)
    assert found[f"{PREFIX}_oldest_pending_segment_age_seconds"] == pytest.approx(100, abs=0.01)
    assert found[f"{PREFIX}_broker_metadata_age_seconds"] == 40
    metrics.handle(events.BacklogChanged(ORDERS, 0, 0, None, None, 0))
    assert values(metrics)[f"{PREFIX}_oldest_pending_segment_age_seconds"] == 0


def test_partitions_are_counted_by_what_they_do(metrics: Metrics) -> None:
    waits, idle = PartitionCondition.WAITING, PartitionCondition.IDLE
    followed = a_status(0, condition=PartitionCondition.NOT_LED)
    metrics.handle(checked(a_status(), a_status(condition=waits), a_status(0, condition=idle), followed))
    metrics.handle(events.CycleEnded(2, 0))
    found = values(metrics)
    states = {
        state: found[f"{PREFIX}_partitions,state={state}"]
        for state in ("ready", "waiting", "idle", "not_led", "stopped")
    }
    assert states == {"ready": 1, "waiting": 1, "idle": 1, "not_led": 1, "stopped": 2}
    assert found[f"{PREFIX}_pending_segments"] == 2
    assert found[f"{PREFIX}_last_success_timestamp_seconds"] == 0
    metrics.handle(events.CycleEnded(0, 0, is_store_silent=True))
    assert values(metrics)[f"{PREFIX}_last_success_timestamp_seconds"] == 0, "uploads may hang"
    metrics.handle(events.CycleEnded(0, 0))
    assert values(metrics)[f"{PREFIX}_last_success_timestamp_seconds"] == NOW_MS / 1000


def test_no_success_is_in_the_future_after_the_clock_was_set_back(metrics: Metrics, clock: ManualClock) -> None:
    names = [f"{PREFIX}_{kind}last_success_timestamp_seconds" for kind in ("", "compaction_", "gc_")]
    clock.advance_ms(DAY_MS)
    metrics.handle(events.CycleEnded(0, 0))
    metrics.compaction.compacted(1, 1, 1, 1)
    metrics.compaction.garbage_removed(1)
    clock.advance_ms(-DAY_MS)
    assert [values(metrics)[name] for name in names] == [NOW_MS / 1000] * 3
    clock.advance_ms(60_000)
    assert [values(metrics)[name] for name in names] == [NOW_MS / 1000] * 3, "their age grows from then on"


def test_failures_are_counted_by_kind(metrics: Metrics) -> None:
    metrics.failed("StoreUnavailable")
    metrics.handle(events.SegmentUploadFailed(SEGMENT))
    metrics.handle(events.CycleEnded(0, unfinished_attempts=3))
    found = values(metrics)
    assert found[f"{PREFIX}_errors_total,kind=StoreUnavailable"] == 1
    assert found[f"{PREFIX}_segments_total,result=failed,stage=uploaded"] == 1
    assert found[f"{PREFIX}_unfinished_attempts"] == 3


def test_store_requests_are_counted_with_their_result(metrics: Metrics) -> None:
    store = MeteredStore(MemoryStore(), metrics.store)
    store.put_if_absent(ObjectKey("a"), b"x")
    assert store.read(ObjectKey("a")) == b"x"
    with pytest.raises(ObjectMissing):
        store.read(ObjectKey("b"))
    assert [found.key for found in store.list("")] == ["a"]
    found = values(metrics)
    assert found[f"{PREFIX}_store_requests_total,operation=read,result=ok"] == 1
    assert found[f"{PREFIX}_store_requests_total,operation=read,result=ObjectMissing"] == 1
    assert found[f"{PREFIX}_store_requests_total,operation=list,result=ok"] == 1


def test_no_label_grows_with_the_broker(metrics: Metrics) -> None:
    labels = {label for _, _, names, _ in declared_metrics(metrics) for label in names}
    assert labels == {
        "version",
        "python",
        "stage",
        "result",
        "state",
        "kind",
        "origin",
        "operation",
        "side",
        "directory",
        "condition",
        "direction",
        "reason",
    }


def test_two_registries_do_not_know_each_other(clock: ManualClock) -> None:
    one, other = Metrics(clock), Metrics(clock)
    one.failed("X")
    assert f"{PREFIX}_errors_total,kind=X" not in values(other)


def test_the_age_of_what_is_due_grows_until_it_is_done(metrics: Metrics, clock: ManualClock) -> None:
    compaction = metrics.compaction
    assert values(metrics)[f"{PREFIX}_compaction_oldest_due_age_seconds"] == 0
    assert values(metrics)[f"{PREFIX}_compaction_last_check_timestamp_seconds"] == 0
    compaction.weighed(
        Weighed(2, NOW_MS - 5_000, cleanable_bytes=300, max_dirty_ratio=0.75, quarantined=1, quarantined_bytes=200)
    )
    clock.advance_ms(60_000)
    found = values(metrics)
    assert found[f"{PREFIX}_compaction_due_partitions"] == 2
    assert found[f"{PREFIX}_compaction_oldest_due_age_seconds"] == 65
    assert found[f"{PREFIX}_compaction_cleanable_bytes"] == 300
    assert found[f"{PREFIX}_compaction_quarantined_partitions"] == 1
    assert found[f"{PREFIX}_compaction_quarantined_bytes"] == 200
    assert found[f"{PREFIX}_compaction_max_dirty_ratio"] == 0.75
    assert found[f"{PREFIX}_compaction_last_check_timestamp_seconds"] == NOW_MS / 1000
    assert found[f"{PREFIX}_compaction_last_success_timestamp_seconds"] == 0
    compaction.running.set(1)
    assert values(metrics)[f"{PREFIX}_compaction_running"] == 1
    compaction.compacted(300, 100, 30, 10)
    compaction.failed()
    compaction.running.set(0)
    compaction.duration.observe(2.5)
    compaction.restarted()
    found = values(metrics)
    assert found[f"{PREFIX}_compaction_quarantined_bytes"] == found[f"{PREFIX}_compaction_max_dirty_ratio"] == 0
    assert found[f"{PREFIX}_compaction_last_check_timestamp_seconds"] == NOW_MS / 1000
    assert found[f"{PREFIX}_compaction_running"] == 0
    assert found[f"{PREFIX}_compaction_oldest_due_age_seconds"] == 0
    assert found[f"{PREFIX}_compaction_last_success_timestamp_seconds"] == clock.now_ms() / 1000
    assert found[f"{PREFIX}_compaction_bytes_total,side=before"] == 300
    assert found[f"{PREFIX}_compaction_bytes_total,side=after"] == 100
    assert found[f"{PREFIX}_compaction_records_total,side=after"] == 10
    assert found[f"{PREFIX}_compaction_partitions_total,result=ok"] == 1
    assert found[f"{PREFIX}_compaction_partitions_total,result=failed"] == 1
    assert found[f"{PREFIX}_compaction_job_duration_seconds_sum"] == 2.5


def test_the_oldest_pending_segment_is_reported_while_others_are_archived(metrics: Metrics) -> None:
    metrics.handle(checked(a_status(2, age_s=100)))
    metrics.handle(events.BacklogChanged(ORDERS, 1, 100, NOW_MS - 40_000, None, 0))
    assert values(metrics)[f"{PREFIX}_oldest_pending_segment_age_seconds"] == pytest.approx(40, abs=0.01)
    metrics.handle(events.BacklogChanged(ORDERS, 0, 0, None, None, 0))
    assert values(metrics)[f"{PREFIX}_oldest_pending_segment_age_seconds"] == 0


def test_what_stopped_counts_while_the_round_goes_on(metrics: Metrics) -> None:
    metrics.handle(events.CycleEnded(2, 0))
    for stopped, expected in ((0, 2), (3, 3)):
        metrics.handle(events.CycleProgressed(stopped))
        assert values(metrics)[f"{PREFIX}_partitions,state=stopped"] == expected
    metrics.handle(events.CycleEnded(1, 0))
    assert values(metrics)[f"{PREFIX}_partitions,state=stopped"] == 1


def test_a_round_that_archives_is_a_success_unless_something_stopped_in_it_or_before(
    metrics: Metrics, clock: ManualClock
) -> None:
    name = f"{PREFIX}_last_success_timestamp_seconds"
    metrics.handle(events.CycleProgressed(0))
    assert values(metrics)[name] == 0
    metrics.handle(events.CycleProgressed(0, archived=True))
    assert values(metrics)[name] == NOW_MS / 1000
    clock.advance_ms(5_000)
    metrics.handle(events.CycleProgressed(1, archived=True))
    metrics.handle(events.CycleEnded(1, 0))
    metrics.handle(events.CycleProgressed(0, archived=True))
    assert values(metrics)[name] == NOW_MS / 1000


def test_no_series_tells_when_another_was_created(metrics: Metrics) -> None:
    metrics.handle(committed("equal"))
    for accept in ("", "application/openmetrics-text"):
        assert b"_created" not in metrics.exposition(accept)[0]
