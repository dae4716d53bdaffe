"""Replicas roll at different offsets: the archive goes on inside a segment of the broker that leads now."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from producer_state.table import ProducerTable
from sidecar.archive.bundle import cut_parts
from sidecar.archive.keys import NO_TOPIC_ID, Lineage, below
from sidecar.archive.state import empty_state
from sidecar.discovery.partition_directory import read_partition_directory
from sidecar.errors import LineageUnknown
from sidecar.host.listed_files import opened
from sidecar.model import ObjectKey, PartitionFiles, PartName, SegmentFiles, TopicPartition
from sidecar.segment.local_disk import LocalDisk
from sidecar.segment.prepare import LogPosition, prepare_segment
from sidecar.segment.producer_snapshot import KnownState
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.retention.pinned_rig import Outage
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


def join_segments(directory: Path, first: int, second: int) -> None:
    """As on a replica that did not roll at `second`."""
    ours = directory / f"{first:020d}.log"
    ours.write_bytes(ours.read_bytes() + (directory / f"{second:020d}.log").read_bytes())
    remove_offsets(directory, lambda offset: offset != second)
    for suffix in ("index", "timeindex", "txnindex"):
        (directory / f"{first:020d}.{suffix}").unlink(missing_ok=True)


def archived_parts(store: MemoryStore, partition: str, base_offset: int) -> dict[PartName, bytes]:
    state = archived_states(store)[partition]
    (segment,) = (found for found in state.segments if found.base_offset == base_offset)
    key = below(state.lineage.root, segment.indexes_key)
    log = store.objects[below(state.lineage.root, segment.log_key)]
    return {PartName.LOG: log, **cut_parts(store.objects[key], segment, key)}


@pytest.mark.parametrize("partition", ["orders-0", "transactions-0"])
def test_the_archive_goes_on_inside_a_segment_as_if_the_broker_had_rolled_there(partition: str, tmp_path: Path) -> None:
    whole = copy_partitions(tmp_path / "whole", partition)
    spans = rolled_ranges(whole, partition)
    second, third = spans[1][0], spans[2][0]
    for suffix in ("index", "timeindex", "txnindex"):
        # The reference: what the third segment is archived as when its indexes must be rebuilt.
        (whole / partition / f"{third:020d}.{suffix}").unlink(missing_ok=True)
    expected, store = MemoryStore(), MemoryStore()
    with tools_for(whole, expected, tmp_path / "expected") as context:
        assert archive(context, whole).errors == []
    other = copy_partitions(tmp_path / "other", partition)
    with tools_for(other, store, tmp_path / "state", max_queue=2) as context:
        assert archive(context, other).errors == []
    join_segments(other / partition, second, third)
    with tools_for(other, store, tmp_path / "state of the new leader") as context:
        assert archive(context, other).errors == []
    (state,) = archived_states(store).values()
    assert ranges(state) == ranges(archived_states(expected)[partition])
    assert archived_parts(store, partition, third) == archived_parts(expected, partition, third)
    joined = (other / partition / f"{second:020d}.log").read_bytes()
    segment = next(found for found in state.segments if found.base_offset == third)
    assert segment.source_size_bytes == len(joined)
    assert joined[segment.source_position :] == archived_parts(store, partition, third)[PartName.LOG]
    found = verify_partition(store, ObjectKey(state.lineage.root), ManualClock(0), deep=True)
    assert (found.problems, found.orphans) == ((), ())


def test_where_no_batch_begins_at_the_archive_end_the_partition_stops_and_says_what_to_do(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    directory = log_dir / "orders-0"
    with tools_for(log_dir, store, tmp_path / "state", max_queue=2) as context:
        archive(context, log_dir)
    (first, second, third) = (span[0] for span in rolled_ranges(log_dir, "orders-0")[:3])
    join_segments(directory, second, third)
    tear_batch(directory / f"{second:020d}.log", third)
    (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {first}\n")
    with tools_for(log_dir, store, tmp_path / "state") as context:
        report = archive(context, log_dir)
    assert [type(error) for error in report.errors] == [LineageUnknown]
    assert "no batch is known to begin there" in str(report.errors[0])
    assert "Make the broker the leader" in str(report.errors[0])


def test_a_log_that_was_truncated_below_the_archive_is_named_as_such_where_no_batch_begins_at_the_archive_end(
    tmp_path: Path,
) -> None:
    """Its active segment already reaches beyond the archive's end. The leader epochs show it before it rolls, and afterwards."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    directory = log_dir / "orders-0"
    with tools_for(log_dir, store, tmp_path / "state", max_queue=2) as context:
        archive(context, log_dir)
    (first, second, third, fourth) = (span[0] for span in rolled_ranges(log_dir, "orders-0")[:4])
    next_log = (directory / f"{fourth:020d}.log").read_bytes()
    join_segments(directory, second, third)
    remove_offsets(directory, lambda offset: offset <= second)
    tear_batch(directory / f"{second:020d}.log", third)
    (directory / "leader-epoch-checkpoint").write_text(f"0\n2\n0 {first}\n9 {second}\n")
    with tools_for(log_dir, store, tmp_path / "state") as context, rounds_over(context, log_dir) as rounds:
        errors = rounds.cycle().errors
        (directory / f"{fourth:020d}.log").write_bytes(next_log)
        errors += rounds.cycle().errors
    assert len(errors) == 2
    for error in errors:
        assert f"but differ: offset {third - 1} has leader epoch 9 in the local log and 0 in the archive" in str(error)
        assert "Make the broker the leader" not in str(error)


def cut_short(log: Path, size_bytes: int) -> None:
    os.truncate(log, size_bytes)


