"""Batches made of others as native loops: rebuilt with the records that stay, or emptied, and sealed."""

from __future__ import annotations

from typing import Any

import numpy as np

from producer_state.facts import CONTROL
from sidecar.compaction.compiling import native, native_inline
from sidecar.compaction.record_walk import behind_record, read_record
from sidecar.compaction.rewrite_places import NEW_HORIZON_MS, NOTHING_LEFT, NOW_MS, UNCHANGED, UNDECODABLE
from sidecar.compaction.rules import NO_HORIZON_MS
from sidecar.logformat.crc.crc32c import crc32c
from sidecar.logformat.headers import BATCH_HEADER, CODEC_MASK, CRC_FROM, PREFIX_BYTES, BatchFlag
from sidecar.logformat.loads import (
    Word,
    address_of,
    copy,
    load_be_i16,
    load_be_i32,
    load_be_i64,
    load_u8,
    store_be_i16,
    store_be_i32,
    store_be_i64,
    store_be_u32,
    store_byte,
)

_HEADER_BYTES = BATCH_HEADER.size_bytes
_BATCH_LENGTH, _LEADER_EPOCH = BATCH_HEADER.offset_of("batch_length"), BATCH_HEADER.offset_of("leader_epoch")
_MAGIC, _CRC = BATCH_HEADER.offset_of("magic"), BATCH_HEADER.offset_of("crc")
_ATTRIBUTES, _LAST_DELTA = BATCH_HEADER.offset_of("attributes"), BATCH_HEADER.offset_of("last_offset_delta")
_BASE_TIMESTAMP, _MAX_TIMESTAMP = BATCH_HEADER.offset_of("base_timestamp"), BATCH_HEADER.offset_of("max_timestamp")
_PRODUCER_ID, _PRODUCER_EPOCH = BATCH_HEADER.offset_of("producer_id"), BATCH_HEADER.offset_of("producer_epoch")
_BASE_SEQUENCE, _RECORD_COUNT = BATCH_HEADER.offset_of("base_sequence"), BATCH_HEADER.offset_of("record_count")
_CRC_FROM, _LEGACY_CRC_FROM = CRC_FROM[2], CRC_FROM[0]
_PREFIX_BYTES = PREFIX_BYTES
_CODEC_MASK, _CONTROL = int(CODEC_MASK), int(CONTROL)
_APPENDED, _TRANSACTIONAL, _HORIZON = (
    int(flag) for flag in (BatchFlag.LOG_APPEND_TIME, BatchFlag.TRANSACTIONAL, BatchFlag.DELETE_HORIZON)
)
_KNOWN_FLAGS = _CODEC_MASK | _APPENDED | _TRANSACTIONAL | _CONTROL
_NONE = -(2**63)
_NO_HORIZON = NO_HORIZON_MS


@native
def seal(at: Word, size: Word) -> None:
    """Write length and checksum into the batch of `size` bytes at address `at`."""
    store_be_i32(np.int64(at) + np.int64(_BATCH_LENGTH), np.int32(np.int64(size) - np.int64(_PREFIX_BYTES)))
    crc = crc32c(np.int64(at) + np.int64(_CRC_FROM), np.int64(at) + np.int64(size), np.uint32(0))
    store_be_u32(np.int64(at) + np.int64(_CRC), np.uint32(crc))


@native
def seal_buffer(buffer: Any, size: Word) -> None:
    """The same for a batch at the begin of a uint8 array."""
    seal(address_of(buffer), size)


@native_inline
def _put_varint(at: Word, value: Word) -> Word:
    """Write a zigzag varint; the address behind it."""
    raw = (np.uint64(value) << np.uint64(1)) ^ np.uint64(value >> np.int64(63))
    while raw > np.uint64(0x7F):
        store_byte(at, np.uint8((raw & np.uint64(0x7F)) | np.uint64(0x80)))
        raw >>= np.uint64(7)
        at += np.int64(1)
    store_byte(at, np.uint8(raw))
    return at + np.int64(1)


