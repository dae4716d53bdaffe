"""The walk over batch headers as one native loop: checks every batch and writes its header into columns.

Called through `batches.SegmentScanner`, which knows files; this module knows a buffer and nothing outside it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numba import njit

from producer_state.facts import MALFORMED_MARKER, MARKER_ABORT, MARKER_COMMIT, NO_MARKER
from sidecar.logformat.crc32c import (
    Word,
    address_of,
    crc32_ieee,
    crc32c,
    load_be_i16,
    load_be_i32,
    load_be_i64,
    load_be_u32,
    load_i8,
    load_u8,
)
from sidecar.logformat.headers import (
    BATCH_HEADER,
    CRC_FROM,
    MAGIC_POSITION,
    MESSAGE_HEADER,
    PREFIX_BYTES,
    SIZE_POSITION,
    SMALLEST_MESSAGE_BYTES,
    SMALLEST_PREFIX_BYTES,
    TIMESTAMPED_MESSAGE_HEADER,
    BatchFlag,
    Codec,
)

UNKNOWN_MARKER = 127
"""`marker_type` of a control record whose type does not fit the column (types 0 to 126 stand for themselves)."""


class Stop(IntEnum):
    """Why the walk returned. Up to `BATCH_TOO_WIDE` nothing is wrong; `detail` is what each says."""

    COLUMNS_FULL = 0
    MORE_BYTES = 1  # detail: bytes needed from the position on
    BATCH_TOO_WIDE = 2  # detail: size of a batch that is not to be held in memory
    SIZE = 3  # detail: the smallest size this magic may have
    MAGIC = 4  # detail: the magic found
    BASE_OFFSET = 5  # detail: the offset found, below the smallest possible
    LAST_OFFSET = 6  # detail: the offset found, above the largest possible
    LAST_OFFSET_DELTA = 7  # detail: the delta found
    RECORD_COUNT = 8  # detail: the count found
    CODEC = 9  # detail: the codec found
    CRC = 10  # detail: the checksum computed


# numba takes module-level ints as constants; members of an IntEnum are plain ints here.
COLUMNS_FULL, MORE_BYTES, BATCH_TOO_WIDE = (int(stop) for stop in list(Stop)[:3])
BAD_SIZE, BAD_MAGIC, BAD_BASE_OFFSET, BAD_LAST_OFFSET, BAD_DELTA, BAD_COUNT, BAD_CODEC, BAD_CRC = (
    int(stop) for stop in list(Stop)[3:]
)

# Rows of the column blocks, one block per integer width.
POSITION, BASE_OFFSET, LAST_OFFSET, CRC, BASE_TIMESTAMP, MAX_TIMESTAMP, PRODUCER_ID, MARKER_TIMESTAMP = range(8)
SIZE, LEADER_EPOCH, BASE_SEQUENCE, LAST_SEQUENCE, RECORD_COUNT, COORDINATOR_EPOCH = range(6)
ATTRIBUTES, PRODUCER_EPOCH = range(2)
MAGIC, MARKER_TYPE = range(2)

_SMALLEST_V0, _SMALLEST_V1, _SMALLEST_V2 = SMALLEST_MESSAGE_BYTES
_CRC_FROM_LEGACY, _CRC_FROM_V2 = CRC_FROM[0], CRC_FROM[2]
_CODEC_MASK = 0x07
_NO_CODEC, _LAST_LEGACY_CODEC, _LAST_CODEC = int(Codec.NONE), int(Codec.LZ4), int(Codec.ZSTD)
_CONTROL, _LOG_APPEND_TIME = int(BatchFlag.CONTROL), int(BatchFlag.LOG_APPEND_TIME)
_LEGACY_CRC = MESSAGE_HEADER.offset_of("crc")
_LEGACY_ATTRIBUTES = MESSAGE_HEADER.offset_of("attributes")
_LEGACY_TIMESTAMP = TIMESTAMPED_MESSAGE_HEADER.offset_of("timestamp")
_LEADER_EPOCH = BATCH_HEADER.offset_of("leader_epoch")
_CRC = BATCH_HEADER.offset_of("crc")
_ATTRIBUTES = BATCH_HEADER.offset_of("attributes")
_LAST_OFFSET_DELTA = BATCH_HEADER.offset_of("last_offset_delta")
_BASE_TIMESTAMP = BATCH_HEADER.offset_of("base_timestamp")
_MAX_TIMESTAMP = BATCH_HEADER.offset_of("max_timestamp")
_PRODUCER_ID = BATCH_HEADER.offset_of("producer_id")
_PRODUCER_EPOCH = BATCH_HEADER.offset_of("producer_epoch")
_BASE_SEQUENCE = BATCH_HEADER.offset_of("base_sequence")
_RECORD_COUNT = BATCH_HEADER.offset_of("record_count")
_LARGEST_INT32 = 2**31 - 1
_LONGEST_VARINT = 10


@njit(nogil=True, cache=True)
def read_varlong(begin: Word, end: Word) -> tuple[Word, Word]:
    """A zigzag varint at addresses `[begin, end)`: its value and the position behind it, or (0, -1) if it does not end.

    Source: ByteUtils.readVarlong.
    """
    value = np.uint64(0)
    at = np.int64(begin)
    limit = min(np.int64(end), at + np.int64(_LONGEST_VARINT))
    shift = np.uint64(0)
    while at < limit:
        byte = np.uint64(load_u8(at))
        value |= (byte & np.uint64(0x7F)) << shift
        at += np.int64(1)
        if byte < np.uint64(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@njit(nogil=True, cache=True)
def read_marker(begin: Word, end: Word) -> tuple[Word, Word, Word]:
    """Marker type, coordinator epoch and timestamp delta of the control record at addresses `[begin, end)`.

    Source: ControlRecordType.parseTypeId, EndTransactionMarker.deserializeValue.
    """
    malformed = (np.int64(MALFORMED_MARKER), np.int64(-1), np.int64(0))
    size, at = read_varlong(begin, end)
    if at < 0 or size < 0 or size > np.int64(end) - at:
        return malformed
    last = at + size
    timestamp_delta, at = read_varlong(at + np.int64(1), last)  # behind the record's attributes
    if at < 0:
        return malformed
    _offset_delta, at = read_varlong(at, last)
    if at < 0:
        return malformed
    key_bytes, at = read_varlong(at, last)
    if at < 0 or key_bytes < 4 or key_bytes > last - at:
        return malformed
    kind = np.int64(load_be_i16(at + np.int64(2)))
    if load_be_i16(at) < 0:
        return malformed
    if kind != np.int64(MARKER_ABORT) and kind != np.int64(MARKER_COMMIT):
        in_column = kind >= 0 and kind < np.int64(UNKNOWN_MARKER)
        return (kind if in_column else np.int64(UNKNOWN_MARKER)), np.int64(-1), timestamp_delta
    value_bytes, at = read_varlong(at + key_bytes, last)
    if at < 0 or value_bytes < 6 or value_bytes > last - at or load_be_i16(at) < 0:
        return malformed
    return kind, np.int64(load_be_i32(at + np.int64(2))), timestamp_delta


@njit(nogil=True, cache=True)
def last_sequence_of(base_sequence: Word, last_offset_delta: Word) -> Word:
    """Sequence of a batch's last offset: -1 without sequences, else wrapping from 2^31-1 to 0.

    Source: DefaultRecordBatch.incrementSequence.
    """
    if base_sequence == -1:
        return np.int64(-1)
    last = np.int64(base_sequence) + np.int64(last_offset_delta)
    return last - np.int64(_LARGEST_INT32) - np.int64(1) if last > np.int64(_LARGEST_INT32) else last


@njit(nogil=True, cache=True, inline="always")
def _walk_message(
    at: Word, size: Word, magic: Word, row: Word, wide: Any, words: Any, halves: Any, bytes_: Any
) -> tuple[Word, Word]:
    """Write one legacy message or wrapper (checksum and offset already judged); returns (stop or 0, detail)."""
    attributes = np.int64(load_i8(at + np.int64(_LEGACY_ATTRIBUTES))) & np.int64(0xFF)
    codec = attributes & np.int64(_CODEC_MASK)
    if codec > np.int64(_LAST_LEGACY_CODEC):
        return np.int64(BAD_CODEC), codec
    timestamp = load_be_i64(at + np.int64(_LEGACY_TIMESTAMP)) if magic == np.int64(1) else np.int64(-1)
    offset = load_be_i64(at)
    wide[BASE_OFFSET, row] = offset
    wide[LAST_OFFSET, row] = offset
    wide[CRC, row] = np.int64(load_be_u32(at + np.int64(_LEGACY_CRC)))
    wide[BASE_TIMESTAMP, row] = timestamp
    wide[MAX_TIMESTAMP, row] = timestamp
    wide[PRODUCER_ID, row] = np.int64(-1)
    wide[MARKER_TIMESTAMP, row] = np.int64(-1)
    words[SIZE, row] = np.int32(size)
    words[LEADER_EPOCH, row] = np.int32(-1)
    words[BASE_SEQUENCE, row] = np.int32(-1)
    words[LAST_SEQUENCE, row] = np.int32(-1)
    words[RECORD_COUNT, row] = np.int32(1) if codec == np.int64(_NO_CODEC) else np.int32(-1)
    words[COORDINATOR_EPOCH, row] = np.int32(-1)
    halves[ATTRIBUTES, row] = np.int16(attributes)
    halves[PRODUCER_EPOCH, row] = np.int16(-1)
    bytes_[MARKER_TYPE, row] = np.int8(NO_MARKER)
    return np.int64(0), np.int64(0)


@njit(nogil=True, cache=True, inline="always")
def _write_marker(at: Word, held_end: Word, row: Word, wide: Any, words: Any, halves: Any, bytes_: Any) -> None:
    """Decode the first record of a control batch into the marker columns."""
    attributes = np.int64(halves[ATTRIBUTES, row])
    if words[RECORD_COUNT, row] == np.int32(0):
        return
    kind, coordinator_epoch, delta = np.int64(MALFORMED_MARKER), np.int64(-1), np.int64(0)
    if attributes & np.int64(_CODEC_MASK) == np.int64(_NO_CODEC) and held_end > at:
        kind, coordinator_epoch, delta = read_marker(at, held_end)
    bytes_[MARKER_TYPE, row] = np.int8(kind)
    words[COORDINATOR_EPOCH, row] = np.int32(coordinator_epoch)
    if kind != np.int64(MALFORMED_MARKER):
        appended = attributes & np.int64(_LOG_APPEND_TIME) != np.int64(0)
        wide[MARKER_TIMESTAMP, row] = wide[MAX_TIMESTAMP, row] if appended else wide[BASE_TIMESTAMP, row] + delta


@njit(nogil=True, cache=True, inline="always")
def _walk_batch(
    at: Word, size: Word, last: Word, held: Word, row: Word, wide: Any, words: Any, halves: Any, bytes_: Any
) -> tuple[Word, Word]:
    """Write one magic 2 batch (checksum and offsets already judged); returns (stop or 0, detail)."""
    attributes = load_be_i16(at + np.int64(_ATTRIBUTES))
    codec = np.int64(attributes) & np.int64(_CODEC_MASK)
    if codec > np.int64(_LAST_CODEC):
        return np.int64(BAD_CODEC), codec
    base = load_be_i64(at)
    count = np.int64(load_be_i32(at + np.int64(_RECORD_COUNT)))
    if count < 0 or count > last - base + np.int64(1):
        return np.int64(BAD_COUNT), count
    base_sequence = load_be_i32(at + np.int64(_BASE_SEQUENCE))
    wide[BASE_OFFSET, row] = base
    wide[LAST_OFFSET, row] = last
    wide[CRC, row] = np.int64(load_be_u32(at + np.int64(_CRC)))
    wide[BASE_TIMESTAMP, row] = load_be_i64(at + np.int64(_BASE_TIMESTAMP))
    wide[MAX_TIMESTAMP, row] = load_be_i64(at + np.int64(_MAX_TIMESTAMP))
    wide[PRODUCER_ID, row] = load_be_i64(at + np.int64(_PRODUCER_ID))
    wide[MARKER_TIMESTAMP, row] = np.int64(-1)
    words[SIZE, row] = np.int32(size)
    words[LEADER_EPOCH, row] = load_be_i32(at + np.int64(_LEADER_EPOCH))
    words[BASE_SEQUENCE, row] = base_sequence
    words[LAST_SEQUENCE, row] = np.int32(last_sequence_of(np.int64(base_sequence), last - base))
    words[RECORD_COUNT, row] = np.int32(count)
    words[COORDINATOR_EPOCH, row] = np.int32(-1)
    halves[ATTRIBUTES, row] = attributes
    halves[PRODUCER_EPOCH, row] = load_be_i16(at + np.int64(_PRODUCER_EPOCH))
    bytes_[MARKER_TYPE, row] = np.int8(NO_MARKER)
    if np.int64(attributes) & np.int64(_CONTROL) != np.int64(0):
        _write_marker(at + np.int64(_SMALLEST_V2), at + held, row, wide, words, halves, bytes_)
    return np.int64(0), np.int64(0)


@njit(nogil=True, cache=True, inline="always")
def _checksum_of(at: Word, size: Word, magic: Word) -> Word:
    if magic == np.int64(2):
        return np.int64(crc32c(at + np.int64(_CRC_FROM_V2), at + size, np.uint32(0)))
    return np.int64(crc32_ieee(at + np.int64(_CRC_FROM_LEGACY), at + size, np.uint32(0)))


@njit(nogil=True, cache=True)
def walk_batches(
    buffer: Any,
    begin: Word,
    end: Word,
    file_position: Word,
    wide: Any,
    words: Any,
    halves: Any,
    bytes_: Any,
    row: Word,
    smallest_offset: Word,
    largest_offset: Word,
    check_crc: bool,
    largest_held_bytes: Word,
    wide_batch_crc: Word,
) -> tuple[Word, Word, Word, Word, Word]:
    """Walk the batches that lie whole within `buffer[begin:end]`, one row of the columns each.

    Args:
        buffer: uint8; its byte `begin` is byte `file_position` of the file.
        wide, words, halves, bytes_: column blocks int64[8, n], int32[6, n], int16[2, n], int8[2, n], filled from `row` on.
        smallest_offset, largest_offset: what base and last offset of the next batch must lie between.
        largest_held_bytes: batches above this size are not expected in the buffer: the walk stops at them, and goes on
            with `wide_batch_crc`, the checksum computed elsewhere (-1: not known), if the first one is such a batch.
    Returns: position in the buffer, rows filled, smallest offset for the next batch, the `Stop`, its detail.
    """
    origin = address_of(buffer)
    first = origin + np.int64(begin)
    at = first
    limit = origin + np.int64(end)
    rows = np.int64(wide.shape[1])
    row = np.int64(row)
    smallest = np.int64(smallest_offset)
    while True:
        if row >= rows:
            return at - origin, row, smallest, np.int64(COLUMNS_FULL), np.int64(0)
        held = limit - at
        if held < np.int64(SMALLEST_PREFIX_BYTES):
            return at - origin, row, smallest, np.int64(MORE_BYTES), np.int64(SMALLEST_PREFIX_BYTES)
        size = np.int64(load_be_i32(at + np.int64(SIZE_POSITION))) + np.int64(PREFIX_BYTES)
        if size < np.int64(_SMALLEST_V0):
            return at - origin, row, smallest, np.int64(BAD_SIZE), np.int64(_SMALLEST_V0)
        magic = np.int64(load_i8(at + np.int64(MAGIC_POSITION)))
        if magic < 0 or magic > np.int64(2):
            return at - origin, row, smallest, np.int64(BAD_MAGIC), magic
        smallest_size = np.int64(_SMALLEST_V2) if magic == np.int64(2) else np.int64(_SMALLEST_V1)
        if magic > 0 and size < smallest_size:
            return at - origin, row, smallest, np.int64(BAD_SIZE), smallest_size
        too_wide = size > np.int64(largest_held_bytes)
        if too_wide and (at > first or np.int64(wide_batch_crc) < 0):
            return at - origin, row, smallest, np.int64(BATCH_TOO_WIDE), size
        if (not too_wide and size > held) or held < min(size, np.int64(_SMALLEST_V2)):
            return at - origin, row, smallest, np.int64(MORE_BYTES), min(size, np.int64(largest_held_bytes))
        base = load_be_i64(at)
        delta = np.int64(load_be_i32(at + np.int64(_LAST_OFFSET_DELTA))) if magic == np.int64(2) else np.int64(0)
        if check_crc:
            stored_at = at + (np.int64(_CRC) if magic == np.int64(2) else np.int64(_LEGACY_CRC))
            computed = np.int64(wide_batch_crc) if too_wide else _checksum_of(at, size, magic)
            if computed != np.int64(load_be_u32(stored_at)):
                return at - origin, row, smallest, np.int64(BAD_CRC), computed
        if base < smallest:
            return at - origin, row, smallest, np.int64(BAD_BASE_OFFSET), base
        if delta < 0:
            return at - origin, row, smallest, np.int64(BAD_DELTA), delta
        if base > np.int64(largest_offset) - delta:
            return at - origin, row, smallest, np.int64(BAD_LAST_OFFSET), base
        if magic == np.int64(2):
            held_of_batch = np.int64(0) if too_wide else size
            stop, detail = _walk_batch(at, size, base + delta, held_of_batch, row, wide, words, halves, bytes_)
        else:
            stop, detail = _walk_message(at, size, magic, row, wide, words, halves, bytes_)
        if stop != 0:
            return at - origin, row, smallest, stop, detail
        wide[POSITION, row] = np.int64(file_position) + at - first
        bytes_[MAGIC, row] = np.int8(magic)
        smallest = base + delta + np.int64(1)
        row += np.int64(1)
        at += size
