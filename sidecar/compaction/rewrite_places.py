"""Where settings and counters of a rewriting lie in its int64 array, the job, and what its kernels answer."""

from __future__ import annotations

(
    NOW_MS,  # delete horizons up to here have passed
    NEW_HORIZON_MS,  # NO_HORIZON_MS: none is set
    CONVERTS_LEGACY,
    KEEPS_LEGACY_TOMBSTONES,
    LAST_POSITION,  # of the batch that ends the output, which stays even if empty; -1: it is in another split
    KEPT_NEXT_OFFSET,  # a batch that ends here stays as well; -1: none
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
    NEEDED,  # bytes that the output must have room for
) = range(17)
JOB_WORDS = 17

ROWS_DONE, NEEDS_PYTHON, OUT_FULL, BAD_RECORD, BAD_CRC = range(5)
"""Why `rewrite_rows` returned."""
NOTHING_LEFT, UNCHANGED, LEFT_TO_PYTHON, UNDECODABLE = -1, -2, -3, -4
"""What `rebuild` found, if below 0, else the bytes it wrote."""
CHANGED_RECORD_BYTES = 15
"""By how much a record can grow: a longer timestamp delta, and a longer length."""
