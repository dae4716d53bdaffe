"""The native hash against a plain one whose parts are checked against the published vectors and CPython's own hash."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_state.compiling import native
from sidecar.compaction.kernels.siphash import siphash
from sidecar.logformat.loads import address_of

MASK = 2**64 - 1
REFERENCE_KEY = bytes(range(16))
# vectors.h of the reference implementation, vectors_sip128: SipHash-2-4-128 of the bytes 00, 01, ..., by length.
VECTORS_2_4_128 = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
}


def rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & MASK


def plain(data: bytes, key: bytes, *, compressions: int, finals: int, wide: bool) -> bytes:
    """SipHash-c-d as the paper has it, on lists of words."""
    k0, k1 = (int.from_bytes(key[at : at + 8], "little") for at in (0, 8))
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    v[1] ^= 0xEE if wide else 0

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = v[0] + v[1] & MASK
            v[2] = v[2] + v[3] & MASK
            v[1] = rotated(v[1], 13) ^ v[0]
            v[3] = rotated(v[3], 16) ^ v[2]
            v[0] = rotated(v[0], 32)
            v[2] = v[2] + v[1] & MASK
            v[0] = v[0] + v[3] & MASK
            v[1] = rotated(v[1], 17) ^ v[2]
            v[3] = rotated(v[3], 21) ^ v[0]
            v[2] = rotated(v[2], 32)

    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        block = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= block
        rounds(compressions)
        v[0] ^= block
    v[2] ^= 0xEE if wide else 0xFF
    rounds(finals)
    first = (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")
    if not wide:
        return first
    v[1] ^= 0xDD
    rounds(finals)
    return first + (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")


@native
def _native_hash(buffer: Any, begin: Any, size: Any, key_0: Any, key_1: Any) -> Any:
    return siphash(address_of(buffer) + begin, size, key_0, key_1)


def native_hash(data: bytes, key: bytes, *, begin: int = 3) -> bytes:
    buffer = np.frombuffer(bytes(begin) + data + b"\xff" * 9, np.uint8)
    k0, k1 = np.frombuffer(key, "<u8")
    return b"".join(int(word).to_bytes(8, "little") for word in _native_hash(buffer, begin, len(data), k0, k1))


@pytest.mark.parametrize(("size", "expected"), VECTORS_2_4_128.items())
def test_the_plain_hash_gives_the_published_vectors(size: int, expected: str) -> None:
    found = plain(bytes(range(size)), REFERENCE_KEY, compressions=2, finals=4, wide=True)
    assert found.hex() == expected


def test_the_plain_hash_with_1_and_3_rounds_is_the_one_of_cpython() -> None:
    if sys.hash_info.algorithm != "siphash13":
        pytest.skip(f"this interpreter hashes with {sys.hash_info.algorithm}")
    texts = [bytes(range(size)) for size in range(1, 40)]
    program = f"print([hash(text) for text in {texts!r}])"
    output = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": "0"}, check=True, capture_output=True
    ).stdout
    for text, found in zip(texts, eval(output), strict=True):  # noqa: S307
        ours = plain(text, bytes(16), compressions=1, finals=3, wide=False)
        assert int.from_bytes(ours, "little", signed=True) == found


@pytest.mark.parametrize("size", range(70))
def test_the_native_hash_is_the_plain_one_at_every_size(size: int) -> None:
    data = bytes(range(1, size + 1))
    assert native_hash(data, REFERENCE_KEY) == plain(data, REFERENCE_KEY, compressions=1, finals=3, wide=True)


@given(st.binary(max_size=300), st.binary(min_size=16, max_size=16), st.integers(0, 9))
def test_any_key_and_data(data: bytes, key: bytes, begin: int) -> None:
    assert native_hash(data, key, begin=begin) == plain(data, key, compressions=1, finals=3, wide=True)
