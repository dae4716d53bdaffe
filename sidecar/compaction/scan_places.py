"""Where settings and counters of a scan lie in its int64 array, the task, and what its kernels answer."""

from __future__ import annotations

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
    START_OFFSET,  # records below it are deleted: they neither compete nor stay
    DELETED,
    COUNTED_ROW,  # of the chunk: its count of records is known to fit its decompressed records; -1: none
    BAD_AT,  # position of what does not decode, within the batch or its decompressed records
) = range(29)
TASK_WORDS = 29

TIMESTAMP_STRATEGY, HEADER_STRATEGY = 1, 2
ROWS_DONE, NEEDS_BODY, TABLE_FULL, BAD_RECORD, DOUBTFUL_COUNT = range(5)
"""Why `scan_rows` returned."""
