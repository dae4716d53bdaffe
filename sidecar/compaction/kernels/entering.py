"""Records as native loops: decoded, their keys hashed, and entered into the key table a few at a time."""

from __future__ import annotations

import numpy as np

from sidecar.compaction.compiling import native, native_inline
from sidecar.compaction.kernels.siphash import siphash
from sidecar.compaction.kernels.table import insert_in_line, slot_bytes, slot_of
from sidecar.compaction.record_walk import behind_headers, read_message, read_record
from sidecar.compaction.scan_places import (
    ARENA,
    ARENA_USED,
    COMPETING,
    DELETED,
    FIRST_MALFORMED,
    HASH_KEY_0,
    HASH_KEY_1,
    HEADER_STRATEGY,
    MALFORMED,
    NAME,
    NAME_BYTES,
    ORDINAL,
    SHIFT,
    SLOTS,
    SPLIT,
    STAGED,
    STAGING,
    START_OFFSET,
    STRATEGY,
    TABLE,
    TIMESTAMP_STRATEGY,
    TOMBSTONES,
    UNKEYED,
    USED,
    WORDS,
)
from sidecar.compaction.table_places import (
    CACHE_LINE_BYTES,
    ENTRY_WORDS,
    HASH_1,
    KEY_AT,
    KEY_BYTES,
    PAYLOAD,
    SORT_KEY,
    STAGED_ENTRIES,
    WITH_KEY,
    WITH_SORT_KEY,
    WITHOUT_SORT_KEY,
    WORD_BYTES,
)
from sidecar.logformat.loads import Word, copy, load_be_i64, load_int, load_word, prefetch, store_int, store_word

_ENTRY_BYTES = ENTRY_WORDS * WORD_BYTES
_STAGED_ENTRIES = STAGED_ENTRIES
_VERSION_BYTES = 8


@native_inline
def add(task: Word, at: Word, amount: Word) -> None:
    store_int(task + np.int64(8) * np.int64(at), load_int(task + np.int64(8) * np.int64(at)) + amount)


@native_inline
def _enter(task: Word, entry: Word, at: Word, words: Word) -> Word:
    """`insert_in_line`; a key that is new is copied, because it must outlive the window it lies in."""
    key_at, size = load_int(entry + KEY_AT), load_int(entry + KEY_BYTES)
    if words == np.int64(WITH_KEY):
        room = load_int(task + 8 * ARENA) + load_int(task + 8 * ARENA_USED)
        copy(room, key_at, size)
        store_int(entry + KEY_AT, room)
    new = insert_in_line(entry, at, words)
    if words == np.int64(WITH_KEY):
        store_int(entry + KEY_AT, key_at)
        add(task, ARENA_USED, max(new, np.int64(0)) * size)
    return new


@native_inline
def _settle(task: Word, words: Word) -> None:
    """Put what is staged into the table. What finds its cache line full waits until the next line is there."""
    table, slots, shift = load_int(task + 8 * TABLE), load_int(task + 8 * SLOTS), load_int(task + 8 * SHIFT)
    staging, staged = load_int(task + 8 * STAGING), load_int(task + 8 * STAGED)
    passed_bytes, used = np.int64(0), np.int64(0)
    while staged > np.int64(0):
        entry = waiting = staging
        following_bytes = passed_bytes + np.int64(CACHE_LINE_BYTES)
        for _ in range(staged):
            hash_0 = load_word(entry)
            new = _enter(task, entry, slot_of(hash_0, table, slots, np.int64(0), shift, words, passed_bytes), words)
            if new < np.int64(0):
                prefetch(slot_of(hash_0, table, slots, np.int64(0), shift, words, following_bytes))
                copy(waiting, entry, np.int64(_ENTRY_BYTES))
                waiting += np.int64(_ENTRY_BYTES)
            used += max(new, np.int64(0))
            entry += np.int64(_ENTRY_BYTES)
        staged = (waiting - staging) // np.int64(_ENTRY_BYTES)
        passed_bytes = following_bytes
    add(task, USED, used)
    store_int(task + 8 * STAGED, np.int64(0))


