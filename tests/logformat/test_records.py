"""Records of magic 2 batches: known bytes, round trips, and bodies that do not decode."""

from __future__ import annotations

import struct
from dataclasses import replace

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import CorruptFile
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.building import build_batch, build_empty_batch, build_marker
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.headers import Codec
from tests.logformat.batches_of_records import codecs, decoded_or_corrupt, record_lists
from tests.logformat.golden_bytes import (
    ABORT_MARKER,
    COMMIT_MARKER,
    EMPTIED,
    THREE_RECORDS,
    TWO_RECORDS,
    TWO_RECORDS_LZ4,
)

PRODUCER = {"producer_id": 4242, "producer_epoch": 3}


def three_records() -> list[Record]:
    start = 1_700_000_000_000
    return [
        Record(100, start, b"a", b"1"),
        Record(101, start + 5, b"b", None),
        Record(102, start - 3, None, b"x", (("v", struct.pack(">q", 42)),)),
    ]


def test_known_records_decode() -> None:
    stored = {"batch_base_offset": 100, "leader_epoch": 7} | PRODUCER
    expected = [replace(record, sequence=11 + index, **stored) for index, record in enumerate(three_records())]
    assert list(read_records(THREE_RECORDS)) == expected


def test_known_records_encode_to_the_known_bytes() -> None:
    assert build_batch(three_records(), leader_epoch=7, base_sequence=11, **PRODUCER) == THREE_RECORDS
    pair = [Record(0, 283843, b"key1", b"value1"), Record(1, 1234, b"key2", b"value2")]
    assert build_batch(pair) == TWO_RECORDS
    assert build_batch(pair, codec=Codec.LZ4) == TWO_RECORDS_LZ4


def test_known_markers_encode_and_decode() -> None:
    for data, commit, name in ((COMMIT_MARKER, True, "commit"), (ABORT_MARKER, False, "abort")):
        built = build_marker(
            103, commit=commit, coordinator_epoch=9, timestamp_ms=1_700_000_000_010, leader_epoch=7, **PRODUCER
        )
        assert built == data
        (record,) = read_records(data)
        assert (record.control, record.transactional, record.sequence, record.offset) == (name, True, -1, 103)


def test_an_emptied_batch_has_no_records() -> None:
    emptied = build_empty_batch(
        base_offset=100,
        last_offset=102,
        max_timestamp_ms=1_700_000_000_005,
        leader_epoch=7,
        base_sequence=11,
        **PRODUCER,
    )
    assert emptied == EMPTIED
    assert list(read_records(emptied)) == []


def test_an_emptied_compressed_batch_needs_no_stream() -> None:
    data = bytearray(EMPTIED)
    data[22] = Codec.ZSTD
    data[17:21] = crc32c.crc32c(bytes(data[21:])).to_bytes(4)
    assert list(read_records(data)) == []


def test_both_forms_of_the_same_records_decode_alike() -> None:
    assert list(read_records(TWO_RECORDS)) == list(read_records(TWO_RECORDS_LZ4))


def test_append_time_overrides_every_timestamp() -> None:
    (record,) = read_records(build_batch([Record(0, 5)], append_time_ms=777))
    assert (record.timestamp_ms, record.timestamp_type) == (777, 1)


def test_timestamps_are_relative_to_the_delete_horizon_where_there_is_one() -> None:
    batch = build_batch([Record(0, 5), Record(1, 9)], delete_horizon_ms=1_000_000)
    assert [record.timestamp_ms for record in read_records(batch)] == [5, 9]
    (chunk,) = scan_bytes(batch)
    assert (chunk.base_timestamp_ms[0], chunk.max_timestamp_ms[0], chunk.attributes[0]) == (1_000_000, 9, 0x40)


def test_sequences_follow_offsets_and_wrap() -> None:
    batch = build_batch([Record(10), Record(12), Record(15)], base_sequence=2**31 - 3, **PRODUCER)
    assert [record.sequence for record in read_records(batch)] == [2**31 - 3, 2**31 - 1, 2]


@given(record_lists(base_offset=2**40), codecs, st.integers(-1, 2**31 - 1), st.booleans())
def test_what_is_encoded_decodes_to_itself(
    records: list[Record], codec: Codec, base_sequence: int, transactional: bool
) -> None:
    batch = build_batch(
        records, codec=codec, leader_epoch=9, base_sequence=base_sequence, transactional=transactional, **PRODUCER
    )
    decoded = list(read_records(batch))
    base = records[0].offset
    stored = {"batch_base_offset": base, "leader_epoch": 9, "transactional": transactional} | PRODUCER
    assert [replace(record, sequence=-1) for record in decoded] == [replace(record, **stored) for record in records]
    assert build_batch(decoded, codec=codec, leader_epoch=9, base_sequence=base_sequence, transactional=transactional,
                       **PRODUCER) == batch  # fmt: skip
    (row,) = scan_bytes(batch)
    assert (row.record_count[0], row.base_offset[0], row.last_offset[0]) == (len(records), base, records[-1].offset)
    assert row.max_timestamp_ms[0] == max(record.timestamp_ms for record in records)


