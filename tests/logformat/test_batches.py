"""The scan of whole files: columns of known batches, and how a file may end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_state.facts import MALFORMED_MARKER, MARKER_ABORT, MARKER_COMMIT, NO_MARKER
from sidecar.errors import SegmentChanged
from sidecar.logformat.batches import ScanEnd, SegmentScanner, scan_bytes, scan_file
from tests.logformat.golden_bytes import (
    ABORT_MARKER,
    COMMIT_MARKER,
    EMPTIED,
    MESSAGE_V0,
    MESSAGE_V1,
    THREE_RECORDS,
    TWO_RECORDS,
    TWO_RECORDS_LZ4,
)
from tests.logformat.raw_batches import at_offset, batch_bytes, finished, rows


def test_a_batch_and_its_commit_marker_become_two_rows() -> None:
    scanner = scan_bytes(THREE_RECORDS + COMMIT_MARKER, base_offset=100)
    first, second = rows(scanner)
    assert first == {
        "position": 0,
        "size_bytes": 97,
        "base_offset": 100,
        "last_offset": 102,
        "magic": 2,
        "attributes": 0,
        "leader_epoch": 7,
        "crc": 0x8AC15618,
        "base_timestamp_ms": 1_700_000_000_000,
        "max_timestamp_ms": 1_700_000_000_005,
        "producer_id": 4242,
        "producer_epoch": 3,
        "base_sequence": 11,
        "last_sequence": 13,
        "record_count": 3,
        "marker_type": NO_MARKER,
        "coordinator_epoch": -1,
        "marker_timestamp_ms": -1,
    }
    assert (second["position"], second["base_offset"], second["attributes"]) == (97, 103, 0x30)
    assert (second["marker_type"], second["coordinator_epoch"]) == (MARKER_COMMIT, 9)
    assert second["marker_timestamp_ms"] == 1_700_000_000_010
    assert (scanner.end, scanner.problem, scanner.valid_bytes, scanner.batch_count) == (ScanEnd.EXACT, None, 175, 2)


def test_an_abort_marker_is_distinguished_from_a_commit() -> None:
    (row,) = rows(scan_bytes(ABORT_MARKER))
    assert (row["marker_type"], row["coordinator_epoch"], row["crc"]) == (MARKER_ABORT, 9, 0x919F03BE)


def test_an_emptied_batch_keeps_its_range_and_sequence() -> None:
    (row,) = rows(scan_bytes(EMPTIED))
    assert (row["base_offset"], row["last_offset"], row["record_count"], row["size_bytes"]) == (100, 102, 0, 61)
    assert (row["last_sequence"], row["base_timestamp_ms"], row["marker_type"]) == (13, -1, NO_MARKER)


@pytest.mark.parametrize(
    ("data", "crc", "attributes"), [(TWO_RECORDS, 3851219455, 0), (TWO_RECORDS_LZ4, 2745969314, 3)]
)
def test_checksums_that_kafka_asserts(data: bytes, crc: int, attributes: int) -> None:
    (row,) = rows(scan_bytes(data))
    assert (row["crc"], row["attributes"], row["last_offset"], row["record_count"]) == (crc, attributes, 1, 2)


@pytest.mark.parametrize(("data", "crc", "timestamp"), [(MESSAGE_V0, 1978725405, -1), (MESSAGE_V1, 109425508, 283843)])
def test_legacy_messages_are_rows_of_their_own(data: bytes, crc: int, timestamp: int) -> None:
    scanner = scan_bytes(data + at_offset(data, 7))
    first, second = rows(scanner)
    assert (first["crc"], first["max_timestamp_ms"], first["base_timestamp_ms"]) == (crc, timestamp, timestamp)
    assert (first["producer_id"], first["leader_epoch"], first["base_sequence"], first["record_count"]) == (
        -1,
        -1,
        -1,
        1,
    )
    assert (second["base_offset"], second["last_offset"], second["magic"]) == (7, 7, data[16])
    assert scanner.end is ScanEnd.EXACT


def test_a_file_without_bytes_is_exact() -> None:
    scanner = finished(scan_bytes(b"", base_offset=5))
    assert (scanner.end, scanner.valid_bytes, scanner.batch_count) == (ScanEnd.EXACT, 0, 0)


def test_facts_are_views_of_the_columns() -> None:
    (chunk,) = scan_bytes(THREE_RECORDS + COMMIT_MARKER)
    facts = chunk.facts()
    assert len(facts) == 2
    assert np.shares_memory(facts.last_sequence, chunk.last_sequence)
    assert facts.coordinator_epoch.tolist() == [-1, 9]


def test_the_delete_horizon_is_the_base_timestamp_where_flagged() -> None:
    (chunk,) = scan_bytes(batch_bytes(0, attributes=0x40, base_timestamp=777) + batch_bytes(1))
    assert chunk.delete_horizon_ms.tolist() == [777, -1]


def test_sequences_wrap_after_the_largest_int32() -> None:
    (row,) = rows(scan_bytes(batch_bytes(0, base_sequence=2**31 - 11, last_offset_delta=20, producer_id=1)))
    assert row["last_sequence"] == 9


@pytest.mark.parametrize(
    ("body", "attributes", "marker"),
    [
        (b"\x20\x00\x00\x00\x08\x00\x00\x00\x05\x0c\x00\x00\x00\x00\x00\x09\x00", 0x20, 5),  # a raft control record
        (b"\x20\x00\x00\x00\x08\x00\x00\x12\x34\x0c\x00\x00\x00\x00\x00\x09\x00", 0x20, 127),  # type 0x1234
        (
            b"\x20\x00\x00\x00\x08\x00\x01\x00\x01\x0c\x00\x03\x00\x00\x00\x09\x00",
            0x30,
            MARKER_COMMIT,
        ),  # newer versions
        (b"\x20\x00\x00\x00\x08\xff\xff\x00\x01\x0c\x00\x00\x00\x00\x00\x09\x00", 0x30, MALFORMED_MARKER),
        (b"\x20\x00\x00\x00\x02\x00\x01\x00\x01\x0c\x00\x00\x00\x00\x00\x09\x00", 0x30, MALFORMED_MARKER),  # short key
        (
            b"\x20\x00\x00\x00\x08\x00\x00\x00\x01\x0a\x00\x00\x00\x00\x00\x09\x00",
            0x30,
            MALFORMED_MARKER,
        ),  # short value
        (b"\xff\xff\xff\xff\x0f\x00", 0x30, MALFORMED_MARKER),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 0x30, MALFORMED_MARKER),
        (b"", 0x30, MALFORMED_MARKER),
        (b"\x20\x00\x00\x00\x08\x00\x00\x00\x01\x0c\x00\x00\x00\x00\x00\x09\x00", 0x31, MALFORMED_MARKER),  # compressed
    ],
)
def test_control_records_that_are_no_plain_markers(body: bytes, attributes: int, marker: int) -> None:
    (row,) = rows(scan_bytes(batch_bytes(0, body, attributes=attributes)))
    assert row["marker_type"] == marker
    assert row["coordinator_epoch"] == (9 if marker == MARKER_COMMIT else -1)


def test_a_marker_takes_the_append_time_where_the_batch_has_one() -> None:
    body = b"\x20\x00\x02\x00\x08\x00\x00\x00\x01\x0c\x00\x00\x00\x00\x00\x09\x00"
    created, appended = rows(scan_bytes(batch_bytes(0, body, attributes=0x30) + batch_bytes(1, body, attributes=0x38)))
    assert (created["marker_timestamp_ms"], appended["marker_timestamp_ms"]) == (1001, 2000)


@given(
    st.lists(st.integers(0, 700), min_size=1, max_size=30),
    st.sampled_from([64, 65, 100, 333, 1024, 10**6]),
    st.sampled_from([1, 2, 7, 65_536]),
    st.sampled_from([128, 10**6]),
)
def test_columns_do_not_depend_on_the_size_of_the_window(
    body_sizes: list[int], window_bytes: int, max_batches: int, largest_window_bytes: int
) -> None:
    data = b"".join(batch_bytes(offset, bytes(size)) for offset, size in enumerate(body_sizes)) + COMMIT_MARKER
    expected = rows(scan_bytes(data))
    scanner = scan_bytes(
        data, window_bytes=window_bytes, max_batches=max_batches, largest_window_bytes=largest_window_bytes
    )
    chunks = list(scanner)
    assert all(0 < len(chunk) <= max_batches for chunk in chunks)
    found = [int(value) for chunk in chunks for value in chunk.position]
    assert found == [row["position"] for row in expected]
    assert rows(scan_bytes(data, window_bytes=window_bytes, largest_window_bytes=largest_window_bytes)) == expected
    assert (scanner.end, scanner.batch_count) == (ScanEnd.EXACT, len(body_sizes) + 1)


def test_a_scan_can_begin_at_any_batch() -> None:
    (row,) = rows(scan_bytes(THREE_RECORDS + COMMIT_MARKER, start_position=97))
    assert (row["position"], row["base_offset"]) == (97, 103)


def test_files_are_read_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000100.log"
    path.write_bytes(THREE_RECORDS + COMMIT_MARKER)
    scanner = scan_file(path, base_offset=100, window_bytes=64)
    assert [row["base_offset"] for row in rows(scanner)] == [100, 103]
    path.write_bytes(THREE_RECORDS + bytes(10))
    problem = finished(scan_file(path)).problem
    assert problem is not None
    assert problem.file == str(path)


def test_a_missing_file_is_a_changed_segment(tmp_path: Path) -> None:
    with pytest.raises(SegmentChanged, match="vanished"):
        scan_file(tmp_path / "00000000000000000000.log")


def test_a_file_that_shrinks_is_a_changed_segment(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000100.log"
    path.write_bytes(THREE_RECORDS + COMMIT_MARKER)
    scanner = scan_file(path)
    path.write_bytes(THREE_RECORDS)
    with pytest.raises(SegmentChanged, match="shorter than 175"):
        finished(scanner)


def test_the_end_is_not_known_before_the_iteration() -> None:
    with pytest.raises(RuntimeError, match="not finished"):
        _ = scan_bytes(THREE_RECORDS).end


def test_a_file_beyond_32_bit_positions_is_refused() -> None:
    scanner = SegmentScanner(lambda _position, buffer: len(buffer), 2**31, window_bytes=1024)
    assert finished(scanner).end is ScanEnd.CORRUPT
