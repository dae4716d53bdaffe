"""Producers by id, for kernels: a table of slots, each with the number of a producer's row, -1 where it is free.

Imported only by kernels: loading numba takes longer than most commands.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from producer_state.compiling import native

_FIBONACCI = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@native
def find(slots: Any, rows: Any, producer_id: Any) -> Any:
    """(slot, row) of a producer; row -1: unknown, and the slot is free. `slots` is a power of two long, never full."""
    # Producer ids are handed out in blocks of consecutive numbers; the product spreads them over the upper bits.
    mask = np.int64(len(slots) - 1)
    slot = np.int64((np.uint64(producer_id) * _FIBONACCI) >> _HALF) & mask
    while True:
        row = np.int64(slots[slot])
        if row < 0 or rows[row]["producer_id"] == producer_id:
            return slot, row
        slot = (slot + 1) & mask


@native
def index_rows(slots: Any, rows: Any, used: int) -> None:
    """Enter the first `used` rows into empty slots."""
    for row in range(used):
        slot, _ = find(slots, rows, rows[row]["producer_id"])
        slots[slot] = row