def replace_by_a_shorter_one(log: Path, size_bytes: int) -> None:
    """Another file, with as many bytes: it was allocated in advance."""
    other, content = log.with_suffix(".other"), log.read_bytes()
    other.write_bytes(content[:size_bytes] + bytes(len(content) - size_bytes))
    other.replace(log)


@pytest.mark.parametrize("change", [cut_short, replace_by_a_shorter_one])
def test_a_log_that_is_truncated_below_the_archive_between_two_checks_is_found_before_it_rolls(
    change: Callable[[Path, int], None], tmp_path: Path
) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    directory = log_dir / "orders-0"
    with tools_for(log_dir, store, tmp_path / "state", max_queue=2) as context:
        archive(context, log_dir)
    (second, third) = (span[0] for span in rolled_ranges(log_dir, "orders-0")[1:3])
    active = directory / f"{second:020d}.log"
    first_bytes = active.stat().st_size
    join_segments(directory, second, third)
    remove_offsets(directory, lambda offset: offset <= second)
    with tools_for(log_dir, store, tmp_path / "state") as context, rounds_over(context, log_dir) as rounds:
        for _ in range(2):
            assert rounds.cycle().errors == []
        change(active, first_bytes // 2)
        (error,) = rounds.cycle().errors
    assert isinstance(error, LineageUnknown)
    assert f"below the archive's end {third}" in str(error)


def tear_batch(log: Path, offset: int) -> None:
    """As in a compacted log: the batch before this offset reaches beyond it."""
    content, at = bytearray(log.read_bytes()), 0
    while struct.unpack_from(">q", content, at)[0] < offset:
        before, at = at, at + struct.unpack_from(">i", content, at + 8)[0] + 12
    struct.pack_into(">i", content, before + 23, 2**15)
    log.write_bytes(content)


@pytest.mark.parametrize("is_torn", [False, True], ids=["a batch begins at the archive's end", "none begins there"])
def test_what_is_only_pinned_continues_an_archive_that_ends_inside_of_it(is_torn: bool, tmp_path: Path) -> None:
    """Another broker led, then this one, and the store was away until retention had taken the segment from here."""
    log_dir, outage = copy_partitions(tmp_path, "orders-0"), Outage()
    directory, spans = log_dir / "orders-0", rolled_ranges(log_dir, "orders-0")
    second, third = spans[1][0], spans[2][0]
    outage.left = None
    with tools_for(log_dir, outage.store, tmp_path / "state", max_queue=2) as context:
        archive(context, log_dir)
    join_segments(directory, second, third)
    if is_torn:
        tear_batch(directory / f"{second:020d}.log", third)
    with tools_for(log_dir, outage.store, tmp_path / "state of the new leader", record_lost=True) as context:
        outage.store.before = outage.is_away
        with rounds_over(context, log_dir) as rounds, capture_logs() as logs:
            rounds.cycle()
            remove_offsets(directory, lambda offset: offset >= spans[2][1])
            rounds.cycle()
            outage.store.before = lambda _operation, _key: None
            for _ in range(3):
                rounds.cycle()
                rounds.finish()
    (state,) = archived_states(outage.store).values()
    assert ranges(state) == [span for span in spans if not (is_torn and span[0] == third)]
    assert [(hole.base_offset, hole.end_offset) for hole in state.holes] == ([spans[2]] if is_torn else [])
    released = [line["reason"] for line in logs if line["event"] == "pinned_segment_released"]
    assert len(released) == is_torn
    assert all("no batch is known to begin there" in reason for reason in released)


def a_cut(segment: SegmentFiles, base_offset: int) -> SegmentFiles | None:
    with opened(segment.log) as descriptor:
        return LocalDisk().cut(segment, base_offset, descriptor)


def the_files(log_dir: Path) -> PartitionFiles:
    return read_partition_directory(TopicPartition("orders", 0), log_dir, log_dir / "orders-0")


def a_segment(log_dir: Path) -> SegmentFiles:
    return the_files(log_dir).segments[0]


def test_an_index_that_points_nowhere_does_not_mislead_the_search(tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    index = log_dir / "orders-0" / f"{0:020d}.index"
    with_index = [LocalDisk().batch_in(a_segment(log_dir), 0, end, last=True) for end in range(1, 141)]
    index.unlink()
    right = [LocalDisk().batch_in(a_segment(log_dir), 0, end, last=True) for end in range(1, 141)]
    assert with_index == right
    assert len(set(right)) > 10
    # Entries that say: offset 1 stands in the middle of a batch; offset 3 stands where offset 100 and up stand.
    (start,) = (found for found in [a_cut(a_segment(log_dir), 140)] if found)
    assert start.start_position == start.log.size_bytes
    assert start.size_bytes == 0
    late = next(cut for end in range(100, 140) if (cut := a_cut(a_segment(log_dir), end)))
    for position in (17, late.start_position):
        index.write_bytes(struct.pack(">ii", 1, position))
        assert [LocalDisk().batch_in(a_segment(log_dir), 0, end, last=True) for end in range(1, 141)] == right
    index.write_bytes(b"\x00" * 7)
    assert LocalDisk().batch_in(a_segment(log_dir), 0, 140, last=True) == right[-1]


def test_an_upload_of_a_part_is_gone_on_with_only_for_that_part(tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    segment = a_segment(log_dir)
    part = next(cut for offset in range(1, 140) if (cut := a_cut(segment, offset)))
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        position = LogPosition(KnownState(ProducerTable.blank(part.base_offset), part.base_offset, exact=True), -1)
        archived = empty_state(Lineage("cluster", part.topic_partition, NO_TOPIC_ID))
        prepared, _ = prepare_segment(context, the_files(log_dir), archived, part, position, None, 0, None)
        prepared.close()
    assert prepared.attempt.is_of(part)
    assert not prepared.attempt.is_of(segment)
