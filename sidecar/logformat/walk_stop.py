"""How the native walk over batch headers ends; apart from the walk itself, which takes a compiler to load."""

from __future__ import annotations

from enum import IntEnum


class Stop(IntEnum):
    """Why the walk returned. Up to `BATCH_TOO_WIDE` nothing is wrong; `detail` is what each says."""

    COLUMNS_FULL = 0
    MORE_BYTES = 1  # detail: bytes needed from the position on
    BATCH_TOO_WIDE = 2  # detail: size of a batch that is not to be held in memory
    SIZE = 3  # detail: the smallest size this magic may have
    MAGIC = 4  # detail: the magic found
    BASE_OFFSET = 5  # detail: the offset found, below the smallest possible
    LAST_OFFSET = 6  # detail: the offset found, above the largest possible
    LAST_OFFSET_DELTA = 7  # detail: the delta found
    RECORD_COUNT = 8  # detail: the count found
    CODEC = 9  # detail: the codec found
    CRC = 10  # detail: the checksum computed
