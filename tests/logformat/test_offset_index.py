from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import CorruptFile
from sidecar.logformat.indexes.offset_index import (
    OffsetIndex,
    OffsetIndexCheck,
    check_as_broker,
    read_offset_index,
    relative_offsets,
)
from sidecar.logformat.indexes.verdict import IndexState, IndexVerdict
from tests.logformat.placed_batches import SIX, Placed, build, judged

WORKED_EXAMPLE = bytes.fromhex("000000020000177000000004" + "00002ee0")


def index_of(*entries: tuple[int, int], base_offset: int = 0) -> OffsetIndex:
    columns = np.array(entries, dtype=np.int64).reshape(len(entries), 2)
    return OffsetIndex(base_offset, columns[:, 0], columns[:, 1])


def verdict_of(
    data: bytes | None, batches: Sequence[Placed] = SIX, *, rows: int = 2, base_offset: int = 0
) -> IndexVerdict:
    rebuilt = build(batches, rows=rows, base_offset=base_offset).offset_index
    return judged(OffsetIndexCheck(data, base_offset), batches, rows, rebuilt)


def test_the_worked_example_is_read() -> None:
    index = read_offset_index(WORKED_EXAMPLE, 1000)
    assert index.offset.tolist() == [1002, 1004]
    assert index.position.tolist() == [6000, 12000]
    assert index.to_bytes() == WORKED_EXAMPLE


def test_lookup_in_an_empty_index_answers_the_base() -> None:
    assert index_of(base_offset=45).lookup(100) == (45, 0)


def test_lookup_finds_the_greatest_entry_not_above_the_target() -> None:
    index = index_of((46, 100), (50, 300), base_offset=45)
    assert [index.lookup(target) for target in (45, 46, 49, 50, 99)] == [
        (45, 0),
        (46, 100),
        (46, 100),
        (50, 300),
        (50, 300),
    ]


@pytest.mark.parametrize(
    ("base_offset", "offset"),
    [(0, -(2**31)), (0, 2**31), (1, 0), (100, 10), (2**31, 0), (-(2**31), 0), (2**31, 2**32), (2**63 - 1, -(2**63))],
)
def test_offsets_that_are_no_int32_above_the_base_are_refused(base_offset: int, offset: int) -> None:
    with pytest.raises(CorruptFile, match="above the segment's base") as caught:
        relative_offsets(np.array([offset]), base_offset)
    assert caught.value.offset == offset


def test_the_largest_relative_offset_is_accepted() -> None:
    assert relative_offsets(np.array([5 + 2**31 - 1]), 5).tolist() == [2**31 - 1]


def test_a_last_offset_equal_to_the_base_is_sane() -> None:
    check_as_broker(struct.pack(">ii", 0, 0), 7)


@pytest.mark.parametrize("data", [b"\0" * 7, struct.pack(">ii", -1, 4)])
def test_a_broker_refuses_a_cut_index_and_one_below_its_base(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        check_as_broker(data, 7, "x.index")


@given(st.binary(max_size=200), st.integers(0, 2**63 - 1))
def test_any_bytes_are_an_index_or_corrupt(data: bytes, base_offset: int) -> None:
    with suppress(CorruptFile):
        assert len(read_offset_index(data, base_offset)) == len(data) // 8
    verdict = verdict_of(data, [Placed(base_offset)], base_offset=base_offset)
    assert verdict.state in IndexState


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(WORKED_EXAMPLE, id="entries per batch"),
        pytest.param(struct.pack(">ii", 5, 9000), id="a follower's chunk of three batches"),
        pytest.param(b"", id="one chunk that was the whole segment"),
    ],
)
def test_a_right_index_is_fine_however_it_was_written(data: bytes, rows: int) -> None:
    assert verdict_of(data, rows=rows).state is IndexState.FINE


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([(2, 6001)], "no batch begins at position 6001"),
        ([(1, 6000)], "a batch before it ends at offset 1"),
        ([(7, 6000)], "points beyond the log"),
        ([(2, 18000)], "points beyond the log"),
        ([(2, 6000), (2, 9000)], "is not above"),
        ([(2, 6000), (3, 6000)], "is not above"),
        ([(-1, 6000)], "below the segment's base"),
        ([(2, -3000)], "is not above"),
    ],
)
def test_an_index_that_contradicts_its_log_disagrees(entries: list[tuple[int, int]], reason: str, rows: int) -> None:
    verdict = verdict_of(b"".join(struct.pack(">ii", *entry) for entry in entries), rows=rows)
    assert verdict.state is IndexState.DISAGREES
    assert reason in verdict.reason
    assert verdict.position is not None


@pytest.mark.parametrize("rows", [1, 5])
def test_an_offset_in_no_batch_disagrees(rows: int) -> None:
    batches = [Placed(0, 3000, 9), Placed(10, 3000, 19), Placed(30, 3000, 39)]
    verdict = verdict_of(struct.pack(">ii", 25, 6000), batches, rows=rows)
    assert (verdict.state, "offset 25 is in no batch" in verdict.reason) == (IndexState.DISAGREES, True)


@pytest.mark.parametrize("rows", [1, 5])
def test_an_index_of_kafka_2_7_2_that_names_the_last_record_its_cleaner_kept_is_fine(rows: int) -> None:
    batches = [
        Placed(0, 4171, 9),
        Placed(10, 2533, 19),
        Placed(20, 4181, 29),
        Placed(30, 2533, 39),
        Placed(40, 4181, 49),
    ]
    data = bytes.fromhex("0000002300001a30000000310000346a")
    assert verdict_of(data, batches, rows=rows).state is IndexState.FINE


def test_a_cut_index_disagrees() -> None:
    verdict = verdict_of(WORKED_EXAMPLE[:-1])
    assert (verdict.state, verdict.position) == (IndexState.DISAGREES, 15)


@pytest.mark.parametrize(
    "data", [None, WORKED_EXAMPLE + b"\0" * 4096, b"\0" * 80, struct.pack(">ii", 900, 1) + b"\0" * 8]
)
def test_an_absent_or_untrimmed_index_is_rebuilt(data: bytes | None) -> None:
    assert verdict_of(data).state is IndexState.REBUILD


def test_an_empty_index_of_a_log_larger_than_any_chunk_is_rebuilt() -> None:
    batches = [Placed(offset, 600_000) for offset in range(3)]
    assert verdict_of(b"", batches).state is IndexState.REBUILD


@given(st.lists(st.integers(26, 9000), min_size=1, max_size=60), st.integers(1, 20))
def test_a_rebuilt_index_is_accepted(sizes: list[int], rows: int) -> None:
    batches = [Placed(3 * number, size, 3 * number + 2) for number, size in enumerate(sizes)]
    data = build(batches, rows=rows).offset_index
    # A different rebuilt index keeps the check from taking the short way.
    assert judged(OffsetIndexCheck(data, 0), batches, rows, b"other").state is IndexState.FINE


@pytest.mark.parametrize("position", [-1, 2**31, 2**32])
def test_positions_that_are_no_int32_are_refused(position: int) -> None:
    index = OffsetIndex(5, np.array([5, 6]), np.array([0, position]))
    with pytest.raises(CorruptFile, match=f"position {position} is not within"):
        index.to_bytes()
