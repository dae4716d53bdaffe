"""Offsets that no local file has: a hole wherever no cleaner explains them, also just above the archive and in whole segments."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import structlog

from producer_state.snapshot import read_snapshot
from sidecar.archive.state import PartitionState
from sidecar.broker.files import FileBrokerFacts
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.discovery.partition_directory import read_partition_directory
from sidecar.errors import CoverageHole, SegmentChanged, StoreUnavailable
from sidecar.host.archive_cache import SEGMENTS_KEPT
from sidecar.host.listed_files import ensure_unchanged, opened
from sidecar.logformat.leader_epochs import read_leader_epochs
from sidecar.model import ObjectKey, PartName, SnapshotOrigin, TopicPartition
from sidecar.partition.wait_reason import OpenTransaction
from sidecar.restore.request import RestoreRequest
from sidecar.restore.restore import restore
from sidecar.runner.copy_executor import CopyExecutor
from sidecar.segment.archived_objects import first_undecided
from sidecar.segment.local_disk import LocalDisk
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.restore.archives import CLOCK, golden_topic_id, own_log_dir
from tests.runner.archives import parts_of
from tests.runner.rig import (
    archive,
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rolled_ranges,
    rounds_over,
    tools_for,
)
from tests.verifying import verify_partition

ORDERS = list(pairwise((0, 140, 248, 362, 504, 606, 724, 868, 964)))
LOST = ORDERS[3]


def log_of(log_dir: Path, base_offset: int, partition: str = "orders-0") -> Path:
    return log_dir / partition / f"{base_offset:020d}.log"


def orders_of(store: MemoryStore) -> PartitionState:
    return archived_states(store)["orders-0"]


def holes(state: PartitionState) -> list[tuple[int, int]]:
    return [(hole.base_offset, hole.end_offset) for hole in state.holes]


@pytest.fixture
def caught_up(tmp_path: Path) -> tuple[Path, MemoryStore]:
    """All is archived that was rolled: the archive ends where the segment begins whose `.log` is gone then."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state", max_queue=3) as context:
        archive(context, log_dir)
    assert orders_of(store).end_offset == LOST[0]
    log_of(log_dir, LOST[0]).unlink()
    return log_dir, store


def cut_out_a_batch(log: Path) -> None:
    """As a cleaner does."""
    content = log.read_bytes()
    first = struct.unpack_from(">i", content, 8)[0] + 12
    second = first + struct.unpack_from(">i", content, first + 8)[0] + 12
    log.write_bytes(content[:first] + content[second:])
    for suffix in ("index", "timeindex"):
        log.with_suffix(f".{suffix}").unlink()


def test_a_log_that_is_gone_just_above_the_archive_is_a_hole(
    caught_up: tuple[Path, MemoryStore], tmp_path: Path
) -> None:
    log_dir, store = caught_up
    with tools_for(log_dir, store, tmp_path / "state") as context:
        (error,) = archive(context, log_dir).errors
    assert isinstance(error, CoverageHole)
    assert error.hole == LOST
    where = f"{log_of(log_dir, ORDERS[2][0])} has no batch from offset {LOST[0]} on, where the archive ends"
    assert f"{where}, the next segment begins at {LOST[1]}" in str(error)
    assert ranges(orders_of(store)) == ORDERS[:3]
    with tools_for(log_dir, store, tmp_path / "state", record_lost=True) as context:
        assert archive(context, log_dir).errors == []
    state = orders_of(store)
    assert (ranges(state), holes(state)) == (ORDERS[:3] + ORDERS[4:], [LOST])
    assert {segment.snapshot.origin for segment in state.segments} == {SnapshotOrigin.BROKER}
    assert verify_partition(store, ObjectKey(state.lineage.root), ManualClock(0), deep=True).problems == ()


