"""Digests as bytes, and what importing costs."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_state.digest import COVERAGE, DIGEST_DTYPE, PRODUCER_DIGEST, CorruptDigest, SegmentDigest
from tests.producer_state.random_logs import data, digest_batches, facts_of, marker

STORED = digest_batches(facts_of([data(3, 7, count=2, txn=True), marker(5, 8, ts=4)]), 3, 9).to_bytes()


def test_sizes_are_what_the_docs_say() -> None:
    assert (PRODUCER_DIGEST.size_bytes, COVERAGE.size_bytes) == (57, 57)
    assert len(STORED) == 6 + 57 + 2 * 57
    assert DIGEST_DTYPE.itemsize == 57


@pytest.mark.parametrize("position", range(len(STORED)))
def test_any_flipped_bit_is_found(position: int) -> None:
    damaged = bytearray(STORED)
    damaged[position] ^= 1
    with pytest.raises(CorruptDigest):
        SegmentDigest.from_bytes(bytes(damaged))


@pytest.mark.parametrize("kept", range(len(STORED)))
def test_a_truncated_digest_is_corrupt(kept: int) -> None:
    with pytest.raises(CorruptDigest):
        SegmentDigest.from_bytes(STORED[:kept])


@given(st.binary(max_size=300))
def test_any_bytes_are_a_digest_or_corrupt(content: bytes) -> None:
    for stored in (content, b"\x00\x01" + crc32c.crc32c(content).to_bytes(4, "big") + content):
        with suppress(CorruptDigest):
            SegmentDigest.from_bytes(stored)


def test_importing_loads_no_compiler() -> None:
    modules = ("snapshot", "table", "digest", "replay", "holes", "window", "compare")
    imports = "; ".join(f"import producer_state.{module}" for module in modules)
    subprocess.run([sys.executable, "-c", f"import sys; {imports}; assert 'numba' not in sys.modules"], check=True)
