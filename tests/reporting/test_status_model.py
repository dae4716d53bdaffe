"""What the status model shows of domain events."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.archive.coverage import ArchiveExtent
from sidecar.errors import StoreDenied
from sidecar.http.pages import status_json
from sidecar.model import FileIdentity, SegmentFiles, TopicPartition
from sidecar.partition.domain_events import (
    BacklogChanged,
    CommitFailed,
    DomainEvent,
    ExtentChanged,
    PartitionChecked,
    PartitionFailed,
    PartitionsChecked,
    SegmentCommitted,
    SegmentUploaded,
    SegmentUploadFailed,
    SegmentUploadStarted,
)
from sidecar.partition.status import PartitionStatus
from sidecar.partition.wait_reason import BrokerAway, Wait
from sidecar.reporting.status_model import ERROR_TEXT_MAX, ERRORS_MAX, SAMPLE_EVERY_S, WINDOW_S, StatusModel
from tests.fakes.manual_clock import ManualClock
from tests.runner.archived import segment as archived_segment

ORDERS = TopicPartition("orders", 0)
LOG_DIR = Path("logs")


def status(**changes: object) -> PartitionStatus:
    found = {
        "leads": True,
        "local_start_offset": 0,
        "local_end_offset": 30,
        "pending_segments": 2,
        "pending_bytes": 200,
    }
    return PartitionStatus(ORDERS, **{**found, **changes})  # type: ignore[arg-type]


def files(base_offset: int) -> SegmentFiles:
    log = FileIdentity(LOG_DIR / "orders-0", f"{base_offset:020d}.log", 1, 100, 0)
    return SegmentFiles(ORDERS, LOG_DIR, base_offset, base_offset + 10, log, None, None, None, None)


def checked(*statuses: PartitionStatus) -> PartitionsChecked:
    return PartitionsChecked(statuses, frozenset())


def fed(*happened: DomainEvent) -> StatusModel:
    model = StatusModel(ManualClock())
    for event in happened:
        model.handle(event)
    return model


EXTENT = ExtentChanged(ORDERS, ArchiveExtent().grown([archived_segment(0, 10)], ()))


def test_a_commit_shows_at_once_before_the_next_check() -> None:
    model = fed(checked(status()), SegmentUploadStarted(files(0)))
    assert [upload.base_offset for upload in model.figures().partitions[0].uploads] == [0]
    model.handle(SegmentUploaded(files(0), 100, 1.0))
    model.handle(EXTENT)
    model.handle(SegmentCommitted(files(0), archived_segment(0, 10), "equal"))
    model.handle(BacklogChanged(ORDERS, 1, 100, None, None, 0))
    (found,) = model.figures().partitions
    assert (found.uploads, found.segments_archived, found.extent.end_offset) == ((), 1, 10)
    assert (found.status.pending_segments, found.status.pending_bytes, found.status.archived_end_offset) == (1, 100, 10)
    assert model.figures().snapshots == {"broker": 1, "equal": 1}


@pytest.mark.parametrize("known", [frozenset(), frozenset({ORDERS})])
def test_of_a_partition_that_is_gone_from_the_disk_nothing_is_kept_unless_it_may_come_back(
    known: frozenset[TopicPartition],
) -> None:
    """Topics come and go for years."""
    model = fed(checked(status()), EXTENT, PartitionsChecked((), known))
    assert model.figures().partitions == ()
    model.handle(PartitionChecked(status()))
    assert model.figures().partitions[0].extent.end_offset == (10 if known else None)


def test_when_the_broker_deletes_is_shown_again_after_each_commit() -> None:
    model = fed(checked(status(deadline_ms=1_000)), BacklogChanged(ORDERS, 1, 100, None, 9_000, 7))
    found = model.figures().partitions[0].status
    assert (found.deadline_ms, found.pinned_deleted_bytes) == (9_000, 7)
    assert (found.pending_segments, found.pending_bytes) == (1, 100)
    version = model.version
    model.handle(BacklogChanged(ORDERS, 1, 100, None, 9_000, 7))
    model.handle(BacklogChanged(TopicPartition("gone", 0), 1, 100, None, 5, 0))
    model.handle(CommitFailed())
    assert model.version == version
    model.handle(BacklogChanged(ORDERS, 0, 0, None, None, 0))
    assert model.figures().partitions[0].status.deadline_ms is None


def test_figures_are_of_one_moment() -> None:
    """Who asks while something is changed waits for the change's end: no iteration meets a container that grows."""
    model = fed()
    asked: list[object] = []
    with model._lock:
        asker = threading.Thread(target=lambda: asked.append(model.figures()))
        asker.start()
        asker.join(0.1)
        assert asked == []
    asker.join(120)
    assert len(asked) == 1


