"""The CRC-32C of a file that follows from its batches' own checksums: it equals that of the bytes, whatever is in the file."""

from __future__ import annotations

import struct
import tempfile
import zlib
from functools import reduce
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.errors import CorruptFile, SegmentChanged
from sidecar.logformat.batches import ScanEnd, SegmentScanner, scan_bytes
from sidecar.logformat.crc.crc32c import crc32c_combined
from sidecar.logformat.files import PositionalFile
from sidecar.logformat.headers import MAGIC_POSITION
from sidecar.logformat.window import ReadAt
from sidecar.model import PartName
from sidecar.segment.log_check import WINDOW_BYTES, ExpectedLog, check_log
from sidecar.storage.checksums import combine_crc32c
from tests.logformat.raw_batches import batch_bytes, finished

UNKNOWN = ExpectedLog(0, 1 << 31, 0, -1, None, None)
"""Of no segment: `check_log` reports a problem behind the last batch, unless there is no batch."""


def message_bytes(offset: int, magic: int, value: bytes) -> bytes:
    """A legacy message without a key."""
    fields = struct.pack(">bb", magic, 0) + (struct.pack(">q", 1000) if magic else b"")
    covered = fields + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(covered), zlib.crc32(covered)) + covered


def log_bytes(batches: list[tuple[int, int]]) -> bytes:
    """Batches of these magics, each with so many bytes of content."""
    return b"".join(
        batch_bytes(offset, bytes([offset % 251]) * size, record_count=0)
        if magic == 2
        else message_bytes(offset, magic, bytes([offset % 251]) * size)
        for offset, (magic, size) in enumerate(batches)
    )


BATCHES = st.lists(st.tuples(st.sampled_from([2, 2, 0, 1]), st.integers(0, 900)), max_size=20)
OPTIONS = st.fixed_dictionaries(
    {
        "window_bytes": st.sampled_from([64, 65, 100, 333, 1024, 10**6]),
        "largest_window_bytes": st.sampled_from([64, 128, 300, 10**6]),
        "max_batches": st.sampled_from([1, 3, 65_536]),
    }
)
DAMAGE = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), max_size=2)


def damaged(data: bytes, cut: int, tail: bytes, damage: list[tuple[int, int]]) -> bytes:
    found = bytearray(data[: max(len(data) - cut, 0)] + tail)
    for position, change in damage:
        if found:
            found[position % len(found)] ^= change
    return bytes(found)


def reader(data: bytes, most_bytes: int = 1 << 30) -> ReadAt:
    """Reads of at most so many bytes."""

    def read_at(position: int, buffer: memoryview) -> int:
        piece = data[position : position + min(len(buffer), most_bytes)]
        buffer[: len(piece)] = piece
        return len(piece)

    return read_at


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1))
@example(2**32 - 1, 2**32 - 1, 2**31 - 1)
@example(1, 0, 0)
def test_the_kernel_combines_as_the_reference_does(first: int, second: int, second_bytes: int) -> None:
    found = crc32c_combined(np.uint32(first), np.uint32(second), second_bytes)
    assert int(found) == combine_crc32c(first, second, second_bytes)


@given(BATCHES, st.integers(0, 80), st.sampled_from([b"", bytes(5), bytes(40), b"rest of something"]), DAMAGE, OPTIONS)
def test_it_is_the_checksum_of_all_valid_bytes(
    batches: list[tuple[int, int]], cut: int, tail: bytes, damage: list[tuple[int, int]], options: dict[str, Any]
) -> None:
    data = damaged(log_bytes(batches), cut, tail, damage)
    scanner = finished(scan_bytes(data, **options))
    assert scanner.crc32c == crc32c(data[: scanner.valid_bytes])
    with tempfile.TemporaryFile() as file:
        file.write(b"front" + data)
        file.flush()
        by_kernel = finished(SegmentScanner(PositionalFile(file.fileno(), 5), len(data), **options))
    assert (by_kernel.crc32c, by_kernel.valid_bytes) == (scanner.crc32c, scanner.valid_bytes)


@given(BATCHES, OPTIONS)
@example(
    [(0, 21), (2, 300)], {"window_bytes": 64, "largest_window_bytes": 64}
)  # 17 bytes of a wide batch are in the window
def test_nothing_is_left_out_of_a_whole_file(batches: list[tuple[int, int]], options: dict[str, Any]) -> None:
    data = log_bytes(batches)
    scanner = finished(scan_bytes(data, **options))
    assert (scanner.end, scanner.crc32c) == (ScanEnd.EXACT, crc32c(data))
    assert scanner.crc32c == reduce(lambda crc, at: crc32c(data[at : at + 7], crc), range(0, len(data), 7), 0)


@given(
    BATCHES, st.integers(0, 80), st.sampled_from([b"", bytes(40), b"rest of something"]), DAMAGE, st.integers(1, 900)
)
def test_the_check_of_a_log_gives_the_checksum_of_every_byte_whatever_is_wrong(
    batches: list[tuple[int, int]], cut: int, tail: bytes, damage: list[tuple[int, int]], most_bytes: int
) -> None:
    data = damaged(log_bytes(batches), cut, tail, damage)
    indexes = {PartName.OFFSET_INDEX: struct.pack(">ii", 3, 7)}
    found, problem = check_log(
        reader(data, most_bytes), len(data), UNKNOWN, indexes, file="log", indexes_file="indexes"
    )
    assert found == crc32c(data)
    scanner = finished(scan_bytes(data, base_offset=0, file="log"))
    if scanner.problem is not None:
        assert str(problem) == str(scanner.problem)


def test_a_log_that_is_damaged_and_ends_early_behind_the_damage_is_called_too_short() -> None:
    whole = log_bytes([(2, 10), (2, 2 * WINDOW_BYTES)])
    short = bytearray(whole[:-5])
    short[MAGIC_POSITION] ^= 1
    with pytest.raises(SegmentChanged, match=f"^log: ended at byte {len(short)} of {len(whole)}"):
        check_log(reader(bytes(short)), len(whole), UNKNOWN, {}, file="log", indexes_file="indexes")


@pytest.mark.parametrize("data", [b"", log_bytes([(2, 10)])], ids=["empty", "one batch"])
def test_a_small_log_that_is_as_expected(data: bytes) -> None:
    count, epoch = (1, 5) if data else (0, -1)
    expected = ExpectedLog(0, 1, count, epoch, None, None)
    assert check_log(reader(data), len(data), expected, {}, file="log", indexes_file="i") == (crc32c(data), None)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_batch_above_every_window(magic: int) -> None:
    """It is read in pieces; what is wrong with it, and with the batch behind it, is reported as of a small one."""
    data = log_bytes([(2, 9), (magic, 17 << 20), (2, 9)])
    wide = slice(len(log_bytes([(2, 9)])), len(data) - len(log_bytes([(2, 9)])))
    assert finished(scan_bytes(data)).crc32c == crc32c(data)
    for at, word in ((wide.stop - 5, "checksum"), (wide.start + 7, "offset"), (wide.stop + 30, "checksum")):
        bad = bytearray(data)
        bad[at] = 0xFF if word == "checksum" else 0
        found, problem = check_log(reader(bytes(bad)), len(bad), UNKNOWN, {}, file="log", indexes_file="indexes")
        assert isinstance(problem, CorruptFile)
        assert word in str(problem)
        assert problem.position == (wide.start if at < wide.stop else wide.stop)
        assert found == crc32c(bad)
