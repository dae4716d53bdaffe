"""The key table: open addressing over hashes in one block of words, with the best record of each key.

An entry is `hash 0, hash 1, payload, sort key, key address, key size`, of which the first 3, 4 or 6 words count. Payload:
bit 63 says that the record has a version, bits 32 to 62 are its split, the low bits its ordinal there + 1; 0: free slot.
Slots have 32 or 64 bytes and are aligned: one that straddles two cache lines costs half as much again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sidecar.compaction.compiling import native, native_inline
from sidecar.compaction.table_places import (
    BLOB_KEY_BYTES,
    CACHE_LINE_BYTES,
    HASH_1,
    KEY_AT,
    KEY_BYTES,
    PAYLOAD,
    SLOT_BYTES,
    SLOT_BYTES_WITH_KEY,
    SORT_KEY,
    WITH_KEY,
    WITH_SORT_KEY,
    WITHOUT_SORT_KEY,
    WORD_BYTES,
)
from sidecar.logformat.loads import (
    Word,
    address_of,
    copy,
    load_int,
    load_u8,
    load_word,
    prefetch,
    store_int,
    store_word,
)

_AHEAD = 24
_SPLIT_MASK = 0x7FFFFFFF
_ORDINAL_MASK = 0xFFFFFFFF


@native
def _same_bytes(one: Word, other: Word, size: Word) -> Word:
    index = np.int64(0)
    while index < size and load_u8(one + index) == load_u8(other + index):
        index += np.int64(1)
    return index == size


@native_inline
def _same_key(entry: Word, other: Word, words: Word) -> Word:
    """Whether two entries of the same hash have the same key; one without key always does."""
    size = load_int(entry + KEY_BYTES) if words == np.int64(WITH_KEY) else np.int64(0)
    same = words != np.int64(WITH_KEY) or size == load_int(other + KEY_BYTES)
    if same and size > np.int64(0):
        same = _same_bytes(load_int(entry + KEY_AT), load_int(other + KEY_AT), size)
    return same


@native_inline
def _beats(payload: Word, sort: Word, best_payload: Word, best_sort: Word) -> Word:
    """Versioned before unversioned, then the greater sort key, then the later record."""
    versioned, best_versioned = payload >> np.uint64(63), best_payload >> np.uint64(63)
    later = payload > best_payload
    greater = sort > best_sort or (sort == best_sort and later)
    return versioned > best_versioned or (versioned == best_versioned and greater)


@native_inline
def slot_bytes(words: Word) -> Word:
    """Size of a slot that holds so many words."""
    return np.int64(SLOT_BYTES_WITH_KEY) if words == np.int64(WITH_KEY) else np.int64(SLOT_BYTES)


@native_inline
def slot_of(hash_0: Word, table: Word, slots: Word, skip: Word, shift: Word, words: Word, passed_bytes: Word) -> Word:
    """Address of the slot where the search for a key begins, or goes on when so many bytes of cache lines were full.

    `skip`: how many top bits of all hashes are the same; `shift`: 64 - log2(slots).
    """
    slot = np.int64((hash_0 << np.uint64(skip)) >> np.uint64(shift))
    size = np.int64(slots) * slot_bytes(words)
    return table + ((slot * slot_bytes(words) + passed_bytes) & (size - np.int64(1)))


@native_inline
def insert_in_line(entry: Word, at: Word, words: Word) -> Word:
    """Put the entry at address `entry` into the cache line of the slot at address `at`, this slot before the other one.

    Returns: the number of keys that are new (0 or 1), or -1 where other keys fill the line. `words` should be a constant, which
    leaves no branch for it. The entry's key is not copied.
    """
    hash_0, hash_1, payload = load_word(entry), load_word(entry + HASH_1), load_word(entry + PAYLOAD)
    new = np.int64(-1)
    for _ in range(np.int64(CACHE_LINE_BYTES) // slot_bytes(words)):
        found = load_word(at + PAYLOAD)
        if found == np.uint64(0):
            store_word(at, hash_0)
            store_word(at + HASH_1, hash_1)
            store_word(at + PAYLOAD, payload)
            if words != np.int64(WITHOUT_SORT_KEY):
                store_int(at + SORT_KEY, load_int(entry + SORT_KEY))
            if words == np.int64(WITH_KEY):
                store_int(at + KEY_AT, load_int(entry + KEY_AT))
                store_int(at + KEY_BYTES, load_int(entry + KEY_BYTES))
            new = np.int64(1)
            break
        if load_word(at) == hash_0 and load_word(at + HASH_1) == hash_1 and _same_key(entry, at, words):
            if words == np.int64(WITHOUT_SORT_KEY):
                store_word(at + PAYLOAD, max(found, payload))
            elif _beats(payload, load_int(entry + SORT_KEY), found, load_int(at + SORT_KEY)):
                store_word(at + PAYLOAD, payload)
                store_int(at + SORT_KEY, load_int(entry + SORT_KEY))
            new = np.int64(0)
            break
        at ^= np.int64(CACHE_LINE_BYTES) - slot_bytes(words)
    return new


@native
def insert(entry: Word, table: Word, slots: Word, skip: Word, shift: Word, words: Word) -> None:
    """Put the entry at address `entry` into the table, where there must be a free slot. Its key is not copied."""
    passed_bytes = np.int64(0)
    hash_0 = load_word(entry)
    while insert_in_line(entry, slot_of(hash_0, table, slots, skip, shift, words, passed_bytes), words) < np.int64(0):
        passed_bytes += np.int64(CACHE_LINE_BYTES)


@native_inline
def _bucket(hash_0: Word, bucket_bits: Word) -> Word:
    return np.int64((hash_0 >> np.uint64(1)) >> np.uint64(np.int64(63) - bucket_bits))


@native
def measure_buckets(table: Any, slots: Word, words: Word, bucket_bits: Word, counts: Any, key_bytes: Any) -> None:
    """Add to `counts` (int64 by bucket) the entries of a table, and to `key_bytes` the bytes of their keys."""
    at = address_of(table)
    stride = slot_bytes(words)
    for _ in range(np.int64(slots)):
        if load_word(at + PAYLOAD) != np.uint64(0):
            bucket = _bucket(load_word(at), np.int64(bucket_bits))
            counts[bucket] += 1
            if words == np.int64(WITH_KEY):
                key_bytes[bucket] += load_int(at + KEY_BYTES)
        at += stride


@native
def pack_buckets(table: Any, slots: Word, words: Word, bucket_bits: Word, out: Any, entries: Any, keys: Any) -> None:
    """Copy the entries into `out` (uint8), each to its bucket's place, and free all slots.

    `entries`, `keys`: int64 by bucket, byte positions in `out` of the bucket's next entry and next key; moved on.
    """
    at, to = address_of(table), address_of(out)
    stride = slot_bytes(words)
    entry_bytes = np.int64(words) * np.int64(WORD_BYTES)
    for _ in range(np.int64(slots)):
        if load_word(at + PAYLOAD) != np.uint64(0):
            bucket = _bucket(load_word(at), np.int64(bucket_bits))
            target = to + entries[bucket]
            if words == np.int64(WITH_KEY):
                size = load_int(at + KEY_BYTES)
                copy(target, at, np.int64(WITH_SORT_KEY * WORD_BYTES))
                store_int(target + BLOB_KEY_BYTES, size)
                copy(to + keys[bucket], load_int(at + KEY_AT), size)
                keys[bucket] += size
                entries[bucket] += np.int64(BLOB_KEY_BYTES + WORD_BYTES)
            else:
                copy(target, at, entry_bytes)
                entries[bucket] += entry_bytes
            store_word(at + PAYLOAD, np.uint64(0))
        at += stride


@native
def insert_blob(
    blob: Any, count: Word, table: Any, slots: Word, skip: Word, shift: Word, words: Word, scratch: Any
) -> None:
    """Put the `count` entries of a blob (uint8, behind its head) into a table; keys stay where they are, in the blob."""
    at, target, entry = address_of(blob), address_of(table), address_of(scratch)
    with_key = words == np.int64(WITH_KEY)
    stride = np.int64(BLOB_KEY_BYTES + WORD_BYTES) if with_key else np.int64(words) * np.int64(WORD_BYTES)
    count = np.int64(count)
    key_at = at + count * stride
    for row in range(count):
        if row + np.int64(_AHEAD) < count:
            ahead = load_word(at + np.int64(_AHEAD) * stride)
            prefetch(slot_of(ahead, target, slots, skip, shift, words, np.int64(0)))
        if with_key:
            size = load_int(at + BLOB_KEY_BYTES)
            copy(entry, at, np.int64(WITH_SORT_KEY * WORD_BYTES))
            store_int(entry + KEY_AT, key_at)
            store_int(entry + KEY_BYTES, size)
            insert(entry, target, slots, skip, shift, words)
            key_at += size
        else:
            insert(at, target, slots, skip, shift, words)
        at += stride


@native
def count_winners(table: Any, slots: Word, words: Word, counts: Any) -> Word:
    """Add to `counts` (int64 by split) the entries of a table; False if one names a split that is not there."""
    at = address_of(table) + PAYLOAD
    for _ in range(np.int64(slots)):
        payload = load_word(at)
        if payload != np.uint64(0):
            split = np.int64((payload >> np.uint64(32)) & np.uint64(_SPLIT_MASK))
            if split >= np.int64(counts.shape[0]):
                return False
            counts[split] += 1
        at += slot_bytes(words)
    return True


@native
def gather_winners(table: Any, slots: Word, words: Word, positions: Any, ordinals: Any) -> None:
    """Write the ordinals (uint32) of all entries, each at its split's position, which moves on."""
    at = address_of(table) + PAYLOAD
    for _ in range(np.int64(slots)):
        payload = load_word(at)
        if payload != np.uint64(0):
            split = np.int64((payload >> np.uint64(32)) & np.uint64(_SPLIT_MASK))
            ordinals[positions[split]] = np.uint32((payload & np.uint64(_ORDINAL_MASK)) - np.uint64(1))
            positions[split] += 1
        at += slot_bytes(words)


@native
def mark(kept: Any, ordinals: Any) -> Word:
    """Set `kept` (uint8 by ordinal) where a record survives; False if an ordinal is not there."""
    for index in range(np.int64(ordinals.shape[0])):
        ordinal = np.int64(ordinals[index])
        if ordinal >= np.int64(kept.shape[0]):
            return False
        kept[ordinal] = np.uint8(1)
    return True
