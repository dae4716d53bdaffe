"""One record of a batch, read natively: where its parts lie. Every length is checked before it is believed."""

from __future__ import annotations

import numpy as np

from sidecar.compaction.compiling import native, native_inline
from sidecar.logformat.headers import (
    MAGIC_POSITION,
    MESSAGE_HEADER,
    PREFIX_BYTES,
    SIZE_POSITION,
    SMALLEST_MESSAGE_BYTES,
    SMALLEST_PREFIX_BYTES,
    TIMESTAMPED_MESSAGE_HEADER,
)
from sidecar.logformat.kernels import LONGEST_INT, LONGEST_LONG, long_varint
from sidecar.logformat.loads import Word, load_be_i32, load_be_i64, load_i8, load_u8

_V0_HEADER, _V1_HEADER = MESSAGE_HEADER.size_bytes, TIMESTAMPED_MESSAGE_HEADER.size_bytes
_V0_SMALLEST, _V1_SMALLEST = SMALLEST_MESSAGE_BYTES[:2]
_TIMESTAMP = TIMESTAMPED_MESSAGE_HEADER.offset_of("timestamp")


@native_inline
def varint(at: Word, end: Word, longest: Word) -> tuple[Word, Word]:
    """A zigzag varint of at most `longest` bytes (5 or 10): its value and the address behind it, which is -1 if it does not end."""
    first = np.int64(-1)
    second = np.int64(-1)
    if at < end:
        first = np.int64(load_u8(at))
        if at + np.int64(1) < end:
            second = np.int64(load_u8(at + np.int64(1)))
    if first >= np.int64(0) and first < np.int64(0x80):
        value, behind = (first >> np.int64(1)) ^ -(first & np.int64(1)), at + np.int64(1)
    elif second >= np.int64(0) and second < np.int64(0x80):
        raw = (first & np.int64(0x7F)) | (second << np.int64(7))
        value, behind = (raw >> np.int64(1)) ^ -(raw & np.int64(1)), at + np.int64(2)
    else:
        value, behind = long_varint(at, end, longest)
    return value, behind


@native
def behind_headers(at: Word, end: Word, count: Word, name_at: Word, name_bytes: Word) -> tuple[Word, Word, Word]:
    """Walk `count` headers: (address behind them or -1, address and size of the value of the last one of that name).

    The value's address is 0 if no header has the name; its size is -1 for a null value.
    """
    value_at, value_bytes = np.int64(0), np.int64(-1)
    at = np.int64(at)
    for _ in range(np.int64(count)):
        size, at = varint(at, np.int64(end), np.int64(LONGEST_INT))
        if at < 0 or size < 0 or size > np.int64(end) - at:
            return np.int64(-1), np.int64(0), np.int64(-1)
        matches = size == np.int64(name_bytes)
        if matches:
            for index in range(size):
                if load_u8(at + index) != load_u8(np.int64(name_at) + index):
                    matches = False
                    break
        at += size
        size, at = varint(at, np.int64(end), np.int64(LONGEST_INT))
        if at < 0 or size > np.int64(end) - at:
            return np.int64(-1), np.int64(0), np.int64(-1)
        if matches:
            value_at, value_bytes = at, max(size, np.int64(-1))
        at += max(size, np.int64(0))
    return at, value_at, value_bytes


@native_inline
def behind_record(at: Word, end: Word) -> Word:
    """The address behind the record at address `at`, by its length alone; -1 if it does not lie before `end`."""
    size, body = varint(at, end, np.int64(LONGEST_INT))
    fine = body >= np.int64(0) and size > np.int64(0) and size <= end - body
    return body + size if fine else np.int64(-1)


@native_inline
def read_record(at: Word, end: Word) -> tuple[Word, Word, Word, Word, Word, Word, Word, Word, Word]:
    """The record at address `at`, of which nothing may lie at or behind `end`.

    Returns: address behind it (-1: it does not decode), timestamp delta, address behind that, offset delta, address and size
    of the key, size of the value, count of headers, address of the first header. Sizes are negative for null.
    Source: DefaultRecord.readFrom.
    """
    size, body = varint(at, end, np.int64(LONGEST_INT))
    fine = body >= np.int64(0) and size > np.int64(0) and size <= end - body
    last = body + size if fine else at
    timestamp_delta, behind_timestamp = varint(body + np.int64(1) if fine else last, last, np.int64(LONGEST_LONG))
    fine = fine and behind_timestamp >= np.int64(0)
    offset_delta, behind = varint(behind_timestamp if fine else last, last, np.int64(LONGEST_INT))
    fine = fine and behind >= np.int64(0)
    key_bytes, key_at = varint(behind if fine else last, last, np.int64(LONGEST_INT))
    fine = fine and key_at >= np.int64(0) and key_bytes <= last - key_at
    behind = key_at + max(key_bytes, np.int64(0)) if fine else last
    value_bytes, value_at = varint(behind, last, np.int64(LONGEST_INT))
    fine = fine and value_at >= np.int64(0) and value_bytes <= last - value_at
    behind = value_at + max(value_bytes, np.int64(0)) if fine else last
    header_count, headers_at = varint(behind, last, np.int64(LONGEST_INT))
    fine = fine and headers_at >= np.int64(0) and header_count >= np.int64(0)
    fine = fine and (header_count > np.int64(0) or headers_at == last)
    return (
        last if fine else np.int64(-1),
        timestamp_delta,
        behind_timestamp,
        offset_delta,
        key_at,
        key_bytes,
        value_bytes,
        header_count,
        headers_at,
    )


@native
def read_message(at: Word, end: Word) -> tuple[Word, Word, Word, Word, Word, Word, Word]:
    """The legacy message at address `at`: (address behind it or -1, magic, timestamp, address and size of key and of value).

    Source: LegacyRecord.
    """
    none = np.int64(-1)
    bad = (none, none, none, none, none, none, none)
    at, left = np.int64(at), np.int64(end) - np.int64(at)
    if left < np.int64(SMALLEST_PREFIX_BYTES):
        return bad
    size = np.int64(load_be_i32(at + np.int64(SIZE_POSITION))) + np.int64(PREFIX_BYTES)
    magic = np.int64(load_i8(at + np.int64(MAGIC_POSITION)))
    smallest = np.int64(_V1_SMALLEST) if magic == np.int64(1) else np.int64(_V0_SMALLEST)
    if magic < 0 or magic > 1 or size < smallest or size > left:
        return bad
    last = at + size
    timestamp = load_be_i64(at + np.int64(_TIMESTAMP)) if magic == np.int64(1) else np.int64(-1)
    key_at = at + (np.int64(_V1_HEADER) if magic == np.int64(1) else np.int64(_V0_HEADER)) + np.int64(4)
    key_bytes = max(np.int64(load_be_i32(key_at - np.int64(4))), np.int64(-1))
    if key_bytes > last - key_at - np.int64(4):
        return bad
    value_at = key_at + max(key_bytes, np.int64(0)) + np.int64(4)
    value_bytes = max(np.int64(load_be_i32(value_at - np.int64(4))), np.int64(-1))
    if value_at + max(value_bytes, np.int64(0)) != last:
        return bad
    return last, magic, timestamp, key_at, key_bytes, value_at, value_bytes
