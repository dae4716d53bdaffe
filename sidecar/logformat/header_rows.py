"""One row of header columns for one batch, written natively from bytes that have been checked.

The columns of a width share one block, so that a kernel takes four arrays instead of eighteen.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from producer_state.compiling import native, native_inline
from producer_state.facts import MALFORMED_MARKER, NO_MARKER
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
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    SIZE,
)
from sidecar.logformat.headers import BATCH_HEADER, MESSAGE_HEADER, TIMESTAMPED_MESSAGE_HEADER, BatchFlag, Codec
from sidecar.logformat.loads import Word, load_be_i16, load_be_i32, load_be_i64, load_be_u32, load_u8
from sidecar.logformat.markers import read_marker

_CODEC_MASK = 0x07
_NO_CODEC = int(Codec.NONE)
_CONTROL, _LOG_APPEND_TIME = int(BatchFlag.CONTROL), int(BatchFlag.LOG_APPEND_TIME)
_BATCH_HEADER_BYTES = BATCH_HEADER.size_bytes
_LEGACY_CRC = MESSAGE_HEADER.offset_of("crc")
_LEGACY_ATTRIBUTES = MESSAGE_HEADER.offset_of("attributes")
_LEGACY_TIMESTAMP = TIMESTAMPED_MESSAGE_HEADER.offset_of("timestamp")
_LEADER_EPOCH = BATCH_HEADER.offset_of("leader_epoch")
_CRC = BATCH_HEADER.offset_of("crc")
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
