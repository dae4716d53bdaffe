"""The walk in plain Python finds the same batches as the native one, or says that it is not for it to find them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.few_headers import HEADERS_MAX, NotFew, few_headers, is_whole_batch
from tests.golden import golden


def batches(count: int, records: int = 3) -> bytes:
    made = [
        [Record(base + n, 1_000 + n, b"k", b"v") for n in range(records)] for base in range(0, count * records, records)
    ]
    return b"".join(build_batch(batch, leader_epoch=1) for batch in made)


def reader(data: bytes) -> Callable[[int, memoryview], int]:
    def read_at(position: int, buffer: memoryview) -> int:
        piece = data[position : position + min(len(buffer), 40)]  # reads may be short
        buffer[: len(piece)] = piece
        return len(piece)

    return read_at


def found(data: bytes) -> list[tuple[int, int, int]]:
    headers = few_headers(reader(data), 0, len(data), 0)
    return [(header.base_offset, header.base_offset + header.last_offset_delta, header.crc) for header in headers]


def test_it_finds_what_the_native_walk_finds() -> None:
    compared = 0
    for path in sorted(golden("3.9.1").rglob("*.log")):
        data = path.read_bytes()
        try:
            headers = found(data)
        except NotFew:
            continue
        scanned = [
            row
            for columns in scan_bytes(data)
            for row in zip(
                columns.base_offset.tolist(), columns.last_offset.tolist(), columns.crc.tolist(), strict=True
            )
        ]
        assert headers == scanned
        compared += len(headers)
    assert compared > 50


def test_more_than_a_few_are_left_to_the_native_walk() -> None:
    assert len(found(batches(HEADERS_MAX - 1))) == HEADERS_MAX - 1
    with pytest.raises(NotFew):
        found(batches(HEADERS_MAX + 1))


@given(data=st.binary(max_size=300), cut=st.integers(0, 200))
def test_any_bytes_are_batches_or_not_few(data: bytes, cut: int) -> None:
    whole = batches(1)
    for content in (data, whole[:cut] + data, whole + data):
        try:
            offsets = [base for base, _, _ in found(content)]
        except NotFew:
            continue
        assert offsets == sorted(set(offsets))


def test_a_batch_is_whole_by_its_checksum() -> None:
    data = batches(1)
    (header,) = few_headers(reader(data), 0, len(data), 0)
    assert is_whole_batch(reader(data), 0, header)
    damaged = data[:-1] + bytes([data[-1] ^ 1])
    assert not is_whole_batch(reader(damaged), 0, header)


def test_legacy_messages_are_left_to_the_native_walk(tmp_path: Path) -> None:
    legacy = bytes.fromhex("00000000000000000000001875f0f41d0000000000046b6579310000000676616c756531")
    with pytest.raises(NotFew):
        found(legacy + bytes(61))
