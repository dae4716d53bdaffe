"""A clock that is ahead for a while, and a record from the future: no producer is forgotten that its broker still knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer_state.table import ProducerTable
from sidecar.archive.bundle import cut_parts
from sidecar.archive.keys import below
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.model import PartName
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import archive, archived_states, copy_partitions, tools_for
from tests.segment.made_logs import LEADER_EPOCH, NOW_MS, roll

DAY_MS = 86_400_000


def batch(offset: int, timestamp_ms: int, producer_id: int) -> bytes:
    record = Record(offset, timestamp_ms, b"k", b"v", ())
    return build_batch([record], leader_epoch=LEADER_EPOCH, producer_id=producer_id, producer_epoch=0, base_sequence=0)


def archived_producers(store: MemoryStore) -> list[int]:
    """Of the newest snapshot."""
    state = archived_states(store)["orders-0"]
    segment = state.segments[-1]
    key = below(state.lineage.root, segment.indexes_key)
    snapshot = cut_parts(store.objects[key], segment, key)[PartName.PRODUCER_SNAPSHOT]
    return [int(found) for found in ProducerTable.from_snapshot(segment.end_offset, snapshot).rows["producer_id"]]


@pytest.mark.parametrize("is_archived", [False, True], ids=["the record is new", "the record was archived before"])
def test_a_record_from_the_future_and_a_clock_ahead_forget_no_producer(is_archived: bool, tmp_path: Path) -> None:
    """The broker, whose clock was never ahead, knows all. It has left no snapshot."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    segments = {0: [batch(0, NOW_MS, 1)], 1: [batch(1, NOW_MS + 20 * DAY_MS, 2)], 2: [batch(2, NOW_MS, 3)], 3: []}
    if is_archived:
        roll(log_dir, {**segments, 2: []}, 2)
        with tools_for(log_dir, store, tmp_path / "state") as context:
            assert archive(context, log_dir).errors == []
        assert archived_producers(store) == [1, 2]
    roll(log_dir, segments, 3)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert isinstance(context.clock, ManualClock)
        context.clock.advance_ms(30 * DAY_MS)
        assert archive(context, log_dir).errors == []
    assert archived_producers(store) == [1, 2, 3]
