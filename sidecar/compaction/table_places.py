"""How entries of the key table, and of the blobs in which they travel, lie in memory; see `kernels.table`."""

from __future__ import annotations

WORD_BYTES = 8
ENTRY_WORDS = 6
STAGED_ENTRIES = 64
HASH_0, HASH_1, PAYLOAD, SORT_KEY, KEY_AT, KEY_BYTES = (word * WORD_BYTES for word in range(ENTRY_WORDS))
WITHOUT_SORT_KEY, WITH_SORT_KEY, WITH_KEY = 3, 4, 6
"""Words of an entry that count."""
SLOT_BYTES, SLOT_BYTES_WITH_KEY = 32, 64
CACHE_LINE_BYTES = 64
BLOB_KEY_BYTES = 4 * WORD_BYTES
"""Where an entry with key in a blob says the key's size; such an entry is five words, and keys follow all entries."""