@native
def flush(task: Word) -> None:
    """Put what is staged into the table; one loop for each size of an entry, which is then a constant in it."""
    words = load_int(task + 8 * WORDS)
    if words == np.int64(WITHOUT_SORT_KEY):
        _settle(task, np.int64(WITHOUT_SORT_KEY))
    elif words == np.int64(WITH_SORT_KEY):
        _settle(task, np.int64(WITH_SORT_KEY))
    else:
        _settle(task, np.int64(WITH_KEY))


@native_inline
def _stage(task: Word, key_at: Word, key_bytes: Word, payload: Word, sort: Word) -> None:
    if load_int(task + 8 * STAGED) == np.int64(_STAGED_ENTRIES):
        flush(task)
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


@native
def _version(task: Word, value_at: Word, value_bytes: Word, offset: Word) -> tuple[Word, Word]:
    """(1, version), or (0, 0) where the record has none; a malformed one is counted."""
    if value_at == np.int64(0):
        return np.uint64(0), np.int64(0)
    if value_bytes == np.int64(_VERSION_BYTES):
        return np.uint64(1), load_be_i64(value_at)
    add(task, MALFORMED, np.int64(1))
    if load_int(task + 8 * FIRST_MALFORMED) < 0:
        store_int(task + 8 * FIRST_MALFORMED, offset)
    return np.uint64(0), np.int64(0)


@native
def enter_records(
    at: Word, end: Word, count: Word, base_offset: Word, last_delta: Word, base_ms: Word, append_ms: Word,
    appended: Word, task: Word,
) -> Word:  # fmt: skip
    """Enter all records of a batch; 0, or the address of the first that does not decode."""
    strategy = load_int(task + 8 * STRATEGY)
    payload = (np.uint64(load_int(task + 8 * SPLIT)) << np.uint64(32)) + np.uint64(load_int(task + 8 * ORDINAL))
    name_at, name_bytes = load_int(task + 8 * NAME), load_int(task + 8 * NAME_BYTES)
    before, unkeyed, tombstones, deleted = np.int64(-1), np.int64(0), np.int64(0), np.int64(0)
    first_delta = load_int(task + 8 * START_OFFSET) - base_offset
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
        if offset_delta < first_delta:
            deleted += np.int64(1)
        elif key_bytes >= np.int64(0):
            versioned, sort = np.uint64(0), np.int64(0)
            if strategy == np.int64(TIMESTAMP_STRATEGY):
                sort = append_ms if appended else base_ms + delta_ms
            elif strategy == np.int64(HEADER_STRATEGY):
                versioned, sort = _version(task, value_at, version_bytes, base_offset + offset_delta)
            if staged == np.int64(_STAGED_ENTRIES):
                store_int(task + 8 * STAGED, staged)
                flush(task)
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
    add(task, ORDINAL, count)
    add(task, COMPETING, count - unkeyed - deleted)
    add(task, DELETED, deleted)
    add(task, UNKEYED, unkeyed)
    add(task, TOMBSTONES, tombstones)
    return np.int64(0)


@native
def enter_message(at: Word, end: Word, wrapper_ms: Word, appended: Word, task: Word) -> Word:
    """Enter one legacy message; the address behind it, or -1."""
    behind, magic, timestamp_ms, key_at, key_bytes, _, value_bytes = read_message(at, end)
    if behind < np.int64(0):
        return np.int64(-1)
    if appended and magic == np.int64(1):
        timestamp_ms = np.int64(wrapper_ms)
    ordinal = load_int(task + 8 * ORDINAL) + np.int64(1)
    store_int(task + 8 * ORDINAL, ordinal)
    if key_bytes < np.int64(0):
        add(task, UNKEYED, np.int64(1))
        return behind
    sort = timestamp_ms if load_int(task + 8 * STRATEGY) == np.int64(TIMESTAMP_STRATEGY) else np.int64(0)
    payload = (np.uint64(load_int(task + 8 * SPLIT)) << np.uint64(32)) + np.uint64(ordinal)
    _stage(task, key_at, key_bytes, payload, sort)
    add(task, COMPETING, np.int64(1))
    add(task, TOMBSTONES, np.int64(1) if value_bytes < np.int64(0) else np.int64(0))
    return behind
