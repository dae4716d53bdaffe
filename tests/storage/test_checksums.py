"""CRC-32C of parts and wholes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from sidecar.storage.checksums import combine_crc32c, combine_parts, crc32c_of, from_text, to_text


def test_the_check_value_of_the_polynomial() -> None:
    assert crc32c_of(b"123456789") == 0xE3069283
    assert crc32c_of(b"6789", crc32c_of(b"12345")) == 0xE3069283


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_two_stretches_combine_to_the_checksum_of_both(first: bytes, second: bytes) -> None:
    assert combine_crc32c(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@given(st.binary(max_size=2000), st.lists(st.integers(0, 2000), max_size=8))
def test_parts_combine_to_the_whole(whole: bytes, cuts: list[int]) -> None:
    ends = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    parts = [whole[start:end] for start, end in pairwise(ends)]
    assert combine_parts([(crc32c(part), len(part)) for part in parts]) == crc32c(whole)


def test_long_stretches_combine() -> None:
    zeros = bytes(1 << 20)
    whole = combine_parts([(crc32c(zeros), len(zeros))] * 64)
    expected = 0
    for _ in range(64):
        expected = crc32c(zeros, expected)
    assert whole == expected
    # 5 TiB, S3's largest object: the combination must not take time in proportion.
    assert combine_crc32c(1, 2, 5 * (1 << 40)) == combine_crc32c(combine_crc32c(1, 0, 1 << 40), 2, 4 * (1 << 40))


@given(st.integers(0, 2**32 - 1))
def test_text_and_back(crc: int) -> None:
    assert from_text(to_text(crc)) == crc


@pytest.mark.parametrize("text", [None, "", "AAAAAA==-3", "AAAA", "not base64!", "AAAAAAAA"])
def test_what_is_no_checksum_of_the_whole_is_none(text: str | None) -> None:
    assert from_text(text) is None