def sealed(header_changes: dict[int, bytes], body: bytes) -> bytes:
    """TWO_RECORDS with some header bytes and another body, under a right checksum."""
    data = bytearray(TWO_RECORDS[:61] + body)
    for position, changed in header_changes.items():
        data[position : position + len(changed)] = changed
    data[8:12] = (len(data) - 12).to_bytes(4)
    data[17:21] = crc32c.crc32c(bytes(data[21:])).to_bytes(4)
    return bytes(data)


BODY = TWO_RECORDS[61:]
BAD_BODIES = {
    "one record missing": (sealed({}, BODY[:17]), "does not end"),
    "a byte too many": (sealed({}, BODY + b"\x00"), "1 bytes follow the last of 2 records"),
    "a length beyond the end": (sealed({}, b"\x7e" + BODY[1:]), "a record of 63 bytes"),
    "a negative length": (sealed({}, b"\x01" + BODY[1:]), "a record of -1 bytes"),
    "a key beyond its record": (sealed({}, BODY[:4] + b"\x7e" + BODY[5:]), "a key of 63 bytes"),
    "headers beyond the record": (sealed({}, BODY[:16] + b"\x7e" + BODY[17:]), "63 headers in 0 bytes"),
    "negative headers": (sealed({}, BODY[:16] + b"\x01" + BODY[17:]), "-1 headers"),
    "a count above the range": (sealed({57: (3).to_bytes(4)}, BODY), "3 records, expected 1 to 2"),
    "a negative count": (sealed({57: b"\xff\xff\xff\xff"}, BODY), "-1 records"),
    "offsets that stand still": (sealed({}, BODY[:17] + BODY[17:].replace(b"\x22\x02", b"\x22\x00", 1)), "offset 0"),
    "an offset beyond the batch": (sealed({}, BODY.replace(b"\xe1\xbf\x22\x02", b"\xe1\xbf\x22\x04")), "offset 2"),
    "a varint that does not end": (sealed({}, b"\xff" * 40), "does not end"),
    "a stream that is none": (sealed({22: b"\x04"}, BODY), "no zstd frame"),
    "control without a type": (sealed({22: b"\x20"}, BODY.replace(b"key1", b"\xff\xffy1")), "key of a control record"),
}


@pytest.mark.parametrize("kind", BAD_BODIES)
def test_bodies_that_do_not_decode_are_reported(kind: str) -> None:
    data, words = BAD_BODIES[kind]
    with pytest.raises(CorruptFile, match=words) as raised:
        list(read_records(data, 5000))
    assert raised.value.position is not None
    assert 5000 <= raised.value.position <= 5000 + len(data)
    assert raised.value.offset == 0


def test_unknown_control_types_are_numbers_and_short_keys_are_corrupt() -> None:
    (record,) = read_records(build_batch([Record(0, 0, b"\x00\x00\x01\x00", b"")], control=True))
    assert record.control == 256
    (record,) = read_records(build_batch([Record(0, 0, b"\x00\x00\xff\xfe\x00", b"")], control=True))
    assert record.control == -2
    # A newer version of the key is read as the one that is known.
    (record,) = read_records(build_batch([Record(0, 0, b"\x00\x05\x00\x01", b"")], control=True))
    assert record.control == "commit"
    with pytest.raises(CorruptFile, match="key of a control record"):
        list(read_records(build_batch([Record(0, 0, b"\x00", b"")], control=True)))


def test_a_wrong_checksum_is_reported() -> None:
    damaged = THREE_RECORDS[:-1] + b"\x2b"
    with pytest.raises(CorruptFile, match="checksum"):
        list(read_records(damaged))


def test_the_limit_bounds_what_a_batch_may_hold() -> None:
    batch = build_batch([Record(0, 0, None, bytes(100_000))], codec=Codec.ZSTD)
    assert len(batch) < 200
    with pytest.raises(CorruptFile, match="50000 bytes allowed"):
        list(read_records(batch, limit_bytes=50_000))


@pytest.mark.parametrize("size", [0, 5, 16, 17, 60, 96, 98])
def test_pieces_of_a_batch_are_no_batch(size: int) -> None:
    with pytest.raises(CorruptFile):
        list(read_records((THREE_RECORDS + b"\x00")[:size]))


@given(st.binary(max_size=120), codecs)
def test_any_body_decodes_or_is_corrupt(body: bytes, codec: Codec) -> None:
    data = sealed({21: int(codec).to_bytes(2), 23: (40).to_bytes(4)}, body)
    records = decoded_or_corrupt(data)
    assert records is None or len(records) == 2


@given(st.integers(0, 8 * len(BODY) - 1))
def test_any_flipped_bit_of_a_body_decodes_or_is_corrupt(bit: int) -> None:
    body = bytearray(BODY)
    body[bit // 8] ^= 1 << bit % 8
    records = decoded_or_corrupt(sealed({}, bytes(body)))
    assert records is None or [record.offset for record in records] == [0, 1]


@pytest.mark.parametrize("bad", [[], [Record(3), Record(3)], [Record(0, -2)]])
def test_batches_that_no_broker_would_write_are_not_built(bad: list[Record]) -> None:
    with pytest.raises(ValueError, match=r"records|record at"):
        build_batch(bad)


def test_records_outside_their_batch_are_not_built() -> None:
    with pytest.raises(ValueError, match="outside"):
        build_batch([Record(5)], base_offset=6)
