"""What the board keeps of what the pipeline tells it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sidecar.archive.extent import ArchiveExtent
from sidecar.archive.state import empty_state
from sidecar.clock import ManualClock
from sidecar.errors import ObjectMissing
from sidecar.model import FileIdentity, ObjectKey, SegmentFiles, TopicPartition
from sidecar.partition.status import PartitionStatus
from sidecar.reporting.history import SAMPLE_EVERY_S, WINDOW_S
from sidecar.reporting.status_model import ERROR_TEXT_MAX, ERRORS_MAX, StatusModel
from tests.archive.builders import LINEAGE
from tests.fakes.memory_store import MemoryStore
from tests.pipeline.archived import segment as archived_segment

ORDERS = TopicPartition("orders", 0)
LOG_DIR = Path("logs")


def look(**changes: object) -> PartitionStatus:
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


def test_a_commit_shows_at_once_before_the_next_look() -> None:
    board = StatusModel(ManualClock())
    board.opened(ORDERS, empty_state(LINEAGE))
    board.looked([look()])
    entry = archived_segment(0, 10)
    with board.uploading(files(0)):
        assert [upload.base_offset for upload in board.figures().partitions[0].uploads] == [0]
    board.grown(ORDERS, [entry], ())
    board.committed(files(0), entry, "equal")
    (found,) = board.figures().partitions
    assert (found.uploads, found.segments_archived, found.extent.end_offset) == ((), 1, 10)
    assert (found.status.pending_segments, found.status.pending_bytes, found.status.archived_end_offset) == (1, 100, 10)
    assert board.figures().snapshots == {"broker": 1, "equal": 1}


def test_a_partition_that_is_gone_from_the_disk_is_gone_from_the_board() -> None:
    board = StatusModel(ManualClock())
    board.opened(ORDERS, empty_state(LINEAGE))
    board.looked([look()])
    board.grown(ORDERS, [archived_segment(0, 10)], ())
    assert board.extent(ORDERS).end_offset == 10
    board.looked([])
    assert board.figures().partitions == ()
    # Nothing of it is kept either: topics come and go for years.
    assert board.extent(ORDERS) == ArchiveExtent()


def test_when_the_broker_deletes_is_told_anew_after_each_commit() -> None:
    board = StatusModel(ManualClock())
    board.looked([look(deadline_ms=1_000)])
    board.threatened(ORDERS, 9_000)
    assert board.figures().partitions[0].status.deadline_ms == 9_000
    version = board.version
    board.threatened(ORDERS, 9_000)
    board.threatened(TopicPartition("gone", 0), 5)
    assert board.version == version
    board.threatened(ORDERS, None)
    assert board.figures().partitions[0].status.deadline_ms is None


def test_figures_are_of_one_moment() -> None:
    """Who asks while something is changed waits for the change's end: no iteration meets a container that grows."""
    board = StatusModel(ManualClock())
    asked: list[object] = []
    with board._lock:
        asker = threading.Thread(target=lambda: asked.append(board.figures()))
        asker.start()
        asker.join(0.1)
        assert asked == []
    asker.join(120)
    assert len(asked) == 1


def test_an_upload_that_fails_is_not_shown_for_ever() -> None:
    board = StatusModel(ManualClock())
    with pytest.raises(ObjectMissing), board.uploading(files(0)):
        MemoryStore().read(ObjectKey("nothing"))
    assert board.figures().uploads == ()


def test_errors_are_counted_bounded_and_without_secrets() -> None:
    clock = ManualClock(1_000)
    board = StatusModel(clock, lambda text: text.replace("hunter2", "***"))
    for number in range(ERRORS_MAX + 5):
        board.failed(f"orders-{number}", "StoreDenied", "key hunter2 was refused")
    clock.advance_ms(500)
    board.failed("orders-7", "StoreDenied", "key hunter2 was refused")
    board.failed("store", "StoreUnavailable", "x" * 10_000)
    board.looked([look(reason="hunter2 is wrong")])
    assert "hunter2" not in repr(board.figures())
    board.turned(look(reason="hunter2 is still wrong"))
    figures = board.figures()
    assert figures.partitions[0].status.reason == "*** is still wrong"
    assert len(figures.errors) == ERRORS_MAX
    longest, again = figures.errors[:2]
    assert len(longest.text) == ERROR_TEXT_MAX
    assert (again.where, again.count, again.first_ms, again.last_ms) == ("orders-7", 2, 1_000, 1_500)
    assert "hunter2" not in repr(figures)


def test_every_change_is_a_new_version_and_looking_is_none() -> None:
    board = StatusModel(ManualClock())
    versions = [board.version]
    for change in (
        lambda: board.about("s3://bucket", "host/1"),
        lambda: board.looked([look()]),
        lambda: board.turned(look(reason="waits")),
        lambda: board.opened(ORDERS, empty_state(LINEAGE)),
        lambda: board.failed("store", "StoreDenied", "no"),
        board.tick,
    ):
        change()
        board.figures()
        versions.append(board.version)
    assert versions == sorted(set(versions))


def test_the_last_hour_is_kept_and_no_more() -> None:
    clock = ManualClock()
    board = StatusModel(clock)
    board.looked([look()])
    for _ in range(400):
        clock.advance_ms(round(SAMPLE_EVERY_S * 500))
        board.tick()
    samples = board.figures().samples
    assert len(samples) <= WINDOW_S / SAMPLE_EVERY_S + 2
    assert WINDOW_S <= samples[0].age_s <= WINDOW_S + SAMPLE_EVERY_S
    assert samples[-1].age_s == 0
    assert {sample.pending_bytes for sample in samples} == {200}


def test_since_when_a_partition_stands_is_kept_until_it_gets_on() -> None:
    clock = ManualClock(1_000)
    board = StatusModel(clock)
    for _ in range(3):
        board.looked([look(archived_end_offset=10)])
        clock.advance_ms(100)
    board.turned(look(archived_end_offset=10))
    assert board.figures().partitions[0].stands_since_ms == 1_000
    board.looked([look(archived_end_offset=20)])
    assert board.figures().partitions[0].stands_since_ms == 1_300
    board.looked([look(archived_end_offset=20, pending_segments=0)])
    assert board.figures().partitions[0].stands_since_ms is None
