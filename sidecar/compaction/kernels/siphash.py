"""SipHash-1-3 with 128 bits of output: the identity of a key, under a new secret for each run.

Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF". One compression round, three finalisation rounds.
"""

from __future__ import annotations

import numpy as np

from sidecar.compaction.compiling import native, native_inline
from sidecar.logformat.loads import Word, load_half, load_le_u64, load_u8

_V0, _V1, _V2, _V3 = 0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573


@native_inline
def _round(v0: Word, v1: Word, v2: Word, v3: Word) -> tuple[Word, Word, Word, Word]:
    v0 += v1
    v1 = ((v1 << np.uint64(13)) | (v1 >> np.uint64(51))) ^ v0
    v0 = (v0 << np.uint64(32)) | (v0 >> np.uint64(32))
    v2 += v3
    v3 = ((v3 << np.uint64(16)) | (v3 >> np.uint64(48))) ^ v2
    v0 += v3
    v3 = ((v3 << np.uint64(21)) | (v3 >> np.uint64(43))) ^ v0
    v2 += v1
    v1 = ((v1 << np.uint64(17)) | (v1 >> np.uint64(47))) ^ v2
    v2 = (v2 << np.uint64(32)) | (v2 >> np.uint64(32))
    return v0, v1, v2, v3


@native_inline
def _last_block(at: Word, size: Word) -> Word:
    """The bytes behind the last whole block, and the size in the top byte; never reads outside of the key."""
    rest = size & np.int64(7)
    top = np.uint64(size) << np.uint64(56)
    if rest == np.int64(0):
        return top
    if size >= np.int64(8):
        return top | (load_le_u64(at + size - np.int64(8)) >> np.uint64(np.int64(64) - np.int64(8) * rest))
    if size >= np.int64(4):
        high = np.uint64(load_half(at + size - np.int64(4))) << np.uint64(np.int64(8) * (size - np.int64(4)))
        return top | np.uint64(load_half(at)) | high
    half = size >> np.int64(1)
    middle = np.uint64(load_u8(at + half)) << np.uint64(np.int64(8) * half)
    last = np.uint64(load_u8(at + size - np.int64(1))) << np.uint64(np.int64(8) * (size - np.int64(1)))
    return top | np.uint64(load_u8(at)) | middle | last


@native
def siphash(at: Word, size: Word, key_0: Word, key_1: Word) -> tuple[Word, Word]:
    """Both halves of the hash of `size` bytes at address `at`, as uint64; the key as two uint64."""
    v0 = np.uint64(_V0) ^ np.uint64(key_0)
    v1 = np.uint64(_V1) ^ np.uint64(key_1) ^ np.uint64(0xEE)
    v2 = np.uint64(_V2) ^ np.uint64(key_0)
    v3 = np.uint64(_V3) ^ np.uint64(key_1)
    end = np.int64(at) + (np.int64(size) & np.int64(-8))
    block_at = np.int64(at)
    while block_at < end:
        block = load_le_u64(block_at)
        v3 ^= block
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= block
        block_at += np.int64(8)
    block = _last_block(np.int64(at), np.int64(size))
    v3 ^= block
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= block
    v2 ^= np.uint64(0xEE)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3
