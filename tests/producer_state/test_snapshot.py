"""Bytes of `.snapshot` files: golden values, and every way in which they can be wrong."""

from __future__ import annotations

import json
from contextlib import suppress

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_state.snapshot import (
    ENTRY,
    HEADER,
    CorruptSnapshot,
    ProducerEntry,
    describe,
    read_snapshot,
)
from tests.snapshot_files import write_snapshot

GOLDEN = {
    "empty": ("000148674bc700000000", ()),
    "one": (
        "00014d88beb200000001000000000000109200030000000d0000000000000066000000020000018bcfe5680a00000009ffffffffffffffff",
        (ProducerEntry(4242, 3, 13, 102, 2, 1700000000010, 9),),
    ),
    "open transaction": (
        (
            "00014264736a0000000200000000000000010000000000050000000000000032000000000000018bcfe56800ffffffffffffffffffffffff"
            "000000000000109200030000000d0000000000000066000000020000018bcfe56805ffffffff0000000000000064"
        ),
        (
            ProducerEntry(1, 0, 5, 50, 0, 1700000000000),
            ProducerEntry(4242, 3, 13, 102, 2, 1700000000005, current_txn_first_offset=100),
        ),
    ),
    "row 79, testReadWriteSnapshot": (
        (
            "0001fedf4e50000000020000000000000001000200000001000000000000000200000003ffffffffffffffff000000030000000000000064"
            "000000000000000b000cffffffffffffffffffffffff00000000000000000001e2400000000dffffffffffffffff"
        ),
        (
            ProducerEntry(1, 2, 1, 2, 3, -1, 3, 100),
            ProducerEntry(11, 12, last_timestamp_ms=123456, coordinator_epoch=13),
        ),
    ),
}
TWO = bytes.fromhex(GOLDEN["open transaction"][0])

ENTRIES = st.builds(
    ProducerEntry,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(-1, 2**15 - 1),
    last_sequence=st.integers(-1, 2**31 - 1),
    last_offset=st.integers(0, 2**63 - 1),
    offset_delta=st.integers(0, 2**31 - 1),
    last_timestamp_ms=st.integers(-(2**63), 2**63 - 1),
    coordinator_epoch=st.integers(-1, 2**31 - 1),
    current_txn_first_offset=st.none() | st.integers(0, 2**63 - 1),
)


def sealed(counted: bytes) -> bytes:
    """A snapshot with these bytes behind its checksum."""
    return b"\x00\x01" + crc32c.crc32c(counted).to_bytes(4, "big") + counted


def test_the_layout_is_that_of_the_format() -> None:
    assert (HEADER.size_bytes, ENTRY.size_bytes) == (10, 46)
    assert [HEADER.offset_of(name) for name in ("version", "crc", "entry_count")] == [0, 2, 6]
    names = ("producer_id", "producer_epoch", "last_sequence", "last_offset", "offset_delta", "last_timestamp_ms")
    assert [ENTRY.offset_of(name) for name in names] == [0, 8, 10, 14, 22, 26]
    assert [ENTRY.offset_of(name) for name in ("coordinator_epoch", "current_txn_first_offset")] == [34, 38]
    assert ENTRY.dtype().itemsize == ENTRY.size_bytes


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes_are_read_and_written(name: str) -> None:
    data, entries = bytes.fromhex(GOLDEN[name][0]), GOLDEN[name][1]
    assert read_snapshot(data) == entries
    assert write_snapshot(entries) == data


@given(st.lists(ENTRIES, unique_by=lambda entry: entry.producer_id, max_size=20))
def test_what_is_written_is_read_in_ascending_producer_id(entries: list[ProducerEntry]) -> None:
    written = write_snapshot(entries)
    assert read_snapshot(written) == tuple(sorted(entries, key=lambda entry: entry.producer_id))
    assert write_snapshot(read_snapshot(written)) == written


