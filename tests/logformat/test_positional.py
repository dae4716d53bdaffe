"""A file that the kernel reads by itself: the same rows and the same words as through Python, whatever happens to the file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.errors import SegmentChanged
from sidecar.logformat import window as windows
from sidecar.logformat.batches import SegmentScanner, scan_bytes, scan_file
from sidecar.logformat.files import PositionalFile
from tests.golden import VERSIONS, partitions
from tests.logformat.golden_bytes import MESSAGE_V1, THREE_RECORDS
from tests.logformat.raw_batches import at_offset, batch_bytes, finished, rows

BODIES = st.lists(st.integers(0, 700), min_size=1, max_size=25)


@contextmanager
def opened(data: bytes, in_front: bytes = b"") -> Iterator[PositionalFile]:
    """The bytes as a file, behind others."""
    with tempfile.TemporaryFile() as file:
        file.write(in_front + data)
        file.flush()
        yield PositionalFile(file.fileno(), len(in_front))


def outcome(scanner: SegmentScanner, *, check_crc: bool) -> tuple[object, ...]:
    """All that a scan says."""
    found = rows(scanner)
    checksum = scanner.crc32c if check_crc else None
    return found, scanner.end, scanner.valid_bytes, scanner.batch_count, str(scanner.problem), checksum


@given(
    BODIES,
    st.integers(64, 900),
    st.integers(0, 2),
    st.binary(max_size=80),
    st.integers(-400, 0),
    st.integers(1, 7),
    st.booleans(),
)
@example([8, 0], 64, 0, bytes(8), 0, 1, False)
@example([8, 0], 64, 0, bytes(12), 0, 1, False)
def test_the_kernel_reads_as_python_does(
    bodies: list[int], window_bytes: int, legacy: int, tail: bytes, cut: int, max_batches: int, check_crc: bool
) -> None:
    data = b"".join(at_offset(MESSAGE_V1, offset) for offset in range(legacy))
    data += b"".join(batch_bytes(legacy + n, b"\x0c" * size) for n, size in enumerate(bodies))
    data = (data[:cut] if cut else data) + tail
    options: dict[str, Any] = {"window_bytes": window_bytes, "max_batches": max_batches, "check_crc": check_crc}
    options["largest_window_bytes"] = 300 if max_batches % 2 else 1 << 20
    with opened(data, in_front=b"front") as file:
        by_kernel = SegmentScanner(file, len(data), **options)
        assert outcome(by_kernel, check_crc=check_crc) == outcome(scan_bytes(data, **options), check_crc=check_crc)


def test_without_checksums_only_headers_of_large_batches_are_read() -> None:
    data = b"".join(batch_bytes(offset, b"x" * 50_000) for offset in range(40))
    with opened(data) as file:
        before = bytes_read()
        found = rows(SegmentScanner(file, len(data), window_bytes=256, check_crc=False))
        assert bytes_read() - before < len(data) / 50
    assert found == rows(scan_bytes(data))


@pytest.mark.parametrize("version", VERSIONS)
def test_markers_are_read_whatever_the_window(version: str) -> None:
    logs = [log for partition in partitions(version) for log in partition.glob("*.log")]
    assert logs
    for log in logs:
        small, usual = scan_file(log, check_crc=False, window_bytes=64), scan_file(log, check_crc=False)
        assert outcome(small, check_crc=False) == outcome(usual, check_crc=False)


def bytes_read() -> int:
    """By this process so far, as the system counts."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


def test_a_file_that_shrinks_is_a_changed_segment() -> None:
    data = b"".join(batch_bytes(offset, b"x" * 200) for offset in range(100))
    with opened(data) as file:
        chunks = iter(SegmentScanner(file, len(data), window_bytes=1000, max_batches=5, file="a.log"))
        next(chunks)
        os.ftruncate(file.descriptor, len(data) // 2)
        with pytest.raises(SegmentChanged, match=r"a\.log: became shorter"):
            list(chunks)


def test_an_error_of_the_system_is_raised_by_python() -> None:
    data = b"".join(batch_bytes(offset, b"x" * 200) for offset in range(100))
    with opened(data) as file:
        chunks = iter(SegmentScanner(file, len(data), window_bytes=1000, max_batches=5))
        next(chunks)
        file.descriptor, descriptor = os.open("/", os.O_RDONLY), file.descriptor
        with pytest.raises(IsADirectoryError):
            list(chunks)
        os.close(file.descriptor)
        file.descriptor = descriptor


def test_a_walk_can_begin_inside() -> None:
    data = THREE_RECORDS + at_offset(THREE_RECORDS, 7)
    with opened(data) as file:
        scanner = finished(SegmentScanner(file, len(data), start_position=len(THREE_RECORDS)))
        assert (scanner.batch_count, scanner.valid_bytes) == (1, len(data))


def test_the_windows_of_two_scans_at_once_are_two() -> None:
    first, second = (b"".join(batch_bytes(offset, bytes([n]) * 90) for offset in range(40)) for n in (1, 2))
    options = {"window_bytes": 500, "max_batches": 3}
    finished(scan_bytes(first, **options))
    pairs = zip(scan_bytes(first, **options), scan_bytes(second, **options), strict=True)
    assert sum(len(one) + len(other) for one, other in pairs) == 80


def test_a_large_window_is_not_kept() -> None:
    body = b"x" * (3 * 1024 * 1024)
    finished(scan_bytes(batch_bytes(0, body)))
    kept = windows._kept.memory
    assert kept is None or kept.nbytes <= 2 * 1024 * 1024
