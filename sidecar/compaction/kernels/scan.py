"""The batches of a split as native loops: every record enters the key table, and what else matters is counted.

All settings and counters lie in one int64 array, the task; see `scan_places`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from producer_state.facts import CONTROL
from sidecar.compaction.compiling import native, native_inline
from sidecar.compaction.kernels.entering import enter_message, enter_records, flush
from sidecar.compaction.record_walk import read_message
from sidecar.compaction.scan_places import (
    ARENA_BYTES,
    ARENA_USED,
    BAD_AT,
    BAD_RECORD,
    BATCH,
    COUNTED_ROW,
    DELETED,
    DOUBTFUL_COUNT,
    EMPTIED,
    LARGEST_USED,
    NEEDS_BODY,
    ORDINAL,
    ROWS_DONE,
    STAGED,
    START_OFFSET,
    TABLE_FULL,
    USED,
    WORDS,
)
from sidecar.compaction.table_places import WITH_KEY
from sidecar.logformat.columns import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    LAST_OFFSET,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    RECORD_COUNT,
    SIZE,
)
from sidecar.logformat.crc.crc32c import crc32_ieee
from sidecar.logformat.headers import (
    BATCH_HEADER,
    CODEC_MASK,
    MAGIC_POSITION,
    MESSAGE_HEADER,
    SMALLEST_RECORD_BYTES,
    BatchFlag,
)
from sidecar.logformat.loads import Word, address_of, load_be_i64, load_be_u32, load_int, load_u8

_HEADER_BYTES, _SMALLEST_RECORD = BATCH_HEADER.size_bytes, SMALLEST_RECORD_BYTES
_CONTROL, _LOG_APPEND_TIME = int(CONTROL), int(BatchFlag.LOG_APPEND_TIME)
_CODEC_MASK = int(CODEC_MASK)
_LEGACY_CRC = MESSAGE_HEADER.offset_of("crc")
_LEGACY_ATTRIBUTES = MESSAGE_HEADER.offset_of("attributes")


@native_inline
def _has_room(task: Word, records: Word, size: Word) -> Word:
    """Whether so many new keys, within so many bytes, would still fit the table."""
    used = load_int(task + 8 * USED) + load_int(task + 8 * STAGED) + records
    arena = np.int64(0)
    if load_int(task + 8 * WORDS) == np.int64(WITH_KEY):
        flush(task)
        arena = load_int(task + 8 * ARENA_USED) + size
    return used <= load_int(task + 8 * LARGEST_USED) and arena <= load_int(task + 8 * ARENA_BYTES)


@native
def scan_rows(
    buffer: Any, file_position: Word, wide: Any, words: Any, halves: Any, bytes_: Any, row: Word, rows: Word,
    verdicts: Any, task_array: Any,
) -> tuple[Word, Word]:  # fmt: skip
    """Enter the records of batches `[row, rows)`, whose headers are in the columns and have been checked.

    Args:
        buffer: uint8; its first byte is byte `file_position` of the file, and it holds all those batches.
        verdicts: uint8 by batch of the split, not 0 where a batch is of an aborted transaction; or of length 0.
    Returns: the row it stopped at, and why. The table has all records of the rows before it.
    """
    origin = address_of(buffer) - np.int64(file_position)
    task = address_of(task_array)
    judged = verdicts.shape[0] > 0
    stop = np.int64(ROWS_DONE)
    row = np.int64(row)
    while row < np.int64(rows):
        at = origin + wide[POSITION, row]
        size = np.int64(words[SIZE, row])
        count = np.int64(words[RECORD_COUNT, row])
        attributes = np.int64(halves[ATTRIBUTES, row])
        current = bytes_[MAGIC, row] == np.int8(2)
        skipped = attributes & np.int64(_CONTROL) != np.int64(0)
        if judged and not skipped and task_array[BATCH] < np.int64(verdicts.shape[0]):
            skipped = verdicts[task_array[BATCH]] != np.uint8(0)
        codec = attributes & np.int64(_CODEC_MASK)
        deleted = wide[LAST_OFFSET, row] < task_array[START_OFFSET] and (current or codec == np.int64(0))
        # Before it sizes anything. The body of a compressed batch that competes is decompressed, and its count checked, anyway.
        doubtful = current and count * np.int64(_SMALLEST_RECORD) > size - np.int64(_HEADER_BYTES)
        if doubtful and (skipped or deleted or codec == np.int64(0)) and task_array[COUNTED_ROW] != row:
            stop = np.int64(DOUBTFUL_COUNT)
            break
        if current and skipped:
            task_array[ORDINAL] += count
        elif deleted and count > 0:
            task_array[ORDINAL] += count
            task_array[DELETED] += count
        elif current and count == 0:
            task_array[EMPTIED] += 1
        elif codec != np.int64(0):
            stop = np.int64(NEEDS_BODY)
            break
        else:
            if not _has_room(task, max(count, np.int64(1)), size):
                stop = np.int64(TABLE_FULL)
                break
            appended = attributes & np.int64(_LOG_APPEND_TIME) != np.int64(0)
            if current:
                bad = enter_records(
                    at + np.int64(_HEADER_BYTES), at + size, count, wide[BASE_OFFSET, row],
                    wide[LAST_OFFSET, row] - wide[BASE_OFFSET, row], wide[BASE_TIMESTAMP, row],
                    wide[MAX_TIMESTAMP, row], appended, task,
                )  # fmt: skip
            else:
                bad = np.int64(0) if enter_message(at, at + size, np.int64(-1), False, task) >= 0 else at
            if bad != np.int64(0):
                task_array[BAD_AT] = bad - at
                stop = np.int64(BAD_RECORD)
                break
        task_array[BATCH] += 1
        row += np.int64(1)
    flush(task)
    return row, stop


@native
def scan_body(
    body: Any, size: Word, wide: Any, words: Any, halves: Any, row: Word, task_array: Any
) -> Word:  # fmt: skip
    """Enter the decompressed records `body[:size]` (uint8) of the batch in a row; `ROWS_DONE`, `TABLE_FULL` or `BAD_RECORD`."""
    at, task = address_of(body), address_of(task_array)
    count = np.int64(words[RECORD_COUNT, row])
    if not _has_room(task, count, np.int64(size)):
        return np.int64(TABLE_FULL)
    appended = np.int64(halves[ATTRIBUTES, row]) & np.int64(_LOG_APPEND_TIME) != np.int64(0)
    bad = enter_records(
        at, at + np.int64(size), count, wide[BASE_OFFSET, row], wide[LAST_OFFSET, row] - wide[BASE_OFFSET, row],
        wide[BASE_TIMESTAMP, row], wide[MAX_TIMESTAMP, row], appended, task,
    )  # fmt: skip
    flush(task)
    if bad != np.int64(0):
        task_array[BAD_AT] = bad - at
        return np.int64(BAD_RECORD)
    task_array[BATCH] += 1
    return np.int64(ROWS_DONE)


@native
def count_messages(body: Any, size: Word) -> Word:
    """How many legacy messages the decompressed set holds; their checksums are checked. Below 0: -1 - position of a bad one."""
    begin = address_of(body)
    at, end = begin, begin + np.int64(size)
    count = np.int64(0)
    while at < end:
        behind = read_message(at, end)[0]
        if behind < 0 or load_u8(at + np.int64(_LEGACY_ATTRIBUTES)) & np.uint8(_CODEC_MASK) != np.uint8(0):
            return np.int64(-1) - (at - begin)
        crc = np.int64(crc32_ieee(at + np.int64(MAGIC_POSITION), behind, np.uint32(0)))
        if crc != np.int64(load_be_u32(at + np.int64(_LEGACY_CRC))):
            return np.int64(-1) - (at - begin)
        count += np.int64(1)
        at = behind
    return count


@native
def inner_offsets(body: Any, size: Word) -> tuple[Word, Word, Word]:
    """The offsets within a decompressed legacy set, whose messages were counted before, as they are stored.

    Returns: the first, the last, and the position of the first that does not lie above the one before it, else -1.
    """
    begin = address_of(body)
    at, end = begin, begin + np.int64(size)
    first, last, wrong_at = load_be_i64(at), np.int64(-1), np.int64(-1)
    while at < end:
        offset = load_be_i64(at)
        if offset <= last and wrong_at < 0:
            wrong_at = at - begin
        last = offset
        at = read_message(at, end)[0]
    return first, last, wrong_at


@native
def scan_messages(
    body: Any, size: Word, count: Word, shift: Word, wide: Any, halves: Any, row: Word, task_array: Any
) -> Word:
    """Enter the `count` messages of a decompressed set, counted before; `ROWS_DONE` or `TABLE_FULL`.

    `shift`: what to add to their offsets. Messages below the log start are counted as deleted, and not entered.
    """
    task = address_of(task_array)
    if not _has_room(task, np.int64(count), np.int64(size)):
        return np.int64(TABLE_FULL)
    appended = np.int64(halves[ATTRIBUTES, row]) & np.int64(_LOG_APPEND_TIME) != np.int64(0)
    at = address_of(body)
    end = at + np.int64(size)
    for _ in range(np.int64(count)):
        if load_be_i64(at) + shift < task_array[START_OFFSET]:
            task_array[ORDINAL] += 1
            task_array[DELETED] += 1
            at = read_message(at, end)[0]
        else:
            at = enter_message(at, end, wide[MAX_TIMESTAMP, row], appended, task)
    flush(task)
    task_array[BATCH] += 1
    return np.int64(ROWS_DONE)
