from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_state.replay import CompletedTransaction
from sidecar.errors import CorruptFile
from sidecar.logformat.indexes.rebuild import IndexBuilder
from sidecar.model import LeaderEpoch
from tests.logformat.placed_batches import SIX, Placed, build, columns_of, last_offset_of


def recover(
    batches: Sequence[Placed], base_offset: int, interval_bytes: int
) -> tuple[bytes, bytes, list[tuple[int, int]]]:
    """LogSegment.recover, one batch after the other."""
    offset_index, time_index, epochs = bytearray(), bytearray(), list[tuple[int, int]]()
    position = last_indexed = 0
    largest, last_entry_ms = (-1, base_offset), -1

    def maybe_append() -> None:
        nonlocal last_entry_ms
        if largest[0] > last_entry_ms:
            time_index.extend(largest[0].to_bytes(8, "big") + (largest[1] - base_offset).to_bytes(4, "big"))
            last_entry_ms = largest[0]

    for batch in batches:
        if batch.max_timestamp_ms > largest[0]:
            largest = (batch.max_timestamp_ms, last_offset_of(batch))
        if position - last_indexed > interval_bytes:
            offset_index += (last_offset_of(batch) - base_offset).to_bytes(4, "big") + position.to_bytes(4, "big")
            maybe_append()
            last_indexed = position
        if batch.magic == 2 and batch.leader_epoch >= 0 and (not epochs or batch.leader_epoch > epochs[-1][0]):
            epochs.append((batch.leader_epoch, batch.base_offset))
        position += batch.size_bytes
    maybe_append()
    return bytes(offset_index), bytes(time_index), epochs


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 6])
def test_the_worked_example(rows: int) -> None:
    built = build(SIX, rows=rows)
    assert built.offset_index.hex() == "000000020000177000000004" + "00002ee0"
    assert built.time_index.hex() == "0000000000000032" + "00000001" + "000000000000003c" + "00000004"
    assert built.transaction_index == b""
    assert built.max_timestamp_ms == 60
    assert (built.last_offset, built.batch_count, built.size_bytes) == (5, 6, 18000)


def test_a_segment_without_batches() -> None:
    built = build([], base_offset=700)
    assert (built.offset_index, built.time_index, built.transaction_index) == (b"", b"", b"")
    assert (built.max_timestamp_ms, built.last_offset, built.batch_count, built.size_bytes) == (-1, None, 0, 0)
    assert (built.first_batch_crc, built.last_batch_crc) == (None, None)
    assert not built.leader_epochs.entries


def test_timestamps_of_int64_range_do_not_overflow() -> None:
    built = build([Placed(0, max_timestamp_ms=-(2**63)), Placed(1, max_timestamp_ms=2**63 - 1)])
    assert built.time_index.hex() == "7fffffffffffffff" + "00000001"


batches_strategy = st.lists(
    st.builds(
        lambda gap, span, size, ts, epoch, magic: (
            gap,
            span,
            Placed(0, size, None, ts, epoch if magic == 2 else -1, magic=magic),
        ),
        st.integers(0, 3),
        st.integers(0, 5),
        st.integers(26, 5000),
        st.integers(-1, 30),
        st.integers(-1, 6),
        st.sampled_from([0, 1, 2, 2, 2]),
    ),
    max_size=80,
)


@given(batches_strategy, st.integers(1, 30), st.sampled_from([0, 1, 100, 4096]), st.integers(0, 1000))
def test_it_builds_what_recovery_builds(
    drawn: list[tuple[int, int, Placed]], rows: int, interval_bytes: int, base_offset: int
) -> None:
    batches, next_offset = [], base_offset
    for gap, span, shape in drawn:
        first, last = next_offset + gap, next_offset + gap + span
        fields = (shape.size_bytes, last, shape.max_timestamp_ms, shape.leader_epoch)
        batches.append(Placed(first, *fields, magic=shape.magic))
        next_offset = last + 1
    built = build(batches, rows=rows, base_offset=base_offset, interval_bytes=interval_bytes)
    offset_index, time_index, epochs = recover(batches, base_offset, interval_bytes)
    assert built.offset_index == offset_index
    assert built.time_index == time_index
    assert [(entry.epoch, entry.start_offset) for entry in built.leader_epochs.entries] == epochs