@native_inline
def _varint_bytes(value: Word) -> Word:
    raw = ((np.uint64(value) << np.uint64(1)) ^ np.uint64(value >> np.int64(63))) >> np.uint64(7)
    size = np.int64(1)
    while raw != np.uint64(0):
        raw >>= np.uint64(7)
        size += np.int64(1)
    return size


@native
def _choose(
    at: Word, end: Word, count: Word, kept: Word, base_ms: Word, append_ms: Word, appended: Word, expired: Word
) -> tuple[Word, Word, Word, Word]:
    """Settle which records stay: (how many or -1, whether one has no value, first and greatest timestamp).

    `kept`: address of a byte for each record, 0 where it has lost; `expired`: those without value go too.
    """
    staying, first_ms, largest_ms = np.int64(0), np.int64(0), np.int64(_NONE)
    tombstone = False
    at = np.int64(at)
    for index in range(np.int64(count)):
        if load_u8(kept + index) == np.uint8(0):
            behind = behind_record(at, np.int64(end))
            if behind < np.int64(0):
                return np.int64(-1), False, np.int64(0), np.int64(0)
        else:
            behind, delta_ms, _, _, _, _, value_bytes, _, _ = read_record(at, np.int64(end))
            if behind < np.int64(0):
                return np.int64(-1), False, np.int64(0), np.int64(0)
            if value_bytes < np.int64(0) and expired:
                store_byte(kept + index, np.uint8(0))
            else:
                timestamp_ms = append_ms if appended else base_ms + delta_ms
                if staying == np.int64(0):
                    first_ms = timestamp_ms
                largest_ms = max(largest_ms, timestamp_ms)
                tombstone = tombstone or value_bytes < np.int64(0)
                staying += np.int64(1)
        at = behind
    if at != np.int64(end):
        return np.int64(-1), False, np.int64(0), np.int64(0)
    return staying, tombstone, first_ms, largest_ms


@native
def _copy_records(
    at: Word, end: Word, staying: Word, kept: Word, to: Word, old_base_ms: Word, new_base_ms: Word, append_ms: Word,
    appended: Word,
) -> Word:  # fmt: skip
    """Write the records that stay, with timestamps relative to the new base; the address behind them."""
    at, to, index = np.int64(at), np.int64(to), np.int64(0)
    as_they_are = old_base_ms == new_base_ms and not appended
    while staying > np.int64(0):
        if load_u8(kept + index) == np.uint8(0) or as_they_are:
            behind = behind_record(at, np.int64(end))
            if load_u8(kept + index) != np.uint8(0):
                copy(to, at, behind - at)
                to += behind - at
        else:
            behind, delta_ms, rest, _, _, _, _, _, _ = read_record(at, np.int64(end))
            new_delta_ms = (append_ms if appended else old_base_ms + delta_ms) - new_base_ms
            to = _put_varint(to, np.int64(1) + _varint_bytes(new_delta_ms) + behind - rest)
            store_byte(to, np.uint8(0))
            to = _put_varint(to + np.int64(1), new_delta_ms)
            copy(to, rest, behind - rest)
            to += behind - rest
        staying -= np.int64(load_u8(kept + index))
        index += np.int64(1)
        at = behind
    return to