def test_an_upload_that_fails_is_not_shown_for_ever() -> None:
    assert fed(SegmentUploadStarted(files(0)), SegmentUploadFailed(files(0))).figures().uploads == ()


def test_what_a_look_costs_does_not_grow_with_partitions_times_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events wait meanwhile."""
    names = [TopicPartition("orders", number) for number in range(100)]
    model = fed(checked(*(replace(status(), topic_partition=name) for name in names)))
    for name in names:
        model.handle(SegmentUploadStarted(replace(files(0), topic_partition=name)))
    compared: list[object] = []

    def is_same(left: TopicPartition, right: object) -> bool:
        compared.append(right)
        return isinstance(right, TopicPartition) and left.partition == right.partition

    monkeypatch.setattr(TopicPartition, "__eq__", is_same)
    figures = model.figures()
    assert len(compared) <= 10 * len(names)
    assert [[upload.topic_partition for upload in found.uploads] for found in figures.partitions] == [
        [name] for name in names
    ]


def test_errors_are_counted_bounded_and_without_secrets() -> None:
    clock = ManualClock(1_000)
    model = StatusModel(clock, lambda text: text.replace("hunter2", "***"))
    for number in range(ERRORS_MAX + 5):
        model.failed(f"orders-{number}", "StoreDenied", "key hunter2 was refused")
    clock.advance_ms(500)
    model.failed("orders-7", "StoreDenied", "key hunter2 was refused")
    model.failed("store", "StoreUnavailable", "x" * 10_000)
    model.handle(checked(status(reason=BrokerAway("hunter2 is wrong"))))
    assert "hunter2" not in repr(status_json(model))
    model.handle(PartitionChecked(status(error_text="hunter2 is still wrong")))
    figures = model.figures()
    assert figures.partitions[0].reason == "*** is still wrong"
    assert len(figures.errors) == ERRORS_MAX
    longest, again = figures.errors[:2]
    assert len(longest.text) == ERROR_TEXT_MAX
    assert (again.where, again.count, again.first_ms, again.last_ms) == ("orders-7", 2, 1_000, 1_500)
    assert "hunter2" not in repr(status_json(model))


def test_events_do_not_wait_while_secrets_are_taken_out() -> None:
    """That reads files of passwords, which may lie on a mount that hangs."""
    redacted: list[str] = []

    def redact(text: str) -> str:
        others = threading.Thread(target=model.handle, args=(SegmentUploadStarted(files(0)),), daemon=True)
        others.start()
        others.join(10)
        assert not others.is_alive()
        redacted.append(text)
        return text

    model = StatusModel(ManualClock(), redact)
    model.handle(
        checked(status(reason=BrokerAway("gone")), replace(status(), topic_partition=TopicPartition("idle", 0)))
    )
    model.handle(PartitionFailed(ORDERS, StoreDenied("no")))
    model.failed("store", "StoreDenied", "never")
    assert len(redacted) == 2
    assert len(model.figures().partitions) == 2
    # Where a partition does not wait, there is no text.
    assert len(redacted) == 3


def test_every_change_is_a_new_version_and_looking_is_none() -> None:
    model = StatusModel(ManualClock())
    versions = [model.version]
    for change in (
        lambda: model.about("s3://bucket", "host/1"),
        lambda: model.handle(checked(status())),
        lambda: model.handle(PartitionChecked(status(reason=Wait.NOT_ADMITTED))),
        lambda: model.handle(EXTENT),
        lambda: model.failed("store", "StoreDenied", "no"),
        model.tick,
    ):
        change()
        model.figures()
        versions.append(model.version)
    assert versions == sorted(set(versions))


def test_the_last_hour_is_kept_and_no_more() -> None:
    clock = ManualClock()
    model = StatusModel(clock)
    model.handle(checked(status()))
    for _ in range(400):
        clock.advance_ms(round(SAMPLE_EVERY_S * 500))
        model.tick()
    samples = model.figures().samples
    assert len(samples) <= WINDOW_S / SAMPLE_EVERY_S + 2
    assert WINDOW_S <= samples[0].age_s <= WINDOW_S + SAMPLE_EVERY_S
    assert samples[-1].age_s == 0
    assert {sample.pending_bytes for sample in samples} == {200}


def test_since_when_a_partition_stands_is_kept_until_it_gets_on() -> None:
    clock = ManualClock(1_000)
    model = StatusModel(clock)
    for _ in range(3):
        model.handle(checked(status(archived_end_offset=10)))
        clock.advance_ms(100)
    model.handle(PartitionChecked(status(archived_end_offset=10)))
    assert model.figures().partitions[0].stands_since_ms == 1_000
    model.handle(checked(status(archived_end_offset=20)))
    assert model.figures().partitions[0].stands_since_ms == 1_300
    model.handle(checked(status(archived_end_offset=20, pending_segments=0)))
    assert model.figures().partitions[0].stands_since_ms is None
