from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_state.replay import CompletedTransaction
from sidecar.errors import CorruptFile
from sidecar.logformat.indexes.transaction_index import (
    TransactionIndexCheck,
    check_as_broker,
    from_completed,
    merged,
    read_transaction_index,
)
from sidecar.logformat.indexes.verdict import IndexState, IndexVerdict
from tests.logformat.placed_batches import ABORT, COMMIT, Placed, judged

LOG = [
    Placed(100, last_offset=101, producer_id=5),
    Placed(102, last_offset=103, producer_id=10),
    Placed(104, last_offset=105),
    Placed(106, producer_id=10, marker_type=ABORT),
    Placed(107, producer_id=5, marker_type=COMMIT),
    Placed(108, producer_id=11, marker_type=ABORT),
]
RIGHT = (10, 102, 106, 100)


def entries(*rows: tuple[int, int, int, int]) -> bytes:
    return b"".join(struct.pack(">hqqqq", 0, *row) for row in rows)


def verdict_of(data: bytes | None, rebuilt: bytes, *, rows: int = 2, batches: Sequence[Placed] = LOG) -> IndexVerdict:
    return judged(TransactionIndexCheck(data, 100), batches, rows, rebuilt)


def test_the_example_entry_is_read_and_written() -> None:
    data = bytes.fromhex("0000" + "0000000000001092" + "0000000000000064" + "0000000000000067" + "0000000000000068")
    index = read_transaction_index(data)
    assert index.producer_id.tolist() == [4242]
    assert index.first_offset.tolist() == [100]
    assert index.last_offset.tolist() == [103]
    assert index.last_stable_offset.tolist() == [104]
    assert index.to_bytes() == data


def test_markers_must_ascend() -> None:
    with pytest.raises(CorruptFile, match="abort marker at 15"):
        read_transaction_index(entries((0, 0, 15, 11), (1, 5, 15, 13))).to_bytes()


def test_the_index_of_a_segment_has_its_own_aborted_transactions_only() -> None:
    transactions = [
        CompletedTransaction(1, 0, 99, 100, aborted=True),
        CompletedTransaction(10, 75, 106, 100, aborted=True),
        CompletedTransaction(5, 100, 107, 108, aborted=False),
        CompletedTransaction(6, 100, 200, 201, aborted=True),
    ]
    assert from_completed(transactions, 100, 200).to_bytes() == entries((10, 75, 106, 100))
    assert from_completed([], 100, 200).to_bytes() == b""


def test_an_unknown_version_is_corrupt_and_a_fragment_is_left_out() -> None:
    with pytest.raises(CorruptFile, match="version 1") as caught:
        read_transaction_index(entries(RIGHT) + b"\0\1" + entries(RIGHT)[2:])
    assert caught.value.position == 34
    assert len(read_transaction_index(entries(RIGHT) + b"\0\1")) == 1


def test_a_broker_refuses_markers_below_the_base() -> None:
    check_as_broker(entries(RIGHT), 106)
    with pytest.raises(CorruptFile, match="below the segment's base"):
        check_as_broker(entries(RIGHT), 107)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_index_or_corrupt(data: bytes) -> None:
    with suppress(CorruptFile):
        assert len(read_transaction_index(data)) == len(data) // 34
    assert verdict_of(data, entries(RIGHT)).state in IndexState


@pytest.mark.parametrize("rows", [1, 2, 6])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(entries(RIGHT), id="as rebuilt"),
        pytest.param(entries(RIGHT, (11, 108, 108, 109)), id="an empty transaction, as up to 2.7"),
        pytest.param(entries((10, 75, 106, 90)), id="a transaction whose first data compaction removed"),
    ],
)
def test_a_right_index_is_fine(data: bytes, rows: int) -> None:
    assert verdict_of(data, entries(RIGHT), rows=rows).state is IndexState.FINE


@pytest.mark.parametrize("data", [None, b""])
def test_no_aborted_transactions_need_no_index(data: bytes | None) -> None:
    assert verdict_of(data, b"").state is IndexState.FINE


@pytest.mark.parametrize("data", [None, b"", b"\0" * 20, entries(RIGHT)[:-1], entries(RIGHT) + b"\0"])
def test_an_absent_or_cut_index_is_rebuilt(data: bytes | None) -> None:
    assert verdict_of(data, entries(RIGHT)).state is IndexState.REBUILD


@pytest.mark.parametrize("rows", [1, 2, 6])
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (entries((10, 102, 105, 100)), "no abort marker"),
        (entries((5, 100, 107, 108)), "no abort marker"),
        (entries((11, 102, 106, 100)), "no abort marker"),
        (entries((10, 102, 106, 100), (10, 120, 130, 131)), "beyond the last batch"),
        (entries((10, 107, 106, 100)), "impossible"),
        (entries((10, 10, 99, 100)), "impossible"),
        (b"\0\1" + entries(RIGHT)[2:], "version 1"),
    ],
)
def test_an_index_that_contradicts_its_log_disagrees(data: bytes, reason: str, rows: int) -> None:
    verdict = verdict_of(data, entries(RIGHT), rows=rows)
    assert verdict.state is IndexState.DISAGREES
    assert reason in verdict.reason


@pytest.mark.parametrize("rows", [1, 2, 6])
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (entries((11, 108, 108, 109)), "lacks entry 0 (producer 10"),
        (entries((10, 103, 106, 100)), "the log says"),
        (entries((10, 102, 106, 107)), "the log says"),
        # A follower's, to which the marker came in one fetch with another producer's transaction from 109 on.
        (entries((10, 102, 106, 109)), "the log says"),
    ],
)
def test_an_index_that_hides_aborted_records_is_rebuilt(data: bytes, reason: str, rows: int) -> None:
    verdict = verdict_of(data, entries(RIGHT), rows=rows)
    assert verdict.state is IndexState.REBUILD
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("broker", "rebuilt", "expected"),
    [
        ((), (), ()),
        ((), ((10, 102, 106, 100),), ((10, 102, 106, 100),)),
        (((10, 102, 106, 100),), (), ((10, 102, 106, 100),)),
        (((10, 103, 106, 107),), ((10, 102, 106, 107),), ((10, 102, 106, 107),)),
        (((10, 90, 106, 100),), ((10, 102, 106, 101),), ((10, 90, 106, 100),)),
        (((11, 108, 108, 109),), ((10, 102, 106, 100),), ((10, 102, 106, 100), (11, 108, 108, 109))),
    ],
)
def test_merged_indexes_hide_nothing_that_either_shows(
    broker: tuple[tuple[int, ...], ...], rebuilt: tuple[tuple[int, ...], ...], expected: tuple[tuple[int, ...], ...]
) -> None:
    assert merged(entries(*broker) + b"\0", entries(*rebuilt)) == entries(*expected)
