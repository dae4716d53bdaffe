from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import CorruptFile
from sidecar.logformat.indexes.time_index import TimeIndexCheck, check_as_broker, read_time_index
from sidecar.logformat.indexes.verdict import IndexState, IndexVerdict
from tests.logformat.placed_batches import SIX, Placed, build, judged


def entries(*pairs: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *pair) for pair in pairs)


def verdict_of(
    data: bytes | None, batches: Sequence[Placed] = SIX, *, rows: int = 2, base_offset: int = 0
) -> IndexVerdict:
    rebuilt = build(batches, rows=rows, base_offset=base_offset).time_index
    return judged(TimeIndexCheck(data, base_offset), batches, rows, rebuilt)


def test_an_index_is_read_and_written() -> None:
    data = entries(*((10 * k, 10 * k) for k in range(1, 6)))
    index = read_time_index(data, 45)
    assert index.timestamp_ms.tolist() == [10, 20, 30, 40, 50]
    assert index.offset.tolist() == [55, 65, 75, 85, 95]
    assert index.to_bytes() == data


@pytest.mark.parametrize("data", [b"\0" * 13, entries((5, 1), (4, 2)), entries((5, -1))])
def test_a_broker_refuses_a_cut_a_descending_and_a_misplaced_index(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        check_as_broker(data, 0)


def test_a_broker_accepts_an_empty_index() -> None:
    check_as_broker(b"", 0)


@given(st.binary(max_size=300), st.integers(0, 2**63 - 1))
def test_any_bytes_are_an_index_or_corrupt(data: bytes, base_offset: int) -> None:
    with suppress(CorruptFile):
        assert len(read_time_index(data, base_offset)) == len(data) // 12
    verdict = verdict_of(data, [Placed(base_offset, max_timestamp_ms=7)], base_offset=base_offset)
    assert verdict.state in IndexState


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
@pytest.mark.parametrize("data", [entries((50, 1), (60, 4)), entries((60, 4)), entries((10, 0), (50, 1), (60, 4))])
def test_a_right_index_is_fine_however_it_was_written(data: bytes, rows: int) -> None:
    assert verdict_of(data, rows=rows).state is IndexState.FINE


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([(51, 1), (60, 4)], "the largest timestamp up to there is 50"),
        ([(49, 1), (60, 4)], "the largest timestamp up to there is 50"),
        ([(50, 1), (61, 4)], "the largest timestamp up to there is 60"),
        ([(50, 1), (60, 6)], "beyond the last batch"),
        ([(50, 1), (50, 4)], "is not above"),
        ([(50, 4), (60, 3)], "is not above"),
        ([(-1, 0), (60, 4)], "is not above"),
        ([(10, -1), (60, 4)], "below the segment's base"),
    ],
)
def test_an_index_that_contradicts_its_log_disagrees(pairs: list[tuple[int, int]], reason: str, rows: int) -> None:
    verdict = verdict_of(entries(*pairs), rows=rows)
    assert verdict.state is IndexState.DISAGREES
    assert reason in verdict.reason


def test_an_offset_in_a_gap_disagrees() -> None:
    batches = [Placed(0, last_offset=4, max_timestamp_ms=5), Placed(9, last_offset=12, max_timestamp_ms=6)]
    assert "is in no batch" in verdict_of(entries((6, 7)), batches).reason


def test_the_exact_offset_of_a_record_is_fine() -> None:
    """Leaders before 3.8 wrote it instead of the batch's last offset."""
    batches = [Placed(0, last_offset=4, max_timestamp_ms=5), Placed(5, last_offset=12, max_timestamp_ms=6)]
    assert verdict_of(entries((5, 2), (6, 7)), batches).state is IndexState.FINE


def test_an_offset_inside_a_legacy_wrapper_is_fine() -> None:
    batches = [Placed(4, max_timestamp_ms=5, magic=1), Placed(12, max_timestamp_ms=6, magic=1)]
    assert verdict_of(entries((5, 2), (6, 7)), batches).state is IndexState.FINE


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(None, id="absent"),
        pytest.param(b"", id="created at load"),
        pytest.param(entries((50, 1)), id="lacks the last entry"),
        pytest.param(entries((50, 1), (60, 4)) + b"\0" * 24, id="untrimmed"),
        pytest.param(entries((40, 2), (60, 4)), id="forgot a maximum at a truncation"),
    ],
)
def test_a_poorer_index_is_rebuilt(data: bytes | None) -> None:
    assert verdict_of(data).state is IndexState.REBUILD


def test_no_timestamps_mean_an_empty_index() -> None:
    batches = [Placed(0, magic=0, leader_epoch=-1), Placed(1, magic=0, leader_epoch=-1)]
    assert verdict_of(b"", batches).state is IndexState.FINE
    assert verdict_of(entries((7, 0)), batches).state is IndexState.DISAGREES


def test_timestamp_zero_on_the_base_offset_is_an_entry_of_zeros() -> None:
    assert verdict_of(entries((0, 0)), [Placed(0, max_timestamp_ms=0)]).state is IndexState.FINE


@given(st.lists(st.integers(-1, 50), min_size=1, max_size=60), st.integers(1, 20))
def test_a_rebuilt_index_is_accepted(timestamps: list[int], rows: int) -> None:
    batches = [Placed(3 * number, 2500, 3 * number + 2, ts) for number, ts in enumerate(timestamps)]
    data = build(batches, rows=rows).time_index
    # A different rebuilt index keeps the check from taking the short way.
    expected = IndexState.REBUILD if data == entries((0, 0)) else IndexState.FINE
    assert judged(TimeIndexCheck(data, 0), batches, rows, b"other").state is expected
