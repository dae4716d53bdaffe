"""What becomes of each batch of a split, as native loops: dropped, copied, rebuilt with the records that stay, or emptied.

All settings and counters lie in one int64 array, the job; see `rewrite_places`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from producer_state.facts import CONTROL
from sidecar.compaction.compiling import native, native_inline
from sidecar.compaction.kernels.batches import rebuild_at, seal, write_empty_at
from sidecar.compaction.record_walk import read_message
from sidecar.compaction.rewrite_places import (
    BAD_CRC,
    BAD_RECORD,
    BATCH,
    CHANGED_RECORD_BYTES,
    CONVERTS_LEGACY,
    DROPPED,
    EMPTIED,
    KEEPS_LEGACY_TOMBSTONES,
    KEPT_NEXT_OFFSET,
    KEPT_RECORDS,
    LAST_POSITION,
    LEFT_TO_PYTHON,
    NEEDED,
    NEEDS_PYTHON,
    NEW_HORIZON_MS,
    NO_TOMBSTONES,
    NOTHING_LEFT,
    NOW_MS,
    ORDINAL,
    OUT_BYTES,
    OUT_FULL,
    OUT_USED,
    REBUILT,
    ROWS_DONE,
    UNCHANGED,
    UNDECODABLE,
    VERBATIM,
)
from sidecar.logformat.columns import (
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
from sidecar.logformat.crc.crc32c import crc32_ieee, crc32c
from sidecar.logformat.headers import BATCH_HEADER, CODEC_MASK, CRC_FROM, BatchFlag
from sidecar.logformat.loads import Word, address_of, copy, load_be_u32, load_u8, store_byte

_HEADER_BYTES = BATCH_HEADER.size_bytes
_MAGIC, _CRC = BATCH_HEADER.offset_of("magic"), BATCH_HEADER.offset_of("crc")
_CRC_FROM, _LEGACY_CRC_FROM = CRC_FROM[2], CRC_FROM[0]
_CODEC_MASK, _CONTROL = int(CODEC_MASK), int(CONTROL)
_APPENDED, _TRANSACTIONAL, _HORIZON = (
    int(flag) for flag in (BatchFlag.LOG_APPEND_TIME, BatchFlag.TRANSACTIONAL, BatchFlag.DELETE_HORIZON)
)


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
    write_empty_at(at, magic, last_offset, max_timestamp_ms, to)
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
    """What is left of a batch of which so many records may stay, as `rebuild` says it or `LEFT_TO_PYTHON`; and how many do.

    Tombstones and idle markers get a horizon unless the new one is `NO_HORIZON_MS`.
    """
    written = np.int64(NOTHING_LEFT)
    if staying > np.int64(0) and magic < np.int64(2):
        tombstone = read_message(at, at + size)[6] < np.int64(0)
        if not tombstone or job[KEEPS_LEGACY_TOMBSTONES] != 0:
            written = np.int64(LEFT_TO_PYTHON) if job[CONVERTS_LEGACY] != 0 else np.int64(UNCHANGED)
    elif staying > np.int64(0) and codec != np.int64(0):
        # Tombstones can change a batch of which all wins: without any, there is no need to check.
        whole = staying == count and job[NO_TOMBSTONES] != 0
        written = np.int64(UNCHANGED) if whole else np.int64(LEFT_TO_PYTHON)
    elif staying > np.int64(0):
        written, staying = rebuild_at(
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
        # More than was scanned: the source has changed.
        if count > np.int64(kept.shape[0]) - first or (judged and job[BATCH] >= np.int64(verdicts.shape[0])):
            stop = np.int64(BAD_RECORD)
            break
        needed = size + np.int64(_HEADER_BYTES) + np.int64(CHANGED_RECORD_BYTES) * max(count, np.int64(1))
        if needed > job[OUT_BYTES] - job[OUT_USED]:
            job[NEEDED] = needed
            stop = np.int64(OUT_FULL)
            break
        if magic < np.int64(2) and codec != np.int64(0):
            stop = np.int64(NEEDS_PYTHON)  # only decompression shows how many records it has
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
            if not _crc_agrees(at, size, magic, crc):
                stop = np.int64(BAD_CRC)
                break
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