def test_epochs_as_recovery_finds_them() -> None:
    batches = [Placed(offset, leader_epoch=epoch) for offset, epoch in ((104, 0), (106, 1), (108, 1), (110, 2))]
    built = build(batches, base_offset=100)
    assert built.leader_epochs.entries == (LeaderEpoch(0, 104), LeaderEpoch(1, 106), LeaderEpoch(2, 110))


def test_a_segment_that_begins_with_legacy_messages_does_not_show_the_epoch_at_its_base() -> None:
    legacy = Placed(0, leader_epoch=-1, magic=1)
    assert build([legacy, Placed(1, leader_epoch=4)]).epochs_from_base.entries == ()
    assert build([Placed(1, leader_epoch=4), Placed(2, leader_epoch=5)]).epochs_from_base.entries == (
        LeaderEpoch(4, 1),
        LeaderEpoch(5, 2),
    )
    assert build([]).epochs_from_base.entries == ()


def test_a_lower_epoch_changes_nothing() -> None:
    built = build([Placed(0, leader_epoch=3), Placed(1, leader_epoch=1), Placed(2, leader_epoch=3)], rows=1)
    assert built.leader_epochs.entries == (LeaderEpoch(3, 0),)


@pytest.mark.parametrize("first_offset", [102, 75])
def test_aborted_transactions_of_the_segment_are_indexed(first_offset: int) -> None:
    builder = IndexBuilder(100)
    builder.add(
        columns_of([Placed(100), Placed(106, producer_id=10, marker_type=0), Placed(107, producer_id=5, marker_type=1)])
    )
    built = builder.finish(
        [
            CompletedTransaction(10, first_offset, 106, 100, aborted=True),
            CompletedTransaction(5, 100, 107, 108, aborted=False),
        ]
    )
    expected = (0, 2), (10, 8), (first_offset, 8), (106, 8), (100, 8)
    assert built.transaction_index == b"".join(value.to_bytes(width, "big") for value, width in expected)


def test_the_checksums_of_the_first_and_last_batch_are_kept() -> None:
    built = build([Placed(0, crc=11), Placed(1, crc=12), Placed(2, crc=2**32 - 1)], rows=1)
    assert (built.first_batch_crc, built.last_batch_crc) == (11, 2**32 - 1)


def test_an_offset_too_far_above_the_base_is_refused_with_its_place() -> None:
    builder = IndexBuilder(0)
    with pytest.raises(CorruptFile, match="above the segment's base") as caught:
        builder.add(columns_of([Placed(0, 70), Placed(2**31)]))
    assert (caught.value.position, caught.value.offset) == (70, 2**31)


@pytest.mark.parametrize("end_position", [2**31 - 1, 2**31, 2**31 + 100, 2**40])
def test_a_position_that_is_no_int32_is_refused(end_position: int) -> None:
    columns = columns_of([Placed(0, 70), Placed(1, 70)])
    columns.position[1] = end_position - 70
    builder = IndexBuilder(0)
    if end_position < 2**31:
        builder.add(columns)
        builder.finish()
        return
    with pytest.raises(CorruptFile, match="holds at most 2147483647 bytes") as caught:
        builder.add(columns)
    assert (caught.value.position, caught.value.offset) == (end_position - 70, 1)


def test_columns_are_not_kept() -> None:
    """The scanner may reuse nothing, but a chunk kept alive would cost memory in proportion to the segment."""
    builder = IndexBuilder(0)
    columns = columns_of(SIX)
    builder.add(columns)
    for column in (columns.last_offset, columns.position, columns.max_timestamp_ms):
        column[:] = np.int64(-5)
    assert builder.finish() == build(SIX)
