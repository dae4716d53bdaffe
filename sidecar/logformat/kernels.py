"""The walk over batch headers as one native loop: checks every batch and writes its header into columns.

Called through `batches.SegmentScanner`, which knows files; this module knows a buffer and nothing outside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from producer_state.facts import MALFORMED_MARKER, MARKER_ABORT, MARKER_COMMIT, NO_MARKER
from sidecar.logformat.columns import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    COORDINATOR_EPOCH,
    CRC,
    LAST_OFFSET,
    LAST_SEQUENCE,
    LEADER_EPOCH,
    MAGIC,
    MARKER_TIMESTAMP,
    MARKER_TYPE,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    SIZE,
    Stop,
)
from sidecar.logformat.compiling import native, native_inline
from sidecar.logformat.crc.crc32c import crc32_ieee, crc32c, crc32c_combined
from sidecar.logformat.headers import (
    BATCH_HEADER,
    CRC_FROM,
    CRC_POSITION,
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
from sidecar.logformat.loads import (
    Word,
    address_of,
    load_be_i16,
    load_be_i32,
    load_be_i64,
    load_be_u32,
    load_i8,
    load_u8,
)

UNKNOWN_MARKER = 127
"""`marker_type` of a control record whose type does not fit the column (types 0 to 126 stand for themselves)."""

LONGEST_INT, LONGEST_LONG = 5, 10
"""Bytes of a varint at most."""


@native
def long_varint(at: Word, end: Word, longest: Word) -> tuple[Word, Word]:
    """A zigzag varint of at most `longest` bytes (5 or 10) before the address `end`: its value and the address behind it, or
    (0, -1) if it does not end.

    Source: ByteUtils.readVarint, readVarlong.
    """
    value, shift = np.uint64(0), np.uint64(0)
    limit = min(np.int64(end), np.int64(at) + np.int64(longest))
    position = np.int64(at)
    while position < limit:
        byte = np.uint64(load_u8(position))
        value |= (byte & np.uint64(0x7F)) << shift
        position += np.int64(1)
        if byte < np.uint64(0x80):
            if longest == np.int64(LONGEST_INT):
                value &= np.uint64(0xFFFFFFFF)
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@native
def read_marker(begin: Word, end: Word) -> tuple[Word, Word, Word]:
    """Marker type, coordinator epoch and timestamp delta of the control record at addresses `[begin, end)`.

    Source: ControlRecordType.parseTypeId, EndTransactionMarker.deserializeValue.
    """
    malformed, longest = (np.int64(MALFORMED_MARKER), np.int64(-1), np.int64(0)), np.int64(LONGEST_LONG)
    size, at = long_varint(begin, end, longest)
    if at < 0 or size < 0 or size > np.int64(end) - at:
        return malformed
    last = at + size
    timestamp_delta, at = long_varint(at + np.int64(1), last, longest)  # behind the record's attributes
    if at < 0:
        return malformed
    _offset_delta, at = long_varint(at, last, longest)
    if at < 0:
        return malformed
    key_bytes, at = long_varint(at, last, longest)
    if at < 0 or key_bytes < 4 or key_bytes > last - at:
        return malformed
    kind = np.int64(load_be_i16(at + np.int64(2)))
    if load_be_i16(at) < 0:
        return malformed
    if kind != np.int64(MARKER_ABORT) and kind != np.int64(MARKER_COMMIT):
        in_column = kind >= 0 and kind < np.int64(UNKNOWN_MARKER)
        return (kind if in_column else np.int64(UNKNOWN_MARKER)), np.int64(-1), timestamp_delta
    value_bytes, at = long_varint(at + key_bytes, last, longest)
    if at < 0 or value_bytes < 6 or value_bytes > last - at or load_be_i16(at) < 0:
        return malformed
    return kind, np.int64(load_be_i32(at + np.int64(2))), timestamp_delta


_CODEC_MASK = 0x07
_NO_CODEC = int(Codec.NONE)
_CONTROL, _LOG_APPEND_TIME = int(BatchFlag.CONTROL), int(BatchFlag.LOG_APPEND_TIME)
_BATCH_HEADER_BYTES = BATCH_HEADER.size_bytes
_LEGACY_CRC, _CRC = CRC_POSITION[0], CRC_POSITION[2]
_LEGACY_ATTRIBUTES = MESSAGE_HEADER.offset_of("attributes")
_LEGACY_TIMESTAMP = TIMESTAMPED_MESSAGE_HEADER.offset_of("timestamp")
_LEADER_EPOCH = BATCH_HEADER.offset_of("leader_epoch")
_ATTRIBUTES = BATCH_HEADER.offset_of("attributes")
_BASE_TIMESTAMP = BATCH_HEADER.offset_of("base_timestamp")
_MAX_TIMESTAMP = BATCH_HEADER.offset_of("max_timestamp")
_PRODUCER_ID = BATCH_HEADER.offset_of("producer_id")
_PRODUCER_EPOCH = BATCH_HEADER.offset_of("producer_epoch")
_BASE_SEQUENCE = BATCH_HEADER.offset_of("base_sequence")
_RECORD_COUNT = BATCH_HEADER.offset_of("record_count")
_LARGEST_INT32 = 2**31 - 1


@native
def last_sequence_of(base_sequence: Word, last_offset_delta: Word) -> Word:
    """Sequence of a batch's last offset: -1 without sequences, else wrapping from 2^31-1 to 0.

    Source: DefaultRecordBatch.incrementSequence.
    """
    if base_sequence == -1:
        return np.int64(-1)
    last = np.int64(base_sequence) + np.int64(last_offset_delta)
    return last - np.int64(_LARGEST_INT32) - np.int64(1) if last > np.int64(_LARGEST_INT32) else last


@native_inline
def write_message(
    at: Word, size: Word, magic: Word, row: Word, wide: Any, words: Any, halves: Any, bytes_: Any
) -> None:
    """Write the row of the legacy message or wrapper at address `at`, but for its position."""
    attributes = np.int64(load_u8(at + np.int64(_LEGACY_ATTRIBUTES)))
    timestamp = load_be_i64(at + np.int64(_LEGACY_TIMESTAMP)) if magic == np.int64(1) else np.int64(-1)
    plain = attributes & np.int64(_CODEC_MASK) == np.int64(_NO_CODEC)
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
    words[RECORD_COUNT, row] = np.int32(1) if plain else np.int32(-1)
    words[COORDINATOR_EPOCH, row] = np.int32(-1)
    halves[ATTRIBUTES, row] = np.int16(attributes)
    halves[PRODUCER_EPOCH, row] = np.int16(-1)
    bytes_[MAGIC, row] = np.int8(magic)
    bytes_[MARKER_TYPE, row] = np.int8(NO_MARKER)


@native_inline
def write_batch(
    at: Word, size: Word, last_offset: Word, held: Word, row: Word, wide: Any, words: Any, halves: Any, bytes_: Any
) -> None:
    """Write the row of the magic 2 batch at address `at`, of which `held` bytes can be read, but for its position."""
    attributes = load_be_i16(at + np.int64(_ATTRIBUTES))
    base = load_be_i64(at)
    base_sequence = load_be_i32(at + np.int64(_BASE_SEQUENCE))
    wide[BASE_OFFSET, row] = base
    wide[LAST_OFFSET, row] = last_offset
    wide[CRC, row] = np.int64(load_be_u32(at + np.int64(_CRC)))
    wide[BASE_TIMESTAMP, row] = load_be_i64(at + np.int64(_BASE_TIMESTAMP))
    wide[MAX_TIMESTAMP, row] = load_be_i64(at + np.int64(_MAX_TIMESTAMP))
    wide[PRODUCER_ID, row] = load_be_i64(at + np.int64(_PRODUCER_ID))
    wide[MARKER_TIMESTAMP, row] = np.int64(-1)
    words[SIZE, row] = np.int32(size)
    words[LEADER_EPOCH, row] = load_be_i32(at + np.int64(_LEADER_EPOCH))
    words[BASE_SEQUENCE, row] = base_sequence
    words[LAST_SEQUENCE, row] = np.int32(last_sequence_of(np.int64(base_sequence), last_offset - base))
    words[RECORD_COUNT, row] = load_be_i32(at + np.int64(_RECORD_COUNT))
    words[COORDINATOR_EPOCH, row] = np.int32(-1)
    halves[ATTRIBUTES, row] = attributes
    halves[PRODUCER_EPOCH, row] = load_be_i16(at + np.int64(_PRODUCER_EPOCH))
    bytes_[MAGIC, row] = np.int8(2)
    bytes_[MARKER_TYPE, row] = np.int8(NO_MARKER)
    if np.int64(attributes) & np.int64(_CONTROL) != np.int64(0) and words[RECORD_COUNT, row] > np.int32(0):
        _write_marker(at + np.int64(_BATCH_HEADER_BYTES), at + held, row, wide, words, halves, bytes_)


@native_inline
def _write_marker(begin: Word, held_end: Word, row: Word, wide: Any, words: Any, halves: Any, bytes_: Any) -> None:
    """Decode the first record of a control batch into the marker columns; a compressed one is malformed."""
    attributes = np.int64(halves[ATTRIBUTES, row])
    kind, coordinator_epoch, delta = np.int64(MALFORMED_MARKER), np.int64(-1), np.int64(0)
    if attributes & np.int64(_CODEC_MASK) == np.int64(_NO_CODEC) and held_end > begin:
        kind, coordinator_epoch, delta = read_marker(begin, held_end)
    bytes_[MARKER_TYPE, row] = np.int8(kind)
    words[COORDINATOR_EPOCH, row] = np.int32(coordinator_epoch)
    if kind != np.int64(MALFORMED_MARKER):
        appended = attributes & np.int64(_LOG_APPEND_TIME) != np.int64(0)
        wide[MARKER_TIMESTAMP, row] = wide[MAX_TIMESTAMP, row] if appended else wide[BASE_TIMESTAMP, row] + delta


# numba takes module-level ints as constants; members of an IntEnum are plain ints here.
_GO_ON = -1
_COLUMNS_FULL, _MORE_BYTES, _BATCH_TOO_WIDE = (int(stop) for stop in list(Stop)[:3])
_BAD_SIZE, _BAD_MAGIC, _BAD_BASE_OFFSET, _BAD_LAST_OFFSET, _BAD_DELTA, _BAD_COUNT, _BAD_CODEC, _BAD_CRC = (
    int(stop) for stop in list(Stop)[3:]
)

_SMALLEST_V0, _SMALLEST_V1, _SMALLEST_V2 = SMALLEST_MESSAGE_BYTES
_CRC_FROM_LEGACY, _CRC_FROM_V2 = CRC_FROM[0], CRC_FROM[2]
_LAST_LEGACY_CODEC, _LAST_CODEC = int(Codec.LZ4), int(Codec.ZSTD)
_CODEC = BATCH_HEADER.offset_of("attributes") + 1  # big-endian: the low byte is the second
_LAST_OFFSET_DELTA = BATCH_HEADER.offset_of("last_offset_delta")


@native_inline
def _sized(at: Word, held: Word, largest_held_bytes: Word, wide_batch_awaited: Word) -> tuple[Word, Word, Word, Word]:
    """Size and magic of the batch at address `at`, judged before anything else is read: (stop, detail, size, magic)."""
    none = np.int64(0)
    if held < np.int64(SMALLEST_PREFIX_BYTES):
        return np.int64(_MORE_BYTES), np.int64(SMALLEST_PREFIX_BYTES), none, none
    size = np.int64(load_be_i32(at + np.int64(SIZE_POSITION))) + np.int64(PREFIX_BYTES)
    if size < np.int64(_SMALLEST_V0):
        return np.int64(_BAD_SIZE), np.int64(_SMALLEST_V0), size, none
    magic = np.int64(load_i8(at + np.int64(MAGIC_POSITION)))
    if magic < 0 or magic > np.int64(2):
        return np.int64(_BAD_MAGIC), magic, size, magic
    smallest = np.int64(_SMALLEST_V2) if magic == np.int64(2) else np.int64(_SMALLEST_V1)
    if magic > 0 and size < smallest:
        return np.int64(_BAD_SIZE), smallest, size, magic
    too_wide = size > np.int64(largest_held_bytes)
    if too_wide and not wide_batch_awaited:
        return np.int64(_BATCH_TOO_WIDE), size, size, magic
    if (not too_wide and size > held) or held < min(size, np.int64(_SMALLEST_V2)):
        return np.int64(_MORE_BYTES), min(size, np.int64(largest_held_bytes)), size, magic
    return np.int64(_GO_ON), none, size, magic


@native_inline
def _checksummed(at: Word, size: Word, magic: Word, file_crc: Word) -> tuple[Word, Word, Word]:
    """(stop, checksum computed, CRC-32C of the file up to its end) of the batch at address `at`.

    What its checksum covers is read once: the file's follows from it.
    """
    if magic == np.int64(2):
        body = at + np.int64(_CRC_FROM_V2)
        computed = np.int64(crc32c(body, at + size, np.uint32(0)))
        stored = np.int64(load_be_u32(at + np.int64(_CRC)))
        file_crc = np.int64(crc32c_combined(crc32c(at, body, file_crc), computed, at + size - body))
    else:
        computed = np.int64(crc32_ieee(at + np.int64(_CRC_FROM_LEGACY), at + size, np.uint32(0)))
        stored = np.int64(load_be_u32(at + np.int64(_LEGACY_CRC)))
        file_crc = np.int64(crc32c(at, at + size, file_crc))
    return (np.int64(_GO_ON) if computed == stored else np.int64(_BAD_CRC)), computed, file_crc


@native_inline
def _plausible(at: Word, magic: Word, smallest: Word, largest: Word) -> tuple[Word, Word, Word]:
    """Offsets, count and codec of the batch at address `at`, judged: (stop, detail, last offset)."""
    base = load_be_i64(at)
    current = magic == np.int64(2)
    delta = np.int64(load_be_i32(at + np.int64(_LAST_OFFSET_DELTA))) if current else np.int64(0)
    if base < smallest:
        return np.int64(_BAD_BASE_OFFSET), base, base
    if delta < 0:
        return np.int64(_BAD_DELTA), delta, base
    if base > largest - delta:
        return np.int64(_BAD_LAST_OFFSET), base, base
    codec_at = at + (np.int64(_CODEC) if current else np.int64(_LEGACY_ATTRIBUTES))
    codec = np.int64(load_u8(codec_at)) & np.int64(_CODEC_MASK)
    if codec > (np.int64(_LAST_CODEC) if current else np.int64(_LAST_LEGACY_CODEC)):
        return np.int64(_BAD_CODEC), codec, base
    count = np.int64(load_be_i32(at + np.int64(_RECORD_COUNT))) if current else np.int64(0)
    if count < 0 or count > delta + np.int64(1):
        return np.int64(_BAD_COUNT), count, base
    return np.int64(_GO_ON), np.int64(0), base + delta


@native
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
    check_crc: Word,
    largest_held_bytes: Word,
    wide_batch_file_crc: Word,
    file_crc: Word,
) -> tuple[Word, Word, Word, Word, Word, Word]:
    """Walk the batches that lie whole within `buffer[begin:end]`, one row of the columns each.

    Args:
        buffer: uint8; its byte `begin` is byte `file_position` of the file.
        wide, words, halves, bytes_: column blocks int64[8, n], int32[6, n], int16[2, n], int8[2, n], filled from `row` on.
        smallest_offset, largest_offset: what base and last offset of the next batch must lie between.
        largest_held_bytes: batches above this size are not expected in the buffer: the walk stops at them.
        wide_batch_file_crc: if the first batch is such a one, whose checksum is known to be right: the file's CRC-32C up to its
            end. -1: not known.
        file_crc: CRC-32C of the file up to `file_position`.
    Returns: position in the buffer, rows filled, smallest offset for the next batch, the `Stop`, its detail, the file's CRC-32C
        up to the position. It means nothing without `check_crc`.
    """
    origin = address_of(buffer)
    first = origin + np.int64(begin)
    at = first
    limit = origin + np.int64(end)
    row = np.int64(row)
    rows = np.int64(wide.shape[1])
    smallest = np.int64(smallest_offset)
    known_crc, crc = np.int64(wide_batch_file_crc), np.int64(file_crc)
    stop, detail = np.int64(_COLUMNS_FULL), np.int64(0)
    while row < rows:
        stop, detail, size, magic = _sized(at, limit - at, np.int64(largest_held_bytes), known_crc >= 0)
        if stop >= 0:
            break
        too_wide = size > np.int64(largest_held_bytes)
        crc_behind = known_crc
        if check_crc and not too_wide:
            stop, detail, crc_behind = _checksummed(at, size, magic, crc)
            if stop >= 0:
                break
        stop, detail, last = _plausible(at, magic, smallest, np.int64(largest_offset))
        if stop >= 0:
            break
        wide[POSITION, row] = np.int64(file_position) + at - first
        if magic == np.int64(2):
            held = np.int64(0) if too_wide else size
            write_batch(at, size, last, held, row, wide, words, halves, bytes_)
        else:
            write_message(at, size, magic, row, wide, words, halves, bytes_)
        smallest = last + np.int64(1)
        known_crc, crc = np.int64(-1), crc_behind
        row += np.int64(1)
        at += size
        stop, detail = np.int64(_COLUMNS_FULL), np.int64(0)
    return at - origin, row, smallest, stop, detail, crc
