"""Messages of magic 0 and 1, plain and wrapped."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import CorruptFile
from sidecar.logformat.batches import ScanEnd, scan_bytes
from sidecar.logformat.bodies.codecs import compress, decompress
from sidecar.logformat.bodies.legacy import build_legacy_message, build_legacy_wrapper
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.headers import Codec
from tests.logformat.batches_of_records import decoded_or_corrupt, legacy_codecs, payloads, record_lists, timestamps
from tests.logformat.golden_bytes import MESSAGE_V0, MESSAGE_V1


def as_stored(records: list[Record], magic: int) -> list[Record]:
    """What a reader sees of records that were written with this magic."""
    return [
        replace(
            record,
            magic=magic,
            batch_base_offset=records[0].offset,
            timestamp_ms=record.timestamp_ms if magic else -1,
            timestamp_type=0 if magic else -1,
        )
        for record in records
    ]


def test_known_messages_encode_and_decode() -> None:
    assert build_legacy_message(0, b"key1", b"value1", magic=0) == MESSAGE_V0
    assert build_legacy_message(0, b"key1", b"value1", magic=1, timestamp_ms=283843) == MESSAGE_V1
    record = Record(0, 283843, b"key1", b"value1")
    assert list(read_records(MESSAGE_V0)) == as_stored([record], 0)
    assert list(read_records(MESSAGE_V1)) == as_stored([record], 1)


@given(payloads, payloads, timestamps, st.sampled_from([0, 1]), st.booleans(), st.integers(0, 2**62))
def test_single_messages_round_trip(
    key: bytes | None, value: bytes | None, timestamp: int, magic: int, append_time: bool, offset: int
) -> None:
    data = build_legacy_message(offset, key, value, magic=magic, timestamp_ms=timestamp, append_time=append_time)
    (record,) = read_records(data)
    assert (record.offset, record.key, record.value, record.headers) == (offset, key, value, ())
    assert record.timestamp_ms == (timestamp if magic else -1)
    assert record.timestamp_type == ((1 if append_time else 0) if magic else -1)
    assert (record.producer_id, record.sequence, record.leader_epoch, record.control) == (-1, -1, -1, None)
    (row,) = scan_bytes(data)
    assert (row.base_offset[0], row.max_timestamp_ms[0]) == (offset, timestamp if magic else -1)


@given(record_lists(base_offset=1000, headers=False), legacy_codecs, st.sampled_from([0, 1]))
def test_wrappers_round_trip(records: list[Record], codec: Codec, magic: int) -> None:
    wrapper = build_legacy_wrapper(records, codec=codec, magic=magic)
    assert list(read_records(wrapper)) == as_stored(records, magic)
    scanner = scan_bytes(wrapper)
    (row,) = scanner
    assert scanner.end is ScanEnd.EXACT
    assert (row.base_offset[0], row.last_offset[0], row.record_count[0]) == (records[-1].offset,) * 2 + (-1,)
    assert row.attributes[0] == codec


@given(record_lists(base_offset=1000, headers=False), legacy_codecs)
def test_wrappers_of_old_cleaners_hold_messages_of_magic_0(records: list[Record], codec: Codec) -> None:
    wrapper = build_legacy_wrapper(records, codec=codec, magic=1, nested_magic=0)
    assert wrapper[16] == 1
    assert list(read_records(wrapper)) == as_stored(records, 0)


def test_nested_offsets_of_magic_1_count_back_from_the_wrapper() -> None:
    records = [Record(500, 1), Record(503, 2), Record(504, 3)]
    shifted = bytearray(build_legacy_wrapper(records, codec=Codec.GZIP))
    shifted[:8] = (90_004).to_bytes(8)  # what a leader does: it rewrites the wrapper's offset and nothing else
    assert [record.offset for record in read_records(shifted)] == [90_000, 90_003, 90_004]
    assert {record.batch_base_offset for record in read_records(shifted)} == {90_000}


def test_a_wrapper_at_offset_0_leaves_nested_offsets_alone() -> None:
    wrapper = bytearray(build_legacy_wrapper([Record(0, 1), Record(1, 2), Record(2, 3)], codec=Codec.SNAPPY))
    wrapper[:8] = bytes(8)
    assert [record.offset for record in read_records(wrapper)] == [0, 1, 2]


def test_an_append_time_wrapper_overrides_nested_timestamps() -> None:
    nested = build_legacy_message(0, b"a", b"1", timestamp_ms=1) + build_legacy_message(1, b"b", b"2", timestamp_ms=2)
    stream = compress(Codec.LZ4, nested, 1)
    wrapper = build_legacy_message(6, None, stream, timestamp_ms=777, append_time=True, codec=Codec.LZ4)
    assert [(record.timestamp_ms, record.timestamp_type) for record in read_records(wrapper)] == [(777, 1)] * 2
    mixed = build_legacy_wrapper([Record(5, 1)], codec=Codec.LZ4, append_time_ms=777, nested_magic=0)
    assert [(record.timestamp_ms, record.timestamp_type) for record in read_records(mixed)] == [(-1, -1)]


@pytest.mark.parametrize("append_time_ms", [None, 900])
def test_nested_messages_are_written_as_a_broker_does(append_time_ms: int | None) -> None:
    """With relative offsets, and with the append time. Source: MemoryRecordsBuilder.appendLegacyRecord."""
    records = [Record(100, 5, b"a", b"1"), Record(103, 6, b"b", b"2")]
    wrapper = build_legacy_wrapper(records, codec=Codec.GZIP, append_time_ms=append_time_ms)
    nested = [
        build_legacy_message(
            record.offset - 100,
            record.key,
            record.value,
            timestamp_ms=append_time_ms or record.timestamp_ms,
            append_time=append_time_ms is not None,
        )
        for record in records
    ]
    assert decompress(Codec.GZIP, wrapper[34:], magic=1) == b"".join(nested)


def test_the_wrapper_has_the_newest_timestamp() -> None:
    (row,) = scan_bytes(build_legacy_wrapper([Record(5, 9), Record(6, 4)], codec=Codec.GZIP))
    assert row.max_timestamp_ms[0] == 9


def wrapper_of(nested: bytes | None, *, offset: int = 10, magic: int = 1) -> bytes:
    stream = None if nested is None else compress(Codec.GZIP, nested, magic)
    return build_legacy_message(offset, None, stream, magic=magic, codec=Codec.GZIP)


INNER = build_legacy_message(0, b"k", b"v", timestamp_ms=1)
BAD_WRAPPERS = {
    "no value": (wrapper_of(None), "without value"),
    "nothing inside": (wrapper_of(b""), "without messages"),
    "a cut message": (wrapper_of(INNER[:-1]), "where 35 are left"),
    "a few bytes behind": (wrapper_of(INNER + b"\x00\x00"), "where 2 are left"),
    "a batch of magic 2 inside": (wrapper_of(INNER[:16] + b"\x02" + INNER[17:]), "magic 2"),
    "a wrapper inside": (wrapper_of(wrapper_of(INNER, offset=0)), "compressed message within"),
    "offsets that go back": (wrapper_of(build_legacy_message(3, None, None) + INNER), "offset 10 after 13"),
    "an offset above the wrapper's": (wrapper_of(build_legacy_message(11, None, None)), "at offset 10 whose last"),
    "a damaged message": (wrapper_of(INNER[:-1] + b"w"), "checksum"),
    "a zstd wrapper": (build_legacy_message(0, None, b"", codec=Codec.ZSTD), "codec 4 is unknown"),
    "no stream": (build_legacy_message(0, None, b"abc", codec=Codec.LZ4), "not an lz4 frame"),
}


@pytest.mark.parametrize("kind", BAD_WRAPPERS)
def test_bad_wrappers_are_reported(kind: str) -> None:
    data, words = BAD_WRAPPERS[kind]
    with pytest.raises(CorruptFile, match=words) as raised:
        list(read_records(data, 700))
    assert raised.value.position == 700


def resealed(data: bytes) -> bytes:
    """The same message under a right size and checksum."""
    sized = data[:8] + (len(data) - 12).to_bytes(4) + data[12:]
    return sized[:12] + zlib.crc32(sized[16:]).to_bytes(4) + sized[16:]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (resealed(MESSAGE_V1[:26] + b"\x00\x00\x00\x7f" + MESSAGE_V1[30:]), "a key of 127 bytes"),
        (resealed(MESSAGE_V1[:34] + b"\x00\x00\x00\x07" + MESSAGE_V1[38:]), "a value of 7 bytes"),
        (resealed(MESSAGE_V1 + b"\x00"), "1 bytes after"),
        (MESSAGE_V1[:-1] + b"x", "checksum"),
    ],
)
def test_bad_messages_are_reported(data: bytes, words: str) -> None:
    with pytest.raises(CorruptFile, match=words):
        list(read_records(data))


@given(st.binary(max_size=60), st.sampled_from([0, 1]), st.integers(0, 7))
def test_any_message_decodes_or_is_corrupt(tail: bytes, magic: int, attributes: int) -> None:
    data = resealed(MESSAGE_V0[:16] + bytes([magic, attributes]) + bytes(16) + tail)
    records = decoded_or_corrupt(data)
    assert records is None or records


@given(st.binary(max_size=90))
def test_any_nested_set_decodes_or_is_corrupt(nested: bytes) -> None:
    records = decoded_or_corrupt(wrapper_of(INNER + nested))
    assert records is None or records
