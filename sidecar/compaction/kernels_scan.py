"""The scan as native loops: decode records, hash their keys, enter them into the key table.

All settings and counters lie in one int64 array, the task; its places are the constants below.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from producer_state.compiling import native, native_inline
from producer_state.facts import CONTROL
from sidecar.compaction.kernels_table import (
    ENTRY_WORDS,
    HASH_1,
    KEY_AT,
    KEY_BYTES,
    PAYLOAD,
    SORT_KEY,
    STAGED_ENTRIES,
    WITH_KEY,
    WORD_BYTES,
    insert,
    slot_bytes,
)
from sidecar.compaction.memory import copy, load_byte, load_int, load_word, prefetch, store_int, store_word
from sidecar.compaction.record_walk import behind_headers, read_message, read_record
from sidecar.compaction.siphash import siphash
from sidecar.logformat.crc32c import Word, address_of, crc32_ieee, load_be_i64, load_be_u32
from sidecar.logformat.header_rows import (
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
from sidecar.logformat.headers import BATCH_HEADER, CODEC_MASK, MAGIC_POSITION, MESSAGE_HEADER, BatchFlag

(
    STRATEGY,  # 0 offset, 1 timestamp, 2 header
    HASH_KEY_0,
    HASH_KEY_1,
    SPLIT,
    SLOTS,
    SHIFT,
    LARGEST_USED,
    WORDS,
    TABLE,  # addresses of memory that the caller holds
    STAGING,
    NAME,
    NAME_BYTES,
    ARENA,
    ARENA_BYTES,
    ARENA_USED,
    USED,
    STAGED,
    ORDINAL,
    BATCH,
    COMPETING,  # records with a key
    UNKEYED,
    TOMBSTONES,
    MALFORMED,
    FIRST_MALFORMED,  # offset of the first record with a malformed version, -1 if there is none
    EMPTIED,  # data batches without records
    BAD_AT,  # position of what does not decode, within the batch or its decompressed records
) = range(26)
TASK_WORDS = 26

TIMESTAMP_STRATEGY, HEADER_STRATEGY = 1, 2
ROWS_DONE, NEEDS_BODY, TABLE_FULL, BAD_RECORD = range(4)
"""Why `scan_rows` returned."""

_HEADER_BYTES = BATCH_HEADER.size_bytes
_CONTROL, _LOG_APPEND_TIME = int(CONTROL), int(BatchFlag.LOG_APPEND_TIME)
_CODEC_MASK = int(CODEC_MASK)
_ENTRY_BYTES = ENTRY_WORDS * WORD_BYTES
_STAGED_ENTRIES = STAGED_ENTRIES
_VERSION_BYTES = 8
_LEGACY_CRC = MESSAGE_HEADER.offset_of("crc")
_LEGACY_ATTRIBUTES = MESSAGE_HEADER.offset_of("attributes")


@native
def _flush(task: Word) -> None:
    table, slots = load_int(task + 8 * TABLE), load_int(task + 8 * SLOTS)
    shift, words = load_int(task + 8 * SHIFT), load_int(task + 8 * WORDS)
    entry = load_int(task + 8 * STAGING)
    used = np.int64(0)
    for _ in range(load_int(task + 8 * STAGED)):
        if words == np.int64(WITH_KEY):
            # A key that is new must outlive the window it lies in; one that is known leaves its copy's place to the next.
            room = load_int(task + 8 * ARENA) + load_int(task + 8 * ARENA_USED)
            size = load_int(entry + KEY_BYTES)
            copy(room, load_int(entry + KEY_AT), size)
            store_int(entry + KEY_AT, room)
            new = insert(entry, table, slots, np.int64(0), shift, words)
            store_int(task + 8 * ARENA_USED, load_int(task + 8 * ARENA_USED) + new * size)
            used += new
        else:
            used += insert(entry, table, slots, np.int64(0), shift, words)
        entry += np.int64(_ENTRY_BYTES)
    store_int(task + 8 * USED, load_int(task + 8 * USED) + used)
    store_int(task + 8 * STAGED, np.int64(0))


@native_inline
def _stage(task: Word, key_at: Word, key_bytes: Word, payload: Word, sort: Word) -> None:
    if load_int(task + 8 * STAGED) == np.int64(_STAGED_ENTRIES):
        _flush(task)
    hash_0, hash_1 = siphash(key_at, key_bytes, load_word(task + 8 * HASH_KEY_0), load_word(task + 8 * HASH_KEY_1))
    staged = load_int(task + 8 * STAGED)
    slot = np.int64(hash_0 >> np.uint64(load_int(task + 8 * SHIFT)))
    prefetch(load_int(task + 8 * TABLE) + slot * slot_bytes(load_int(task + 8 * WORDS)))
    entry = load_int(task + 8 * STAGING) + staged * np.int64(_ENTRY_BYTES)
    store_word(entry, hash_0)
    store_word(entry + HASH_1, hash_1)
    store_word(entry + PAYLOAD, payload)
    store_int(entry + SORT_KEY, sort)
    store_int(entry + KEY_AT, key_at)
    store_int(entry + KEY_BYTES, key_bytes)
    store_int(task + 8 * STAGED, staged + np.int64(1))


@native_inline
def _add(task: Word, at: Word, amount: Word) -> None:
    store_int(task + np.int64(8) * np.int64(at), load_int(task + np.int64(8) * np.int64(at)) + amount)


@native
def _version(task: Word, value_at: Word, value_bytes: Word, offset: Word) -> tuple[Word, Word]:
    """(1, version), or (0, 0) where the record has none; a malformed one is counted."""
    if value_at == np.int64(0):
        return np.uint64(0), np.int64(0)
    if value_bytes == np.int64(_VERSION_BYTES):
        return np.uint64(1), load_be_i64(value_at)
    _add(task, MALFORMED, np.int64(1))
    if load_int(task + 8 * FIRST_MALFORMED) < 0:
        store_int(task + 8 * FIRST_MALFORMED, offset)
    return np.uint64(0), np.int64(0)


@native
def _records(
    at: Word, end: Word, count: Word, base_offset: Word, last_delta: Word, base_ms: Word, append_ms: Word,
    appended: Word, task: Word,
) -> Word:  # fmt: skip
    """Enter all records of a batch; 0, or the address of the first that does not decode."""
    strategy = load_int(task + 8 * STRATEGY)
    payload = (np.uint64(load_int(task + 8 * SPLIT)) << np.uint64(32)) + np.uint64(load_int(task + 8 * ORDINAL))
    name_at, name_bytes = load_int(task + 8 * NAME), load_int(task + 8 * NAME_BYTES)
    before, unkeyed, tombstones = np.int64(-1), np.int64(0), np.int64(0)
    at, end = np.int64(at), np.int64(end)
    hash_key_0, hash_key_1 = load_word(task + 8 * HASH_KEY_0), load_word(task + 8 * HASH_KEY_1)
    table, shift = load_int(task + 8 * TABLE), np.uint64(load_int(task + 8 * SHIFT))
    distance, staging = slot_bytes(load_int(task + 8 * WORDS)), load_int(task + 8 * STAGING)
    staged = load_int(task + 8 * STAGED)
    for _ in range(np.int64(count)):
        behind, delta_ms, _, offset_delta, key_at, key_bytes, value_bytes, headers, headers_at = read_record(at, end)
        if behind < np.int64(0) or offset_delta <= before or offset_delta > last_delta:
            return at
        before = offset_delta
        value_at, version_bytes = np.int64(0), np.int64(-1)
        if headers > np.int64(0):
            behind_them, value_at, version_bytes = behind_headers(headers_at, behind, headers, name_at, name_bytes)
            if behind_them != behind:
                return at
        payload += np.uint64(1)
        if key_bytes >= np.int64(0):
            versioned, sort = np.uint64(0), np.int64(0)
            if strategy == np.int64(TIMESTAMP_STRATEGY):
                sort = append_ms if appended else base_ms + delta_ms
            elif strategy == np.int64(HEADER_STRATEGY):
                versioned, sort = _version(task, value_at, version_bytes, base_offset + offset_delta)
            if staged == np.int64(_STAGED_ENTRIES):
                store_int(task + 8 * STAGED, staged)
                _flush(task)
                staged = np.int64(0)
            hash_0, hash_1 = siphash(key_at, key_bytes, hash_key_0, hash_key_1)
            prefetch(table + np.int64(hash_0 >> shift) * distance)
            entry = staging + staged * np.int64(_ENTRY_BYTES)
            store_word(entry, hash_0)
            store_word(entry + HASH_1, hash_1)
            store_word(entry + PAYLOAD, payload | (versioned << np.uint64(63)))
            store_int(entry + SORT_KEY, sort)
            store_int(entry + KEY_AT, key_at)
            store_int(entry + KEY_BYTES, key_bytes)
            staged += np.int64(1)
            tombstones += np.int64(1) if value_bytes < np.int64(0) else np.int64(0)
        else:
            unkeyed += np.int64(1)
        at = behind
    store_int(task + 8 * STAGED, staged)
    if at != end:
        return at
    _add(task, ORDINAL, count)
    _add(task, COMPETING, count - unkeyed)
    _add(task, UNKEYED, unkeyed)
    _add(task, TOMBSTONES, tombstones)
    return np.int64(0)


@native
def _message(at: Word, end: Word, wrapper_ms: Word, appended: Word, task: Word) -> Word:
    """Enter one legacy message; the address behind it, or -1."""
    behind, magic, timestamp_ms, key_at, key_bytes, _, value_bytes = read_message(at, end)
    if behind < np.int64(0):
        return np.int64(-1)
    if appended and magic == np.int64(1):
        timestamp_ms = np.int64(wrapper_ms)
    ordinal = load_int(task + 8 * ORDINAL) + np.int64(1)
    store_int(task + 8 * ORDINAL, ordinal)
    if key_bytes < np.int64(0):
        _add(task, UNKEYED, np.int64(1))
        return behind
    sort = timestamp_ms if load_int(task + 8 * STRATEGY) == np.int64(TIMESTAMP_STRATEGY) else np.int64(0)
    payload = (np.uint64(load_int(task + 8 * SPLIT)) << np.uint64(32)) + np.uint64(ordinal)
    _stage(task, key_at, key_bytes, payload, sort)
    _add(task, COMPETING, np.int64(1))
    _add(task, TOMBSTONES, np.int64(1) if value_bytes < np.int64(0) else np.int64(0))
    return behind


@native_inline
def _has_room(task: Word, records: Word, size: Word) -> Word:
    """Whether so many new keys, within so many bytes, would still fit the table."""
    used = load_int(task + 8 * USED) + load_int(task + 8 * STAGED) + records
    arena = np.int64(0)
    if load_int(task + 8 * WORDS) == np.int64(WITH_KEY):
        _flush(task)
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
        if current and skipped:
            task_array[ORDINAL] += count
        elif current and count == 0:
            task_array[EMPTIED] += 1
        elif attributes & np.int64(_CODEC_MASK) != np.int64(0):
            stop = np.int64(NEEDS_BODY)
            break
        else:
            if not _has_room(task, max(count, np.int64(1)), size):
                stop = np.int64(TABLE_FULL)
                break
            appended = attributes & np.int64(_LOG_APPEND_TIME) != np.int64(0)
            if current:
                bad = _records(
                    at + np.int64(_HEADER_BYTES), at + size, count, wide[BASE_OFFSET, row],
                    wide[LAST_OFFSET, row] - wide[BASE_OFFSET, row], wide[BASE_TIMESTAMP, row],
                    wide[MAX_TIMESTAMP, row], appended, task,
                )  # fmt: skip
            else:
                bad = np.int64(0) if _message(at, at + size, np.int64(-1), False, task) >= 0 else at
            if bad != np.int64(0):
                task_array[BAD_AT] = bad - at
                stop = np.int64(BAD_RECORD)
                break
        task_array[BATCH] += 1
        row += np.int64(1)
    _flush(task)
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
    bad = _records(
        at, at + np.int64(size), count, wide[BASE_OFFSET, row], wide[LAST_OFFSET, row] - wide[BASE_OFFSET, row],
        wide[BASE_TIMESTAMP, row], wide[MAX_TIMESTAMP, row], appended, task,
    )  # fmt: skip
    _flush(task)
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
        if behind < 0 or load_byte(at + np.int64(_LEGACY_ATTRIBUTES)) & np.uint8(_CODEC_MASK) != np.uint8(0):
            return np.int64(-1) - (at - begin)
        crc = np.int64(crc32_ieee(at + np.int64(MAGIC_POSITION), behind, np.uint32(0)))
        if crc != np.int64(load_be_u32(at + np.int64(_LEGACY_CRC))):
            return np.int64(-1) - (at - begin)
        count += np.int64(1)
        at = behind
    return count


@native
def scan_messages(body: Any, size: Word, count: Word, wide: Any, halves: Any, row: Word, task_array: Any) -> Word:
    """Enter the `count` messages of a decompressed set, counted before; `ROWS_DONE` or `TABLE_FULL`."""
    task = address_of(task_array)
    if not _has_room(task, np.int64(count), np.int64(size)):
        return np.int64(TABLE_FULL)
    appended = np.int64(halves[ATTRIBUTES, row]) & np.int64(_LOG_APPEND_TIME) != np.int64(0)
    at = address_of(body)
    end = at + np.int64(size)
    for _ in range(np.int64(count)):
        at = _message(at, end, wide[MAX_TIMESTAMP, row], appended, task)
    _flush(task)
    task_array[BATCH] += 1
    return np.int64(ROWS_DONE)
