"""The key table of a scan, and the blobs in which its entries travel to the reduction.

A blob is a count (uint64), so many entries, and with exact keys the keys' bytes. All numbers are in native order: the
processes of a run are of one kind.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from producer_state.facts import Int64Column
from sidecar.compaction import scan_places as places
from sidecar.compaction.library import count_winners, gather_winners, insert_blob, measure_buckets, pack_buckets
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.table_places import (
    BLOB_KEY_BYTES,
    CACHE_LINE_BYTES,
    ENTRY_WORDS,
    SLOT_BYTES,
    SLOT_BYTES_WITH_KEY,
    STAGED_ENTRIES,
    WITH_KEY,
    WITH_SORT_KEY,
    WITHOUT_SORT_KEY,
    WORD_BYTES,
)
from sidecar.compaction_strategy import Strategy
from sidecar.errors import CorruptFile

Blob = bytes | memoryview

Emit = Callable[[int, memoryview], None]
"""Takes (bucket, blob)."""

DEFAULT_SLOTS: Final = 2**21
SMALLEST_SLOTS: Final = 2**10
_SLOTS_OF_MANY_KEYS: Final = 2**20
"""Of a table that was full once: there are more keys than it can know of, and what is emitted at once has to wait somewhere."""
LOAD: Final = 0.62
ORDINAL_BYTES: Final = 4
_ARENA_BYTES_PER_SLOT: Final = 24
_STRATEGIES: Final = {Strategy.OFFSET: 0, Strategy.TIMESTAMP: 1, Strategy.HEADER: 2}


def slot_words(rules: CompactionRules) -> int:
    """Words of a table slot: hashes and payload, a sort key where the offset does not decide, the key where it is compared."""
    if rules.exact_keys:
        return WITH_KEY
    return WITHOUT_SORT_KEY if rules.effective_strategy is Strategy.OFFSET else WITH_SORT_KEY


def _free_slots(slots: int, words: int) -> npt.NDArray[np.uint64]:
    """Memory for a table, on a cache line's boundary."""
    slot_words = (SLOT_BYTES_WITH_KEY if words == WITH_KEY else SLOT_BYTES) // WORD_BYTES
    memory = np.zeros(slots * slot_words + CACHE_LINE_BYTES // WORD_BYTES, dtype=np.uint64)
    first = -memory.ctypes.data % CACHE_LINE_BYTES // WORD_BYTES
    return memory[first : first + slots * slot_words]


def _shift(slots: int) -> int:
    return 64 - (slots.bit_length() - 1)


class KeyTable:
    """Collects the best record of each key over the splits of one scan task, within a fixed number of slots.

    When it is full its entries are emitted, and it begins empty: memory does not depend on the number of keys.
    Memory: 32 bytes a slot, or 88 with exact keys. Raises nothing by itself.
    """

    def __init__(
        self, rules: CompactionRules, hash_key: bytes, emit: Emit, *, slots: int = DEFAULT_SLOTS, bucket_bits: int = 0
    ) -> None:
        """`hash_key`: 16 random bytes, the same in all tasks of a run. `slots`: a power of two. There are 2^bucket_bits buckets."""
        if len(hash_key) != 16 or slots < SMALLEST_SLOTS or slots & (slots - 1):
            raise ValueError(
                f"a hash key of {len(hash_key)} bytes and {slots} slots; expected 16, and a power of two from 1024"
            )
        self.rules = rules
        self._emit = emit
        self._bucket_bits = bucket_bits
        self._words = slot_words(rules)
        self._name = np.frombuffer(rules.header_name.encode() or b"\0", dtype=np.uint8)
        self._staging = np.zeros(STAGED_ENTRIES * ENTRY_WORDS, dtype=np.uint64)
        self.task: Int64Column = np.zeros(places.TASK_WORDS, dtype=np.int64)
        task = self.task
        task[places.STRATEGY] = _STRATEGIES[rules.effective_strategy]
        task[places.HASH_KEY_0 : places.HASH_KEY_1 + 1] = np.frombuffer(hash_key, dtype="<i8")
        task[places.WORDS] = self._words
        task[places.STAGING] = self._staging.ctypes.data
        task[places.NAME] = self._name.ctypes.data
        task[places.NAME_BYTES] = len(rules.header_name.encode())
        task[places.FIRST_MALFORMED] = -1
        self._allocate(slots, slots * _ARENA_BYTES_PER_SLOT)

    def _allocate(self, slots: int, arena_bytes: int) -> None:
        self._slots = slots
        self._table = _free_slots(slots, self._words)
        self._arena = np.empty(arena_bytes if self._words == WITH_KEY else 0, dtype=np.uint8)
        self.task[places.SLOTS], self.task[places.SHIFT] = slots, _shift(slots)
        self.task[places.LARGEST_USED] = int(slots * LOAD)
        self.task[places.TABLE], self.task[places.ARENA] = self._table.ctypes.data, self._arena.ctypes.data
        self.task[places.ARENA_BYTES] = len(self._arena)

    def make_room(self, records: int, size_bytes: int) -> None:
        """Emit everything; grow where a single batch has more records than there is room for."""
        self.emit()
        slots, arena_bytes = min(self._slots, _SLOTS_OF_MANY_KEYS), max(len(self._arena), size_bytes)
        while int(slots * LOAD) < records:
            slots *= 2
        if slots != self._slots or (self._words == WITH_KEY and arena_bytes > len(self._arena)):
            self._allocate(slots, arena_bytes)

    @property
    def key_count(self) -> int:
        """Entries that were not emitted."""
        return int(self.task[places.USED])

    def winners(self, split_count: int) -> list[Winners]:
        """The records of those entries. Raises CorruptFile for a split that there is not."""
        return _winners(self._table, self._slots, self._words, split_count)

    def emit(self) -> None:
        """Hand out all entries, a blob for each bucket that has some, and free the table; the blobs share their memory."""
        if not self.task[places.USED]:
            return
        buckets = 1 << self._bucket_bits
        counts, key_bytes = np.zeros(buckets, dtype=np.int64), np.zeros(buckets, dtype=np.int64)
        measure_buckets(self._table, self._slots, self._words, self._bucket_bits, counts, key_bytes)
        entry_bytes = BLOB_KEY_BYTES + WORD_BYTES if self._words == WITH_KEY else self._words * WORD_BYTES
        sizes = WORD_BYTES + counts * entry_bytes + key_bytes
        begins = np.concatenate(([0], np.cumsum(sizes)))
        out = np.empty(int(begins[-1]), dtype=np.uint8)
        entries = begins[:-1] + WORD_BYTES
        pack_buckets(
            self._table, self._slots, self._words, self._bucket_bits, out, entries, entries + counts * entry_bytes
        )
        self.task[places.USED] = self.task[places.ARENA_USED] = 0
        for bucket in np.flatnonzero(counts):
            begin, end = int(begins[bucket]), int(begins[bucket + 1])
            out[begin : begin + WORD_BYTES].view(np.uint64)[0] = counts[bucket]
            self._emit(int(bucket), out[begin:end].data)


@dataclass(frozen=True, slots=True)
class Winners:
    """The surviving records of one split that a bucket decided on: uint32 ordinals in any order, as bytes."""

    split: int
    ordinals: bytes


def reduce_blobs(blobs: Iterable[Blob], rules: CompactionRules, split_count: int, bucket_bits: int) -> list[Winners]:
    """Decide the winners of one bucket of 2^bucket_bits, given all its blobs in any order.

    Memory: the blobs, and a table of 52 to 206 bytes for each of their entries. Raises CorruptFile for damaged blobs.
    """
    held = [np.frombuffer(blob, dtype=np.uint8) for blob in blobs]
    words = slot_words(rules)
    total = sum(_entry_count(blob, words) for blob in held)
    if not total:
        return []
    slots = max(SMALLEST_SLOTS, 1 << int(total / LOAD).bit_length())
    table = _free_slots(slots, words)
    scratch = np.zeros(ENTRY_WORDS, dtype=np.uint64)
    for blob in held:
        # The top bits chose the bucket: among its keys they are all the same and would crowd the table's first slots.
        count = _entry_count(blob, words)
        insert_blob(blob[WORD_BYTES:], count, table, slots, bucket_bits, _shift(slots), words, scratch)
    return _winners(table, slots, words, split_count)


def _winners(table: npt.NDArray[np.uint64], slots: int, words: int, split_count: int) -> list[Winners]:
    """The entries of a table by split. Raises CorruptFile for a split that there is not."""
    counts = np.zeros(split_count, dtype=np.int64)
    if not count_winners(table, slots, words, counts):
        raise CorruptFile("a blob of keys names a split that does not exist: the exchange between stages is damaged")
    ends = np.cumsum(counts)
    ordinals = np.empty(int(ends[-1]), dtype=np.uint32)
    gather_winners(table, slots, words, ends - counts, ordinals)
    return [
        Winners(int(split), ordinals[ends[split] - counts[split] : ends[split]].tobytes())
        for split in np.flatnonzero(counts)
    ]


def entries_of(blob: Blob) -> int:
    return int.from_bytes(blob[:WORD_BYTES], sys.byteorder)


def _entry_count(blob: np.ndarray[Any, np.dtype[np.uint8]], words: int) -> int:
    """How many entries a blob has; they must fill it, or with keys leave the rest to these."""
    count = int(blob[:WORD_BYTES].view(np.uint64)[0]) if len(blob) >= WORD_BYTES else -1
    entry_bytes = BLOB_KEY_BYTES + WORD_BYTES if words == WITH_KEY else words * WORD_BYTES
    rest = len(blob) - WORD_BYTES - count * entry_bytes
    if count >= 0 and rest >= 0 and words == WITH_KEY:
        sizes = blob[WORD_BYTES : WORD_BYTES + count * entry_bytes].view(np.uint64).reshape(count, WITH_KEY - 1)[:, -1]
        rest -= int(sizes.sum()) if len(sizes) and int(sizes.max()) <= rest else 0
    if count < 0 or rest != 0:
        raise CorruptFile(
            f"a blob of {len(blob)} bytes that claims {count} keys: the exchange between stages is damaged"
        )
    return count
