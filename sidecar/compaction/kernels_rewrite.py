"""The rewriting of batches as native loops: each is dropped, copied, rebuilt with the records that stay, or emptied.

All settings and counters lie in one int64 array, the job; its places are the constants below.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from producer_state.compiling import native, native_inline
from producer_state.facts import CONTROL
from sidecar.compaction.memory import (
    copy,
    store_be_i16,
    store_be_i32,
    store_be_i64,
    store_be_u32,
    store_byte,
)
from sidecar.compaction.record_walk import behind_record, read_message, read_record
from sidecar.logformat.crc32c import (
    Word,
    address_of,
    crc32_ieee,
    crc32c,
    load_be_i16,
    load_be_i32,
    load_be_i64,
    load_be_u32,
    load_u8,
)
from sidecar.logformat.header_rows import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    CRC,
    LAST_OFFSET,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    SIZE,
)
from sidecar.logformat.headers import BATCH_HEADER, CODEC_MASK, CRC_FROM, PREFIX_BYTES, BatchFlag

(
    NOW_MS,
    NEW_HORIZON_MS,
    CONVERTS_LEGACY,
    KEEPS_LEGACY_TOMBSTONES,
    LAST_POSITION,  # of the batch that ends the output, which stays even if empty; -1: it is in another split
    KEPT_NEXT_OFFSET,  # a batch that ends here stays as well; -1: none
    KEEPS_LEGACY_RECORD,  # the last batch keeps a record, if it is a legacy one, instead of becoming an empty one
    NO_TOMBSTONES,  # the split has none: compressed batches of which all stays need not be decompressed
    OUT_USED,
    OUT_BYTES,
    ORDINAL,
    BATCH,
    VERBATIM,  # batches
    REBUILT,
    EMPTIED,
    DROPPED,
    KEPT_RECORDS,
    LEGACY_LOSERS_KEPT,
    NEEDED,  # bytes that the output must have room for
) = range(19)
JOB_WORDS = 19

ROWS_DONE, NEEDS_PYTHON, OUT_FULL, BAD_RECORD, BAD_CRC = range(5)
"""Why `rewrite_rows` returned."""
NOTHING_LEFT, UNCHANGED, LEFT_TO_PYTHON, UNDECODABLE = -1, -2, -3, -4
"""What `rebuild` found, if below 0, else the bytes it wrote."""
CHANGED_RECORD_BYTES = 15
"""By how much a record can grow: a longer timestamp delta, and a longer length."""

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
    at: Word, end: Word, count: Word, kept: Word, to: Word, old_base_ms: Word, new_base_ms: Word, append_ms: Word,
    appended: Word,
) -> Word:  # fmt: skip
    """Write the records that stay, with timestamps relative to the new base; the address behind them."""
    at, to = np.int64(at), np.int64(to)
    as_they_are = old_base_ms == new_base_ms and not appended
    for index in range(np.int64(count)):
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
        at = behind
    return to


@native
def _rebuild(
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
    sets_horizon = not has_horizon and (tombstone or idle_marker)
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
        at, end, count, kept, to + np.int64(_HEADER_BYTES), base_ms, new_base_ms, append_ms, appended
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
    written, staying = _rebuild(
        address_of(header), at, at + np.int64(size), address_of(kept) + np.int64(first), False, job[NOW_MS],
        job[NEW_HORIZON_MS], address_of(out),
    )  # fmt: skip
    return written, staying


@native
def _write_empty(at: Word, magic: Word, last_offset: Word, max_timestamp_ms: Word, to: Word) -> None:
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
    _write_empty(address_of(batch), np.int64(magic), np.int64(last_offset), np.int64(max_timestamp_ms), address_of(out))


@native_inline
def _is_last(
    ids: Any, offsets: Any, epochs: Any, producer_id: Word, last_offset: Word, epoch: Word, control: Word
) -> Word:
    """Source: Cleaner.cleanInto, checkBatchRetention."""
    low, high = np.int64(0), np.int64(ids.shape[0])
    while low < high:
        middle = (low + high) >> np.int64(1)
        if ids[middle] < producer_id:
            low = middle + np.int64(1)
        else:
            high = middle
    found = low < np.int64(ids.shape[0]) and ids[low] == producer_id and producer_id >= np.int64(0)
    if found and offsets[low] >= np.int64(0):
        found = offsets[low] == last_offset
    elif found:
        found = control and epochs[low] == epoch
    return found


@native
def must_stay(
    ids: Any, offsets: Any, epochs: Any, wide: Any, halves: Any, bytes_: Any, row: Word, job: Any
) -> Word:  # fmt: skip
    """Whether the batch of a row stays even without records: the last of its producer, or of the output."""
    last_offset = wide[LAST_OFFSET, row]
    if wide[POSITION, row] == job[LAST_POSITION] or last_offset + np.int64(1) == job[KEPT_NEXT_OFFSET]:
        return True
    attributes = np.int64(halves[ATTRIBUTES, row])
    control = bytes_[MAGIC, row] == np.int8(2) and attributes & np.int64(_CONTROL) != np.int64(0)
    return _is_last(ids, offsets, epochs, wide[PRODUCER_ID, row], last_offset, halves[PRODUCER_EPOCH, row], control)


@native_inline
def _crc_agrees(at: Word, size: Word, magic: Word, crc: Word) -> Word:
    if magic == np.int64(2):
        return np.int64(crc32c(at + np.int64(_CRC_FROM), at + size, np.uint32(0))) == crc
    return np.int64(crc32_ieee(at + np.int64(_LEGACY_CRC_FROM), at + size, np.uint32(0))) == crc


@native_inline
def _any(kept: Word, count: Word) -> Word:
    """How many of `count` bytes are not 0."""
    found = np.int64(0)
    for index in range(count):
        found += np.int64(load_u8(kept + index))
    return found


@native
def _empty(
    at: Word, size: Word, magic: Word, crc: Word, last_offset: Word, max_timestamp_ms: Word, out: Any, job: Any
) -> None:
    """Write the empty batch that stays of one; it may be empty already."""
    to = address_of(out) + job[OUT_USED]
    _write_empty(at, magic, last_offset, max_timestamp_ms, to)
    same = size == np.int64(_HEADER_BYTES) and magic == np.int64(2)
    same = same and np.int64(load_be_u32(to + np.int64(_CRC))) == crc
    job[VERBATIM if same else EMPTIED] += 1
    job[OUT_USED] += np.int64(_HEADER_BYTES)


@native
def _settle(at: Word, size: Word, magic: Word, crc: Word, written: Word, staying: Word, out: Any, job: Any) -> Word:
    """Copy a batch that is unchanged, or seal what was written of it; False if its checksum is wrong."""
    if not _crc_agrees(at, size, magic, crc):
        return False
    to = address_of(out) + job[OUT_USED]
    job[KEPT_RECORDS] += staying
    if written == np.int64(UNCHANGED):
        copy(to, at, size)
        job[OUT_USED] += size
        job[VERBATIM] += 1
    else:
        seal(to, written)
        job[OUT_USED] += written
        job[REBUILT] += 1
    return True


@native_inline
def _winners(control: Word, gone: Word, aborted: Word, kept_at: Word, count: Word) -> Word:
    """How many records of a batch may stay; those of a control batch stay or go together."""
    staying = np.int64(0)
    if control:
        for index in range(count):
            store_byte(kept_at + index, np.uint8(0) if gone else np.uint8(1))
        staying = np.int64(0) if gone else count
    elif not aborted:
        staying = _any(kept_at, count)
    return staying


@native_inline
def _left_of(
    at: Word, size: Word, count: Word, magic: Word, codec: Word, staying: Word, idle_marker: Word, kept_at: Word, to: Word,
    job: Any,
) -> tuple[Word, Word]:  # fmt: skip
    """What is left of a batch of which so many records may stay, as `rebuild` says it or `LEFT_TO_PYTHON`; and how many do."""
    written = np.int64(NOTHING_LEFT)
    if staying > np.int64(0) and magic < np.int64(2):
        tombstone = read_message(at, at + size)[6] < np.int64(0)
        if not tombstone or job[KEEPS_LEGACY_TOMBSTONES] != 0:
            written = np.int64(LEFT_TO_PYTHON) if job[CONVERTS_LEGACY] != 0 else np.int64(UNCHANGED)
    elif staying > np.int64(0) and codec != np.int64(0):
        # Tombstones can change a batch of which all wins: without any, there is no need to look.
        whole = staying == count and job[NO_TOMBSTONES] != 0
        written = np.int64(UNCHANGED) if whole else np.int64(LEFT_TO_PYTHON)
    elif staying > np.int64(0):
        written, staying = _rebuild(
            at, at + np.int64(_HEADER_BYTES), at + size, kept_at, idle_marker, job[NOW_MS], job[NEW_HORIZON_MS], to
        )
    return written, staying


@native
def rewrite_rows(
    buffer: Any, file_position: Word, wide: Any, words: Any, halves: Any, bytes_: Any, row: Word, rows: Word,
    verdicts: Any, kept: Any, ids: Any, offsets: Any, epochs: Any, out: Any, job: Any,
) -> tuple[Word, Word]:  # fmt: skip
    """Rewrite batches `[row, rows)` into `out` from `job[OUT_USED]` on.

    Args:
        buffer, columns: as for `scan_rows`.
        verdicts: uint8 by batch of the split, or of length 0; `kept`: uint8 by record of the split, not 0 for winners.
        ids, offsets, epochs: the producers of LastBatches.
    Returns: the row it stopped at, and why: a row that needs Python has not been dealt with.
    """
    origin = address_of(buffer) - np.int64(file_position)
    target, kept_at = address_of(out), address_of(kept)
    row, stop = np.int64(row), np.int64(ROWS_DONE)
    judged = verdicts.shape[0] > 0
    while row < np.int64(rows):
        at, crc = origin + wide[POSITION, row], wide[CRC, row]
        size, count = np.int64(words[SIZE, row]), np.int64(words[RECORD_COUNT, row])
        magic, attributes = np.int64(bytes_[MAGIC, row]), np.int64(halves[ATTRIBUTES, row])
        codec, first = attributes & np.int64(_CODEC_MASK), job[ORDINAL]
        needed = size + np.int64(_HEADER_BYTES) + np.int64(CHANGED_RECORD_BYTES) * max(count, np.int64(1))
        if needed > job[OUT_BYTES] - job[OUT_USED]:
            job[NEEDED] = needed
            stop = np.int64(OUT_FULL)
            break
        if magic < np.int64(2) and codec != np.int64(0):
            stop = np.int64(NEEDS_PYTHON)  # only decompression tells how many records it has
            break
        # More than was scanned: the source has changed.
        if count > np.int64(kept.shape[0]) - first or (judged and job[BATCH] >= np.int64(verdicts.shape[0])):
            stop = np.int64(BAD_RECORD)
            break
        control = magic == np.int64(2) and attributes & np.int64(_CONTROL) != np.int64(0)
        idle = judged and verdicts[job[BATCH]] != np.uint8(0)
        gone = idle and attributes & np.int64(_HORIZON) != np.int64(0) and wide[BASE_TIMESTAMP, row] <= job[NOW_MS]
        staying = _winners(control, gone, idle, kept_at + first, count)
        written, staying = _left_of(
            at, size, count, magic, codec, staying, control and idle, kept_at + first, target + job[OUT_USED], job
        )
        if written == np.int64(LEFT_TO_PYTHON) or written == np.int64(UNDECODABLE):
            stop = np.int64(NEEDS_PYTHON) if written == np.int64(LEFT_TO_PYTHON) else np.int64(BAD_RECORD)
            break
        if written == np.int64(NOTHING_LEFT) and must_stay(ids, offsets, epochs, wide, halves, bytes_, row, job):
            if magic < np.int64(2) and job[KEEPS_LEGACY_RECORD] != 0 and job[CONVERTS_LEGACY] == 0:
                written, staying = np.int64(UNCHANGED), np.int64(1)
                job[LEGACY_LOSERS_KEPT] += 1
            else:
                _empty(at, size, magic, crc, wide[LAST_OFFSET, row], wide[MAX_TIMESTAMP, row], out, job)
        elif written == np.int64(NOTHING_LEFT):
            job[DROPPED] += 1
        if written != np.int64(NOTHING_LEFT) and not _settle(at, size, magic, crc, written, staying, out, job):
            stop = np.int64(BAD_CRC)
            break
        job[ORDINAL] = first + count
        job[BATCH] += 1
        row += np.int64(1)
    return row, stop
