"""Archives in memory for tests of compaction: golden partitions, archived by the pipeline, and what must be left of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from producer_state.table import ProducerTable
from sidecar.archive.bundle import cut_parts
from sidecar.archive.commit import Writer
from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rules import CompactionRules
from sidecar.compactor.archive.compactor import ArchiveCompactor
from sidecar.compactor.archive.plan import CompactionRequest, PartitionCompaction
from sidecar.host import process_store
from sidecar.model import ArchivedSegment, ObjectKey, PartName
from sidecar.ports import ObjectStore
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.store_settings import StoreSettings
from tests.compaction.partitions import partition_of
from tests.compaction.reference.batches import decode_segment
from tests.compaction.reference.cleaning import clean
from tests.compaction.reference.values import ReferenceSegment
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.golden import wall_clock_ms
from tests.runner.rig import archive, archived_states, copy_partitions, tools_for
from tests.verifying import verify_partition

SETTINGS = StoreSettings(url="/nowhere")
NOW_MS = wall_clock_ms("4.3.0") + 10 * 86_400_000
WRITER = Writer(1, 2**31 - 1, "compacting")


def archived(tmp_path: Path, partition: str) -> MemoryStore:
    """A partition of the golden broker, all that is rolled."""
    store = MemoryStore(ManualClock(NOW_MS))
    topic = partition.rpartition("-")[0]
    log_dir = copy_partitions(tmp_path, partition)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir, topic).errors == []
    return store


def use(monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    """Tasks open this store."""
    monkeypatch.setattr(process_store, "store_of", lambda _settings: store)


def compactor(store: MemoryStore, staging: Path | None = None) -> ArchiveCompactor:
    """Small splits, so that there are several."""
    return ArchiveCompactor(SETTINGS, LocalEngine(), store.clock, staging, split_bytes=4096)


def compact_one(
    store: MemoryStore, state: PartitionState, rules: CompactionRules, staging: Path | None = None
) -> PartitionCompaction:
    """Compact one partition."""
    (result,) = compactor(store, staging).compact([CompactionRequest(state.lineage.root, rules, WRITER)])
    return result


def only_state(store: MemoryStore) -> PartitionState:
    """Of the one partition there is."""
    (state,) = archived_states(store).values()
    return state


def log_of(store: MemoryStore, state: PartitionState, segment: ArchivedSegment) -> bytes:
    """The bytes of its `.log` object."""
    return store.objects[below(state.lineage.root, segment.log_key)]


def parts_of(store: MemoryStore, state: PartitionState, segment: ArchivedSegment) -> dict[PartName, bytes]:
    """What lies in its `.indexes` object."""
    return dict(cut_parts(store.objects[below(state.lineage.root, segment.indexes_key)], segment))


def records_of(store: MemoryStore, state: PartitionState) -> list[object]:
    """All records of the live segments."""
    return [
        record
        for segment in state.segments
        for batch in decode_segment(log_of(store, state, segment))
        for record in batch.records
    ]


def reference_logs(
    store: MemoryStore, state: PartitionState, rules: CompactionRules, groups: Sequence[int]
) -> list[bytes]:
    """See `reference_logs_of`."""
    return reference_logs_of(store, state, rules, groups)


def reference_logs_of(
    store: ObjectStore, state: PartitionState, rules: CompactionRules, groups: Sequence[int]
) -> list[bytes]:
    """What the plain reference leaves of the archive, in so many segments each."""
    root = state.lineage.root
    logs = [(segment, store.read(below(root, segment.log_key))) for segment in state.segments]
    reported = partition_of([(segment.base_offset, log, 0) for segment, log in logs])
    count = sum(groups)
    last = state.segments[count - 1]
    indexes = store.read(below(root, last.indexes_key))
    table = ProducerTable.from_snapshot(last.end_offset, cut_parts(indexes, last)[PartName.PRODUCER_SNAPSHOT])
    cleaned = clean(
        [ReferenceSegment(segment.base_offset, segment.end_offset, log, 1) for segment, log in logs][:count],
        rules,
        groups=list(groups),
        last_batches=LastBatches.of(table),
        aborted=reported.aborted,
        log_start_offset=state.deleted_before_offset,
    )
    return [group.log for group in cleaned.groups]


def sound(store: MemoryStore) -> None:
    """Require that every byte of the only partition is there, and nothing else."""
    state = only_state(store)
    found = verify_partition(store, ObjectKey(state.lineage.root), ManualClock(NOW_MS), deep=True)
    assert found.problems == ()
    assert found.orphans == ()
