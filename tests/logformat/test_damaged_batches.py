"""What the scan says of files that are damaged, cut or never written to the end."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import CorruptFile
from sidecar.logformat.batches import ScanEnd, SegmentScanner, scan_bytes
from sidecar.logformat.headers import CRC_FROM, LARGEST_POSITION
from tests.logformat.golden_bytes import (
    COMMIT_MARKER,
    MESSAGE_V0,
    MESSAGE_V1,
    THREE_RECORDS,
    TWO_RECORDS_LZ4,
)
from tests.logformat.raw_batches import at_offset, batch_bytes, finished, rows

BAD_BATCHES = {
    "size": (batch_bytes(0)[:8] + struct.pack(">i", 13) + batch_bytes(0)[12:], "size field 13"),
    "negative size": (batch_bytes(0)[:8] + struct.pack(">i", -5) + batch_bytes(0)[12:], "size field -5"),
    "size of its magic": (batch_bytes(0)[:8] + struct.pack(">i", 48) + batch_bytes(0)[12:], "size field 48"),
    "magic": (batch_bytes(0)[:16] + b"\x03" + batch_bytes(0)[17:], "magic 3"),
    "negative magic": (batch_bytes(0)[:16] + b"\xff" + batch_bytes(0)[17:], "magic -1"),
    "below the base": (batch_bytes(9), "offset 9, expected at least 10"),
    "beyond the base": (batch_bytes(10 + LARGEST_POSITION, last_offset_delta=1), "largest possible"),
    "delta": (batch_bytes(10, last_offset_delta=-1), "last offset delta -1"),
    "negative count": (batch_bytes(10, record_count=-1), "-1 records"),
    "count": (batch_bytes(10, record_count=4, last_offset_delta=2), "4 records, expected 0 to 3"),
    "codec": (batch_bytes(10, attributes=5), "codec 5"),
    "checksum": (batch_bytes(10)[:-1] + b"\x7f", "checksum"),
}


@pytest.mark.parametrize("kind", BAD_BATCHES)
def test_bad_batches_are_reported_where_they_stand(kind: str) -> None:
    bad, words = BAD_BATCHES[kind]
    good = batch_bytes(10) if "base" not in kind else b""
    if good and int.from_bytes(bad[:8]) == 10:
        bad = at_offset(bad, 11)
    scanner = scan_bytes(good + bad + batch_bytes(50), base_offset=10, file="x.log")
    assert len(rows(scanner)) == bool(good)
    assert (scanner.end, scanner.valid_bytes) == (ScanEnd.CORRUPT, len(good))
    assert scanner.problem is not None
    assert scanner.problem.position == len(good)
    assert words in str(scanner.problem)
    assert str(scanner.problem).startswith(f"x.log, at byte {len(good)}, offset ")
    with pytest.raises(CorruptFile, match=r"x\.log"):
        scanner.require_exact()


def test_a_zstd_wrapper_is_unknown_to_legacy_magic() -> None:
    scanner = finished(scan_bytes(MESSAGE_V1[:17] + b"\x04" + MESSAGE_V1[18:], check_crc=False))
    assert scanner.problem is not None
    assert "codec 4" in str(scanner.problem)


def test_offsets_must_ascend_from_batch_to_batch() -> None:
    scanner = finished(scan_bytes(batch_bytes(0, last_offset_delta=4) + batch_bytes(4)))
    assert (scanner.end, scanner.batch_count) == (ScanEnd.CORRUPT, 1)


def test_the_largest_relative_offset_is_allowed() -> None:
    scanner = finished(scan_bytes(batch_bytes(10 + LARGEST_POSITION), base_offset=10))
    assert scanner.end is ScanEnd.EXACT


@pytest.mark.parametrize("cut", [1, 8, 12, 16, 17, 40, 60, 61, 67])
def test_a_cut_last_batch_is_a_partial_tail(cut: int) -> None:
    whole = batch_bytes(300)
    scanner = finished(scan_bytes(batch_bytes(256) + whole[:cut]))
    if any(whole[:cut]):
        assert scanner.end is ScanEnd.PARTIAL_TAIL
    else:
        assert scanner.end is ScanEnd.ZERO_TAIL
        assert "the beginning of a batch that was cut" in str(scanner.problem)
    assert scanner.valid_bytes == len(whole)
    assert scanner.problem is not None


@pytest.mark.parametrize("zeros", [1, 16, 17, 100, 3_000_000])
def test_zeros_that_were_never_written_are_a_tail_of_their_own(zeros: int) -> None:
    scanner = finished(scan_bytes(batch_bytes(0) + bytes(zeros)))
    assert (scanner.end, scanner.valid_bytes) == (ScanEnd.ZERO_TAIL, len(batch_bytes(0)))
    assert ("the beginning of a batch" in str(scanner.problem)) is (zeros < 12)


def test_data_behind_zeros_is_damage() -> None:
    scanner = finished(scan_bytes(batch_bytes(0) + bytes(100) + batch_bytes(1)))
    assert (scanner.end, scanner.valid_bytes) == (ScanEnd.CORRUPT, len(batch_bytes(0)))


def test_without_checksums_a_damaged_body_passes() -> None:
    damaged = batch_bytes(0)[:-1] + b"\x7f"
    assert finished(scan_bytes(damaged, check_crc=False)).end is ScanEnd.EXACT
    assert finished(scan_bytes(damaged)).end is ScanEnd.CORRUPT


@given(st.binary(max_size=400), st.sampled_from([64, 10**6]))
def test_any_bytes_are_walked_or_reported(garbage: bytes, window_bytes: int) -> None:
    data = THREE_RECORDS + garbage
    scanner = finished(scan_bytes(data, window_bytes=window_bytes))
    assert 97 <= scanner.valid_bytes <= len(data)
    assert (scanner.problem is None) == (scanner.end is ScanEnd.EXACT) == (scanner.valid_bytes == len(data))
    assert finished(scan_bytes(data, check_crc=False, window_bytes=window_bytes)).valid_bytes >= 97


@pytest.mark.parametrize("data", [THREE_RECORDS, COMMIT_MARKER, TWO_RECORDS_LZ4, MESSAGE_V0, MESSAGE_V1])
def test_every_flipped_bit_under_the_checksum_is_found(data: bytes) -> None:
    covered_from = CRC_FROM[data[16]]
    for bit in range(8 * covered_from, 8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        scanner = finished(scan_bytes(damaged))
        assert scanner.end is not ScanEnd.EXACT, f"bit {bit}"
        assert scanner.valid_bytes == 0


@pytest.mark.parametrize("largest_window_bytes", [128, 10**6])
def test_damage_in_a_batch_wider_than_the_window_is_found(largest_window_bytes: int) -> None:
    data = bytearray(batch_bytes(0, bytes(5000)) + batch_bytes(1))
    options = {"window_bytes": 64, "largest_window_bytes": largest_window_bytes}
    assert finished(scan_bytes(data, **options)).end is ScanEnd.EXACT
    data[4000] = 1
    assert finished(scan_bytes(data, **options)).end is ScanEnd.CORRUPT
    assert finished(scan_bytes(data, check_crc=False, **options)).batch_count == 2


def test_the_window_stays_small_for_a_batch_that_claims_the_whole_file() -> None:
    largest_request = 0

    def read_at(position: int, buffer: memoryview) -> int:
        nonlocal largest_request
        largest_request = max(largest_request, len(buffer))
        buffer[:] = bytes(len(buffer))
        if position == 0:
            buffer[:61] = batch_bytes(0)[:8] + struct.pack(">i", 2**30 - 12) + batch_bytes(0)[12:61]
        return len(buffer)

    scanner = finished(SegmentScanner(read_at, 2**30, window_bytes=1024, largest_window_bytes=2**20))
    assert scanner.end is ScanEnd.CORRUPT
    assert largest_request <= 2**20
