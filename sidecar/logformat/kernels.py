"""The walk over batch headers as one native loop: checks every batch and writes its header into columns.

Called through `batches.SegmentScanner`, which knows files; this module knows a buffer and nothing outside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from producer_state.compiling import native, native_inline
from sidecar.logformat.columns import POSITION
from sidecar.logformat.crc.crc32c import crc32_ieee, crc32c
from sidecar.logformat.header_rows import write_batch, write_message
from sidecar.logformat.headers import (
    BATCH_HEADER,
    CRC_FROM,
    MAGIC_POSITION,
    MESSAGE_HEADER,
    PREFIX_BYTES,
    SIZE_POSITION,
    SMALLEST_MESSAGE_BYTES,
    SMALLEST_PREFIX_BYTES,
    Codec,
)
from sidecar.logformat.loads import Word, address_of, load_be_i32, load_be_i64, load_be_u32, load_i8, load_u8
from sidecar.logformat.walk_stop import Stop

# numba takes module-level ints as constants; members of an IntEnum are plain ints here.
_GO_ON = -1
_COLUMNS_FULL, _MORE_BYTES, _BATCH_TOO_WIDE = (int(stop) for stop in list(Stop)[:3])
_BAD_SIZE, _BAD_MAGIC, _BAD_BASE_OFFSET, _BAD_LAST_OFFSET, _BAD_DELTA, _BAD_COUNT, _BAD_CODEC, _BAD_CRC = (
    int(stop) for stop in list(Stop)[3:]
)

_SMALLEST_V0, _SMALLEST_V1, _SMALLEST_V2 = SMALLEST_MESSAGE_BYTES
_CRC_FROM_LEGACY, _CRC_FROM_V2 = CRC_FROM[0], CRC_FROM[2]
_CODEC_MASK = 0x07
_LAST_LEGACY_CODEC, _LAST_CODEC = int(Codec.LZ4), int(Codec.ZSTD)
_LEGACY_CRC = MESSAGE_HEADER.offset_of("crc")
_LEGACY_ATTRIBUTES = MESSAGE_HEADER.offset_of("attributes")
_CRC = BATCH_HEADER.offset_of("crc")
_CODEC = BATCH_HEADER.offset_of("attributes") + 1  # big-endian: the low byte is the second
_LAST_OFFSET_DELTA = BATCH_HEADER.offset_of("last_offset_delta")
_RECORD_COUNT = BATCH_HEADER.offset_of("record_count")


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
def _checksummed(at: Word, size: Word, magic: Word, known_crc: Word) -> tuple[Word, Word]:
    """(stop, checksum computed) of the batch at address `at`; `known_crc` is -1 or its checksum."""
    computed = np.int64(known_crc)
    stored = np.int64(load_be_u32(at + (np.int64(_CRC) if magic == np.int64(2) else np.int64(_LEGACY_CRC))))
    if computed < 0 and magic == np.int64(2):
        computed = np.int64(crc32c(at + np.int64(_CRC_FROM_V2), at + size, np.uint32(0)))
    elif computed < 0:
        computed = np.int64(crc32_ieee(at + np.int64(_CRC_FROM_LEGACY), at + size, np.uint32(0)))
    return (np.int64(_GO_ON) if computed == stored else np.int64(_BAD_CRC)), computed


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
    row = np.int64(row)
    rows = np.int64(wide.shape[1])
    smallest = np.int64(smallest_offset)
    known_crc = np.int64(wide_batch_crc)
    stop, detail = np.int64(_COLUMNS_FULL), np.int64(0)
    while row < rows:
        stop, detail, size, magic = _sized(at, limit - at, np.int64(largest_held_bytes), known_crc >= 0)
        if stop >= 0:
            break
        too_wide = size > np.int64(largest_held_bytes)
        if check_crc:
            stop, detail = _checksummed(at, size, magic, known_crc if too_wide else np.int64(-1))
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
        known_crc = np.int64(-1)
        row += np.int64(1)
        at += size
        stop, detail = np.int64(_COLUMNS_FULL), np.int64(0)
    return at - origin, row, smallest, stop, detail
