"""Copies of `before_upload` know only their own group: what deletes something below it must outlive them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from sidecar.compaction.rules import CompactionRules
from sidecar.logformat.bodies.building import build_batch, build_marker
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.indexes.transaction_index import read_transaction_index
from sidecar.model import PartName
from sidecar.verify.verify import verify_archive
from tests.compaction.reference.batches import DecodedBatch, decode_segment
from tests.compactor.before_upload_rig import DELAY_MS, NOW_MS, Rig, rig
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import compact_one, log_of, only_state, parts_of, records_of, reference_logs, use
from tests.runner.rig import archive, tools_for
from tests.segment.made_logs import roll

PRODUCER: Final = 7
ABORT_MARKER_KEY: Final = bytes(4)
ABORT_MARKER_VALUE: Final = bytes(6)
"""Version 0, type 0 (abort); version 0, coordinator epoch 0."""
LATER_MS: Final = NOW_MS + 30 * 86_400_000


def batch(offset: int, key: bytes, value: bytes | None, *, horizon_ms: int | None = None) -> bytes:
    return build_batch([record(offset, key, value)], leader_epoch=4, delete_horizon_ms=horizon_ms)


def record(offset: int, key: bytes, value: bytes | None) -> Record:
    return Record(offset, NOW_MS - 5_000_000, key, value, ())


def written(offset: int, key: bytes, value: bytes, *, epoch: int = 0) -> bytes:
    """A batch within a transaction."""
    return build_batch(
        [record(offset, key, value)],
        leader_epoch=4,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )


def commit(offset: int) -> bytes:
    return build_marker(
        offset,
        commit=True,
        producer_id=PRODUCER,
        producer_epoch=1,
        coordinator_epoch=0,
        timestamp_ms=NOW_MS - 4_000_000,
        leader_epoch=4,
    )


def abort(offset: int, *, horizon_ms: int | None = None) -> bytes:
    if horizon_ms is None:
        return build_marker(
            offset,
            commit=False,
            producer_id=PRODUCER,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=NOW_MS - 4_000_000,
            leader_epoch=4,
        )
    return build_batch(
        [Record(offset, NOW_MS - 4_000_000, ABORT_MARKER_KEY, ABORT_MARKER_VALUE)],
        leader_epoch=4,
        producer_id=PRODUCER,
        producer_epoch=0,
        transactional=True,
        control=True,
        delete_horizon_ms=horizon_ms,
    )


BELOW: Final = (written(0, b"k", b"aborted"), batch(1, b"k", b"old"))
"""What is archived as it is: offsets 0 and 1."""
PASSED_MS: Final = NOW_MS - 1000
GROUPS: Final = {
    "a tombstone of its own": ((batch(2, b"y", b"1"), abort(3), batch(4, b"k", None), batch(5, b"y", b"2")),) * 2,
    "a tombstone whose time has passed": (
        (batch(2, b"y", b"1"), abort(3), batch(4, b"k", None), batch(5, b"y", b"2")),
        (batch(2, b"y", b"1"), abort(3), batch(4, b"k", None, horizon_ms=PASSED_MS), batch(5, b"y", b"2")),
    ),
    "a marker whose time has passed": (
        (batch(2, b"y", b"1"), abort(3), batch(4, b"z", b"1"), batch(5, b"y", b"2")),
        (batch(2, b"y", b"1"), abort(3, horizon_ms=PASSED_MS), batch(4, b"z", b"1"), batch(5, b"y", b"2")),
    ),
    "a transaction that goes on": (
        (written(2, b"y", b"1"), abort(3), batch(4, b"z", b"1"), batch(5, b"y", b"2")),
    ) * 2,
}  # fmt: skip
"""By what is in it: the segment at offset 2 when BELOW is archived, and as the broker has it when its turn comes."""


@pytest.fixture(params=list(GROUPS))
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """BELOW is archived raw, the segment behind it as a copy."""
    then, now = GROUPS[request.param]
    with rig(tmp_path, "orders-0") as found:
        roll(found.log_dir, {0: BELOW, 2: then}, 6)
        found.round()
        clock = found.context.clock
        assert isinstance(clock, ManualClock)
        clock.advance_ms(DELAY_MS)
        assert found.round().errors == []
        # Its producer goes on behind, so that the marker is not kept for being its last batch.
        roll(found.log_dir, {0: BELOW, 2: now, 6: (written(6, b"w", b"1", epoch=1), commit(7)), 8: ()}, 8)
        found.round()
        assert found.compactor.cycle()
        assert found.round().errors == []
        assert found.generations("orders-0")[:2] == [0, 1]
        yield found


def copied(site: Rig) -> tuple[DecodedBatch, ...]:
    return tuple(decode_segment(site.stored_logs("orders-0")[2]))


def test_tombstones_and_markers_stay_in_copies_as_they_are(site: Rig) -> None:
    raw = (site.log_dir / "orders-0" / f"{2:020d}.log").read_bytes()
    before = {found.base_offset: found for found in decode_segment(raw)}
    after = {found.base_offset: found for found in copied(site)}
    assert 2 not in after
    assert {offset: found.data for offset, found in after.items()} == {
        offset: found.data for offset, found in before.items() if offset > 2
    }


def test_readers_of_committed_records_learn_of_transactions_that_began_below(site: Rig) -> None:
    state = only_state(site.store)
    index = read_transaction_index(parts_of(site.store, state, state.segments[1])[PartName.TRANSACTION_INDEX])
    assert (index.producer_id.tolist(), index.first_offset.tolist(), index.last_offset.tolist()) == ([7], [0], [3])
    assert [found.problems for found in verify_archive(site.store, site.context.clock, deep=True)] == [()]


def test_a_later_compaction_of_the_archive_leaves_what_it_would_of_the_raw_log(
    site: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw_store = MemoryStore()
    with tools_for(site.log_dir, raw_store, tmp_path / "raw", producer_id_expiration_ms=None) as context:
        assert archive(context, site.log_dir).errors == []
    use(monkeypatch, site.store)
    rules = CompactionRules(LATER_MS)
    result = compact_one(site.store, only_state(site.store), rules)
    assert result.error is None
    groups = [len(output.sources) for output in result.outputs]
    after = only_state(site.store)
    assert [log_of(site.store, after, segment) for segment in after.segments] == reference_logs(
        raw_store, only_state(raw_store), rules, groups
    )
    values = [(found.key, found.value) for found in records_of(site.store, after) if isinstance(found, Record)]
    assert (b"k", b"aborted") not in values