def test_a_log_that_is_empty_without_its_indexes_is_a_hole(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    log_of(log_dir, LOST[0]).write_bytes(b"")
    for suffix in ("index", "timeindex"):
        log_of(log_dir, LOST[0]).with_suffix(f".{suffix}").unlink()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        (error,) = archive(context, log_dir).errors
    assert isinstance(error, CoverageHole)
    assert f"{log_of(log_dir, LOST[0])} is empty" in str(error)
    assert f"ever compacted. {LOST[0]:020d}.log has lost its content. Make another in-sync replica the" in str(error)
    assert ranges(orders_of(store)) == ORDERS[:3]
    with tools_for(log_dir, store, tmp_path / "state", record_lost=True) as context:
        assert archive(context, log_dir).errors == []
    assert (ranges(orders_of(store)), holes(orders_of(store))) == (ORDERS[:3] + ORDERS[4:], [LOST])


def test_a_segment_that_has_its_batches_again_before_its_loss_is_recorded_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    log = log_of(log_dir, LOST[0])
    content, record = log.read_bytes(), CopyExecutor._record_loss
    log.write_bytes(b"")
    for suffix in ("index", "timeindex"):
        log.with_suffix(f".{suffix}").unlink()

    def come_back_first(*given: Any) -> Any:
        log.write_bytes(content)
        return record(*given)

    monkeypatch.setattr(CopyExecutor, "_record_loss", come_back_first)
    with tools_for(log_dir, store, tmp_path / "state", record_lost=True) as context:
        assert [type(error) for error in archive(context, log_dir).errors] == [SegmentChanged]
        assert archive(context, log_dir).errors == []
    assert (ranges(orders_of(store)), holes(orders_of(store))) == (ORDERS, [])


def test_what_is_lost_before_the_archive_begins_is_reported_and_the_archive_begins_behind_it(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    log_of(log_dir, 0).write_bytes(b"")
    for suffix in ("index", "timeindex"):
        log_of(log_dir, 0).with_suffix(f".{suffix}").write_bytes(b"")
    with tools_for(log_dir, store, tmp_path / "state", record_lost=True) as context:
        with structlog.testing.capture_logs() as logs:
            assert archive(context, log_dir).errors == []
        assert f"lost_offsets_total {ORDERS[0][1]}.0" in context.metrics.exposition()[0].decode()
    reported = [line for line in logs if line["event"] == "offsets_lost"]
    assert [(line["from_offset"], line["to_offset"]) for line in reported] == [ORDERS[0]]
    assert "its archive begins above them" in reported[0]["reason"]
    assert (ranges(orders_of(store)), holes(orders_of(store))) == (ORDERS[1:], [])


def test_what_another_broker_has_archived_since_the_plan_is_no_loss(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    other = copy_partitions(tmp_path / "other", "orders-0")
    log_of(log_dir, 0).write_bytes(b"")
    for suffix in ("index", "timeindex"):
        log_of(log_dir, 0).with_suffix(f".{suffix}").write_bytes(b"")
    with tools_for(log_dir, store, tmp_path / "state", record_lost=True) as context:
        loop = rounds_over(context, log_dir)
        planned = loop.plan()
        with tools_for(other, store, tmp_path / "other-state") as tools_there:
            assert archive(tools_there, other).errors == []
        with structlog.testing.capture_logs() as logs:
            assert loop.work(*planned).errors == []
        (archiver,) = loop.checks.archivers
    assert [line for line in logs if line["event"] == "offsets_lost"] == []
    assert (ranges(orders_of(store)), holes(orders_of(store))) == (ORDERS, [])
    assert archiver.known.extent.segments == len(ORDERS) > SEGMENTS_KEPT
    assert archiver.known.extent.start_offset == 0


@pytest.mark.parametrize("explained_by", ["its own cleaner", "cleanup.policy", "the batches before it"])
@pytest.mark.parametrize("where", ["just above the archive", "in an empty file"])
def test_a_segment_that_a_cleaner_emptied_is_no_hole(where: str, explained_by: str, tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    policies = [TopicPolicySettings(pattern="orders", cleanup_policy="compact")]
    with tools_for(log_dir, store, tmp_path / "state", max_queue=3) as context:
        archive(context, log_dir)
    log_of(log_dir, LOST[0]).unlink()
    for suffix in ("index", "timeindex"):
        log_of(log_dir, LOST[0]).with_suffix(f".{suffix}").unlink()
    if where == "in an empty file":
        # A broker's cleaner leaves one, a replica that fetches the log does not.
        for suffix in ("log", "index", "timeindex"):
            log_of(log_dir, LOST[0]).with_suffix(f".{suffix}").write_bytes(b"")
    if explained_by == "its own cleaner":
        (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {LOST[1]}\n")
    if explained_by == "the batches before it":
        cut_out_a_batch(log_of(log_dir, ORDERS[2][0]))
    with tools_for(log_dir, store, tmp_path / "state") as context:
        if explained_by == "cleanup.policy":
            context = replace(context, facts=FileBrokerFacts([log_dir], assume_leader=True, policies=policies))
        errors = archive(context, log_dir).errors
        counted = context.metrics.exposition()[0].decode()
    if (where, explained_by) == ("in an empty file", "the batches before it"):
        # Those are of another file. Which segments its cleaner has emptied the broker's note says.
        assert [type(error) for error in errors] == [CoverageHole]
        return
    assert errors == []
    taken = LOST[1] - LOST[0] if explained_by == "cleanup.policy" else 0
    assert f"offsets_accepted_as_compacted_total {taken}.0" in counted
    assert (ranges(orders_of(store)), holes(orders_of(store))) == (ORDERS, [])


@pytest.mark.parametrize(("cleaned_to", "reported"), [(LOST[1], []), (LOST[1] - 1, [LOST]), (0, [LOST])])
@pytest.mark.parametrize("policy", ["compact", None, "delete"])
def test_offsets_above_the_first_dirty_one_are_not_taken_as_cleaned_silently(
    cleaned_to: int, reported: list[tuple[int, int]], policy: str | None, tmp_path: Path
) -> None:
    """Such an entry may still be right: a restored log has its start there. Source: LogCleanerManager.cleanableOffsets."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    policies = [TopicPolicySettings.model_validate({"pattern": "orders", "cleanup_policy": policy})] if policy else []
    (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {cleaned_to}\n")
    for suffix in ("log", "index", "timeindex"):
        log_of(log_dir, LOST[0]).with_suffix(f".{suffix}").unlink()
    with tools_for(log_dir, store, tmp_path / "state") as context, structlog.testing.capture_logs() as logs:
        context = replace(context, facts=FileBrokerFacts([log_dir], assume_leader=True, policies=policies))
        assert archive(context, log_dir).errors == []
    found = [line for line in logs if line["event"] == "missing_offsets_accepted_as_compacted"]
    assert [line["offsets"] for line in found] == reported
    expected = "cleanup.policy has compact" if policy == "compact" else f"first dirty offset is {cleaned_to}"
    assert all(expected in line["reason"] for line in found)


def test_a_segment_that_a_cleaner_emptied_around_the_log_start_has_the_epochs_from_there_on(tmp_path: Path) -> None:
    """After DeleteRecords the checkpoint begins at the log start, and no batch shows the epoch below."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state", max_queue=3) as context:
        archive(context, log_dir)
    start_offset, directory = LOST[0] + 10, log_dir / "orders-0"
    remove_offsets(directory, lambda offset: offset >= LOST[0])
    for suffix in ("log", "index", "timeindex"):
        log_of(log_dir, LOST[0]).with_suffix(f".{suffix}").write_bytes(b"")
    (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {LOST[1]}\n")
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {start_offset}\n")
    checkpoint = directory / "leader-epoch-checkpoint"
    epochs = read_leader_epochs(checkpoint.read_bytes()).truncate_from_start(start_offset)
    assert epochs.entries[0].start_offset == start_offset
    checkpoint.write_bytes(epochs.to_text())
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir).errors == []
    state = orders_of(store)
    assert (ranges(state), holes(state)) == (ORDERS, [])
    emptied = state.segments[3]
    assert (emptied.batch_count, emptied.leader_epochs) == (0, epochs.in_range(*LOST).entries)
    assert verify_partition(store, ObjectKey(state.lineage.root), ManualClock(0), deep=True).problems == ()
    restored_dir = own_log_dir(tmp_path)
    request = RestoreRequest("orders", restored_dir, topic_id=golden_topic_id("orders"))
    assert restore(store, CLOCK, request).exit_code == 0
    text = (restored_dir / "orders-0" / "leader-epoch-checkpoint").read_bytes()
    assert read_leader_epochs(text).covers(0)


def test_a_file_that_comes_back_below_the_cut_makes_it_another_log(
    caught_up: tuple[Path, MemoryStore], tmp_path: Path
) -> None:
    log_dir, _ = caught_up
    files = read_partition_directory(TopicPartition("orders", 0), log_dir, log_dir / "orders-0")
    with opened(files.segments[2].log) as descriptor:
        cut = LocalDisk().cut(files.segments[2], LOST[0], descriptor)
    assert cut is not None
    ensure_unchanged(cut, files, 0)
    log_of(log_dir, LOST[0]).write_bytes(log_of(golden("4.3.0") / "logs", LOST[0]).read_bytes())
    with pytest.raises(SegmentChanged, match=f"a segment now begins at {LOST[0]}, inside it"):
        ensure_unchanged(cut, files, 0)


@pytest.mark.parametrize(
    ("partition", "missing", "undecided"), [("orders-0", 3, None), ("orders-0", 5, None), ("transactions-0", 2, 77)]
)
def test_producers_are_followed_up_to_a_hole_and_from_behind_it(
    partition: str, missing: int, undecided: int | None, tmp_path: Path
) -> None:
    """The broker's snapshots are right on both sides, whatever the offsets between them did. A compaction must not guess that."""
    log_dir, store = copy_partitions(tmp_path, partition), MemoryStore()
    spans = rolled_ranges(log_dir, partition)
    log_of(log_dir, spans[missing][0], partition).unlink()
    recording = tools_for(log_dir, store, tmp_path / "state", record_lost=True)
    with recording as context, structlog.testing.capture_logs() as logs:
        assert archive(context, log_dir).errors == []
    assert "producer_snapshot_mismatch" not in {line["event"] for line in logs}
    state = archived_states(store)[partition]
    assert holes(state) == [spans[missing]]
    assert first_undecided(store, state) == undecided
    assert len(state.segments) > missing
    for segment in state.segments:
        parts = parts_of(store, state, segment)
        path = golden("4.3.0") / "logs" / partition / f"{segment.end_offset:020d}.snapshot"
        assert read_snapshot(parts[PartName.PRODUCER_SNAPSHOT]) == read_snapshot(path.read_bytes())
        is_cut = segment.end_offset == spans[missing][0]
        assert (segment.snapshot.origin is SnapshotOrigin.REBUILT) == is_cut
        assert segment.snapshot.exact
        # No epoch that began among the lost offsets either.
        begins = [entry.start_offset for entry in read_leader_epochs(parts[PartName.LEADER_EPOCHS]).entries]
        assert max(begins) < segment.end_offset


@pytest.mark.parametrize(("has_snapshot", "waits_for"), [(True, (11, 777)), (False, (11, 431))])
def test_markers_that_are_lost_hold_no_segment_back_where_a_snapshot_shows_what_is_open_behind_them(
    has_snapshot: bool, waits_for: tuple[int, int], tmp_path: Path
) -> None:
    """The transaction that is open at 431 was decided among the lost offsets; the one open since 777 is open for good."""
    log_dir, store = copy_partitions(tmp_path, "transactions-0"), MemoryStore()
    (log := log_of(log_dir, 603, "transactions-0")).unlink()
    if not has_snapshot:
        log.with_name(f"{848:020d}.snapshot").unlink()
    with tools_for(log_dir, store, tmp_path / "state", record_lost=True) as context:
        (outcome,) = archive(context, log_dir).outcomes
    assert isinstance(outcome.reason, OpenTransaction)
    assert (outcome.reason.producer_id, outcome.reason.first_offset) == waits_for


def test_a_first_segment_that_is_empty_is_reported_once_however_often_the_next_one_is_tried(tmp_path: Path) -> None:
    away = [True]

    def no_answer(operation: str, _key: str) -> None:
        if operation == "upload" and away[0]:
            raise StoreUnavailable("no answer")

    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore(before=no_answer)
    log_of(log_dir, 0).write_bytes(b"")
    for suffix in (".index", ".timeindex"):
        log_of(log_dir, 0).with_suffix(suffix).unlink()
    with tools_for(log_dir, store, tmp_path / "state", record_lost=True) as context:
        rounds = rounds_over(context, log_dir)
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                assert isinstance(rounds.run_once().errors[0], StoreUnavailable)
                context.clock.sleep_s(context.policy.retry_wait_s)
            away[0] = False
            assert rounds.run_once().errors == []
        reported = [(line["from_offset"], line["to_offset"]) for line in logs if line["event"] == "offsets_lost"]
        assert reported == [ORDERS[0]]
        assert context.metrics.registry.get_sample_value("tiered_sidecar_lost_offsets_total") == ORDERS[0][1]
    assert ranges(orders_of(store)) == ORDERS[1:]


def test_an_emptied_log_is_named_before_its_index(caught_up: tuple[Path, MemoryStore], tmp_path: Path) -> None:
    log_dir, store = caught_up
    log = log_of(log_dir, LOST[0])
    log.write_bytes(b"")
    assert log.with_suffix(".index").stat().st_size
    with tools_for(log_dir, store, tmp_path / "state") as context:
        (error,) = archive(context, log_dir).errors
    assert str(error).startswith(
        f"{log}: has no batch from offset {LOST[0]} on, the next segment begins at {LOST[1]}, and an index"
    )
    assert str(error).endswith("it has lost content; restore it from a replica")


def test_a_cut_log_is_named_if_its_index_points_beyond(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    log = log_of(log_dir, 0)
    content = log.read_bytes()
    log.write_bytes(content[: struct.unpack_from(">i", content, 8)[0] + 12])
    with tools_for(log_dir, store, tmp_path / "state") as context:
        (error,) = archive(context, log_dir).errors
    assert "points beyond the log" in str(error)
    assert str(error).endswith("it has lost content; restore it from a replica")


def test_a_symbolic_link_is_named_as_one(caught_up: tuple[Path, MemoryStore], tmp_path: Path) -> None:
    log_dir, store = caught_up
    log = log_of(log_dir, LOST[0])
    elsewhere = tmp_path / log.name
    elsewhere.write_bytes(b"x")
    log.symlink_to(elsewhere)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        (error,) = archive(context, log_dir).errors
    assert f"{log}: a symbolic link; a segment's files must be regular files" in str(error)
    assert "run as the broker's user" not in str(error)
