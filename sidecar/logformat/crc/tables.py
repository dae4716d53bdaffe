"""Tables of CRC-32C and CRC-32: what bytes, and stretches of zero bytes, do to a checksum's state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

CASTAGNOLI = 0x82F63B78
IEEE = 0xEDB88320


def zeros_operator(zero_bytes: int) -> npt.NDArray[np.uint32]:
    """What appending `zero_bytes` (a power of two) zero bytes does to a CRC-32C state, as a (4, 256) table by state byte."""
    bits = np.arange(32, dtype=np.uint32)
    columns = np.uint32(1) << bits
    for _ in range(8):
        columns = (columns >> np.uint32(1)) ^ np.where(columns & np.uint32(1), np.uint32(CASTAGNOLI), np.uint32(0))
    applied_bytes = 1
    while applied_bytes < zero_bytes:
        columns = _apply(columns, columns)
        applied_bytes *= 2
    states = np.arange(256, dtype=np.uint32)[None, :] << (np.uint32(8) * np.arange(4, dtype=np.uint32)[:, None])
    return _apply(columns, states.ravel()).reshape(4, 256)


def _apply(columns: npt.NDArray[np.uint32], states: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The linear map whose image of bit n is `columns[n]`, of each state."""
    chosen = (states[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    return np.asarray(np.bitwise_xor.reduce(np.where(chosen, columns, np.uint32(0)), axis=1), dtype=np.uint32)


def slicing_table(polynomial: int) -> npt.NDArray[np.uint32]:
    """Tables for eight bytes a step, (8, 256): row k is the effect of a byte that k more bytes follow."""
    table = np.empty((8, 256), dtype=np.uint32)
    state = np.arange(256, dtype=np.uint32)
    for row in range(8):
        for _ in range(8):
            state = (state >> np.uint32(1)) ^ np.where(state & np.uint32(1), np.uint32(polynomial), np.uint32(0))
        table[row] = state
    return table