@native
def rebuild_at(
    header: Word, at: Word, end: Word, kept: Word, idle_marker: Word, now_ms: Word, new_horizon_ms: Word, to: Word
) -> tuple[Word, Word]:
    """Rebuild the batch with this header and these records at `to`, unsealed; see `rebuild`. Also how many records stay."""
    attributes = np.int64(load_be_i16(header + np.int64(_ATTRIBUTES)))
    count = np.int64(load_be_i32(header + np.int64(_RECORD_COUNT)))
    base_ms = load_be_i64(header + np.int64(_BASE_TIMESTAMP))
    append_ms = load_be_i64(header + np.int64(_MAX_TIMESTAMP))
    appended = attributes & np.int64(_APPENDED) != np.int64(0)
    has_horizon = attributes & np.int64(_HORIZON) != np.int64(0)
    control = attributes & np.int64(_CONTROL) != np.int64(0)
    expired = has_horizon and not control and now_ms >= base_ms
    staying, tombstone, first_ms, largest_ms = _choose(at, end, count, kept, base_ms, append_ms, appended, expired)
    if staying < np.int64(0):
        return np.int64(UNDECODABLE), np.int64(0)
    if staying == np.int64(0):
        return np.int64(NOTHING_LEFT), staying
    sets_horizon = not has_horizon and (tombstone or idle_marker) and np.int64(new_horizon_ms) != np.int64(_NO_HORIZON)
    if staying == count and not sets_horizon:
        return np.int64(UNCHANGED), staying
    new_base_ms = first_ms
    if sets_horizon:
        new_base_ms = np.int64(new_horizon_ms)
    elif has_horizon:
        new_base_ms = base_ms
    copy(to, header, np.int64(_HEADER_BYTES))
    flags = (attributes & np.int64(_KNOWN_FLAGS)) | (np.int64(_HORIZON) if sets_horizon or has_horizon else np.int64(0))
    store_be_i16(to + np.int64(_ATTRIBUTES), np.int16(flags))
    store_be_i64(to + np.int64(_BASE_TIMESTAMP), new_base_ms)
    store_be_i64(to + np.int64(_MAX_TIMESTAMP), append_ms if appended else largest_ms)
    store_be_i32(to + np.int64(_RECORD_COUNT), np.int32(staying))
    behind = _copy_records(
        at, end, staying, kept, to + np.int64(_HEADER_BYTES), base_ms, new_base_ms, append_ms, appended
    )
    return behind - to, staying


@native
def rebuild(header: Any, body: Any, size: Word, kept: Any, first: Word, out: Any, job: Any) -> tuple[Word, Word]:
    """Rebuild a compressed batch: (bytes written to `out`, unsealed and uncompressed, or what was found; records that stay).

    Args:
        header: uint8, the batch; `body[:size]`: its decompressed records; `kept`: uint8 by record of the split, of which
        `first` is the batch's first; `out`: uint8 with room for size + 61 + 15 bytes a record.
    """
    at = address_of(body)
    written, staying = rebuild_at(
        address_of(header), at, at + np.int64(size), address_of(kept) + np.int64(first), False, job[NOW_MS],
        job[NEW_HORIZON_MS], address_of(out),
    )  # fmt: skip
    return written, staying


@native
def write_empty_at(at: Word, magic: Word, last_offset: Word, max_timestamp_ms: Word, to: Word) -> None:
    """The empty batch that stays of the one at address `at`; a legacy one becomes magic 2 at its last offset.

    Source: DefaultRecordBatch.writeEmptyHeader.
    """
    if magic == np.int64(2):
        copy(to, at, np.int64(_HEADER_BYTES))
        flags = np.int64(load_be_i16(at + np.int64(_ATTRIBUTES))) & np.int64(_APPENDED | _TRANSACTIONAL | _CONTROL)
    else:
        store_be_i64(to, last_offset)
        store_be_i32(to + np.int64(_LEADER_EPOCH), np.int32(-1))
        store_byte(to + np.int64(_MAGIC), np.uint8(2))
        store_be_i32(to + np.int64(_LAST_DELTA), np.int32(0))
        store_be_i64(to + np.int64(_MAX_TIMESTAMP), max_timestamp_ms)
        store_be_i64(to + np.int64(_PRODUCER_ID), np.int64(-1))
        store_be_i16(to + np.int64(_PRODUCER_EPOCH), np.int16(-1))
        store_be_i32(to + np.int64(_BASE_SEQUENCE), np.int32(-1))
        flags = np.int64(0)
    store_be_i16(to + np.int64(_ATTRIBUTES), np.int16(flags))
    store_be_i64(to + np.int64(_BASE_TIMESTAMP), np.int64(-1))
    store_be_i32(to + np.int64(_RECORD_COUNT), np.int32(0))
    seal(to, np.int64(_HEADER_BYTES))


@native
def write_empty(batch: Any, magic: Word, last_offset: Word, max_timestamp_ms: Word, out: Any) -> None:
    """The same for arrays of uint8."""
    write_empty_at(
        address_of(batch), np.int64(magic), np.int64(last_offset), np.int64(max_timestamp_ms), address_of(out)
    )