def test_the_order_in_the_file_does_not_matter() -> None:
    swapped = sealed(TWO[6:10] + TWO[56:] + TWO[10:56])
    assert read_snapshot(swapped) == read_snapshot(TWO)


def test_without_a_batch_a_loader_ignores_sequence_and_delta() -> None:
    row = ENTRY.struct.pack(5, 1, 77, -1, 6, 1000, -1, -9)
    assert read_snapshot(sealed(b"\x00\x00\x00\x01" + row)) == (ProducerEntry(5, 1, last_timestamp_ms=1000),)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_entries_or_corrupt(data: bytes) -> None:
    with suppress(CorruptSnapshot):
        read_snapshot(data)
    with suppress(CorruptSnapshot):
        read_snapshot(sealed(data))


@pytest.mark.parametrize("kept", range(len(TWO)))
def test_a_truncated_snapshot_is_corrupt(kept: int) -> None:
    with pytest.raises(CorruptSnapshot):
        read_snapshot(TWO[:kept])


@pytest.mark.parametrize("position", range(len(TWO)))
def test_any_flipped_bit_is_found(position: int) -> None:
    damaged = bytearray(TWO)
    damaged[position] ^= 0x10
    with pytest.raises(CorruptSnapshot):
        read_snapshot(damaged)


@pytest.mark.parametrize(
    ("data", "position", "what"),
    [
        (b"", 0, "0 bytes, expected 10 or more"),
        (bytes(10), 0, "version 0, expected 1"),
        (bytes(102), 0, "version 0"),
        (b"\x00\x02" + TWO[2:], 0, "version 2, expected 1"),
        (TWO[:-1], 2, "checksum"),
        (sealed(b"\x00\x00\x00\x03" + TWO[10:]), 6, "3 entries in 102 bytes, expected 148 bytes"),
        (sealed(b"\xff\xff\xff\xff"), 6, "-1 entries"),
        (sealed(b"\x7f\xff\xff\xff"), 6, "2147483647 entries"),
        (sealed(b"\x00\x00\x00\x02" + TWO[10:56] * 2), 56, "producer id 1 appears twice"),
        (sealed(b"\x00\x00\x00\x01" + b"\xff" * 46), 10, "producer id -1 is negative"),
    ],
)
def test_the_error_says_where_and_what(data: bytes, position: int, what: str) -> None:
    with pytest.raises(CorruptSnapshot, match=what) as found:
        read_snapshot(data)
    assert found.value.position == position
    assert f"at byte {position}" in str(found.value)


def test_row_80g_a_snapshot_longer_than_its_entries_is_corrupt() -> None:
    one = bytes.fromhex(GOLDEN["one"][0])
    with pytest.raises(CorruptSnapshot, match="checksum"):
        read_snapshot(one + TWO[len(one) :])  # a short file written over a longer one
    with pytest.raises(CorruptSnapshot, match="1 entries in 102 bytes"):
        read_snapshot(sealed(b"\x00\x00\x00\x01" + TWO[10:]))


def test_a_producer_twice_is_not_written() -> None:
    with pytest.raises(ValueError, match="twice"):
        write_snapshot([ProducerEntry(1), ProducerEntry(1, 2)])


def test_the_description_is_what_tools_rely_on() -> None:
    assert json.loads(json.dumps(describe(TWO))) == {
        "kind": "snapshot",
        "version": 1,
        "entries": [
            {
                "producer_id": 1,
                "producer_epoch": 0,
                "last_sequence": 5,
                "last_offset": 50,
                "offset_delta": 0,
                "last_timestamp_ms": 1700000000000,
                "coordinator_epoch": -1,
                "current_txn_first_offset": None,
            },
            {
                "producer_id": 4242,
                "producer_epoch": 3,
                "last_sequence": 13,
                "last_offset": 102,
                "offset_delta": 2,
                "last_timestamp_ms": 1700000000005,
                "coordinator_epoch": -1,
                "current_txn_first_offset": 100,
            },
        ],
    }
