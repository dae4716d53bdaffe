"""A look at an archived partition: its commits, and of dirty segments the first batch, once, where that matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.archive.actions import Clean
from sidecar.archive.commit import Writer
from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.commits.commit_log import CommitLog
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.candidate_queue import CandidateAssessor, LedPartition
from sidecar.compactor.policy import Assessment, Trigger
from sidecar.config import CompactionPolicy
from sidecar.errors import CorruptFile
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.legacy import build_legacy_message
from sidecar.logformat.headers import BATCH_HEADER
from sidecar.model import ObjectKey
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import archive, archived_states, copy_partitions, tools_for

PARTITION = "compacted-0"
SNAPSHOT = 1
"""The last segment's is read each time: it says which transactions are open."""


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """An archive of five segments."""
    log_dir, found = copy_partitions(tmp_path, PARTITION), MemoryStore()
    with tools_for(log_dir, found, tmp_path / "state") as context:
        archive(context, log_dir)
    return found


def led(store: MemoryStore) -> tuple[LedPartition, PartitionState]:
    state = archived_states(store)[PARTITION]
    assert state.end_offset is not None
    return LedPartition(state.lineage.topic_partition, state.lineage.root, 0, state.end_offset), state


def first_batch_ms(store: MemoryStore, state: PartitionState, number: int) -> int:
    found = state.segments[number]
    body = store.objects[below(state.lineage.root, found.log_key)]
    return int(next(iter(scan_bytes(body, base_offset=found.base_offset))).max_timestamp_ms[0])


def mark_clean(store: MemoryStore, state: PartitionState, end_offset: int) -> None:
    log = CommitLog(store, state.lineage.root, ManualClock(0))
    log.append([Clean(state.segments[0].base_offset, end_offset, "offset")], Writer(1, 99, "test"), state)


def test_without_a_max_lag_no_segment_is_read(store: MemoryStore) -> None:
    partition, state = led(store)
    reads = store.calls["read"]
    found = CandidateAssessor(store, ManualClock(0))(partition, CompactionPolicy())
    assert store.calls["read"] - reads == state.next_number + SNAPSHOT
    # The last one holds a transaction that ends behind it: the archive does not know how.
    *sizes, _ = [segment.parts[0].size_bytes for segment in state.segments]
    assert found == Assessment(0, state.segments[-1].base_offset, 0, sum(sizes), Trigger.DIRTY_RATIO, None)


def test_another_strategy_makes_nothing_dirty(store: MemoryStore) -> None:
    """KIP-280: what was compacted stays as it is, and waits until enough is dirty."""
    partition, state = led(store)
    mark_clean(store, state, state.segments[-1].end_offset)
    policy = CompactionPolicy(strategy=Strategy.HEADER, header="v", min_cleanable_dirty_ratio=0)
    found = CandidateAssessor(store, ManualClock(0))(partition, policy)
    assert (found.trigger, found.cleanable_bytes) == (None, 0)


def test_the_first_batch_of_each_dirty_segment_is_read_once(store: MemoryStore) -> None:
    partition, state = led(store)
    mark_clean(store, state, state.segments[2].end_offset)
    oldest_ms = min(first_batch_ms(store, state, number) for number in (3, 4))
    policy = CompactionPolicy(max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1)
    clock = ManualClock(oldest_ms + 1000)
    look = CandidateAssessor(store, clock)
    found = look(partition, policy)
    assert (found.trigger, found.recheck_at_ms) == (None, oldest_ms + 1001)
    assert found.first_dirty_offset == state.segments[2].end_offset
    clock.advance_ms(1)
    reads = store.calls["read"]
    assert look(partition, policy).trigger is Trigger.MAX_LAG
    assert store.calls["read"] - reads == state.next_number + 1 + SNAPSHOT


def one_segment(store: MemoryStore, body: bytes) -> tuple[LedPartition, ObjectKey]:
    """Another object in the place of the first segment's."""
    partition, state = led(store)
    key = below(state.lineage.root, state.segments[0].log_key)
    store.objects[key] = body
    return partition, key


@pytest.mark.parametrize(("magic", "expected_ms"), [(1, 77), (0, None)])
@pytest.mark.leaves_damage("size_mismatch")
def test_legacy_messages_have_timestamps_from_magic_1_on(
    store: MemoryStore, magic: int, expected_ms: int | None
) -> None:
    lag_ms = 2**62
    message = build_legacy_message(0, b"k", b"v", magic=magic, timestamp_ms=77)
    partition, state = led(store)
    for found in state.segments:
        store.objects[below(state.lineage.root, found.log_key)] = message.ljust(BATCH_HEADER.size_bytes, b"\0")
    policy = CompactionPolicy(max_compaction_lag_ms=lag_ms, min_cleanable_dirty_ratio=1)
    expected = None if expected_ms is None else expected_ms + lag_ms + 1
    assert CandidateAssessor(store, ManualClock(0))(partition, policy).recheck_at_ms == expected


@pytest.mark.parametrize(
    ("body", "problem"),
    [(b"short", "has 5 bytes in the store"), (bytes(16) + b"\x07" + bytes(60), "expected a batch")],
)
@pytest.mark.leaves_damage("size_mismatch")
def test_what_is_no_batch_is_reported_with_its_key(store: MemoryStore, body: bytes, problem: str) -> None:
    partition, key = one_segment(store, body)
    with pytest.raises(CorruptFile, match=problem) as refused:
        CandidateAssessor(store, ManualClock(0))(partition, CompactionPolicy(max_compaction_lag_ms=1))
    assert refused.value.file == key


@pytest.mark.leaves_damage("missing_object")
def test_a_missing_object_is_a_fault_of_its_partition(store: MemoryStore) -> None:
    partition, key = one_segment(store, b"")
    del store.objects[key]
    with pytest.raises(CorruptFile, match="committed, but not in the store") as refused:
        CandidateAssessor(store, ManualClock(0))(partition, CompactionPolicy(max_compaction_lag_ms=1))
    assert refused.value.file == key
