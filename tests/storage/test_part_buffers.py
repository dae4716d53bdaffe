"""Buffers of parts: used again, freed when idle, and always filled with the right bytes."""

from __future__ import annotations

import random
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from crc32c import crc32c

from sidecar.errors import SegmentChanged
from sidecar.storage.s3.upload import PartBuffers
from sidecar.storage.source import BytesSource, FileSource

PART = 700_001  # no multiple of the reading step


def test_parts_of_a_file_are_read_whole_and_hashed(tmp_path: Path) -> None:
    content = random.Random(3).randbytes(PART * 5 + 17)
    (tmp_path / "f").write_bytes(content)
    buffers = PartBuffers(PART)
    with (tmp_path / "f").open("rb") as file:
        source = FileSource(file.fileno(), len(content))

        def check(position: int) -> bool:
            expected = content[position : position + PART]
            with buffers.part(source, position, len(expected)) as (body, crc):
                return bytes(body) == expected and crc == crc32c(expected)

        with ThreadPoolExecutor(3) as pool:
            assert all(pool.map(check, [*range(0, len(content), PART)] * 5))
    assert buffers._free == []


def test_a_buffer_is_used_again_while_another_is_lent(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(PART * 2))
    buffers = PartBuffers(PART)
    with (tmp_path / "f").open("rb") as file:
        source = FileSource(file.fileno(), PART * 2)
        with buffers.part(source, 0, PART):
            with buffers.part(source, PART, PART) as (buffer, _):
                first = buffer
            with buffers.part(source, PART, PART) as (second, _):
                assert first is second


def test_other_sources_and_short_parts_are_copies() -> None:
    buffers = PartBuffers(4)
    with buffers.part(BytesSource(b"0123456789"), 4, 4) as (body, crc):
        assert (body, crc) == (b"4567", crc32c(b"4567"))
    with buffers.part(BytesSource(b"0123456789"), 8, 2) as (body, crc):
        assert (body, crc) == (b"89", crc32c(b"89"))


def test_a_shrunken_file_gives_its_buffer_back(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(PART))
    buffers = PartBuffers(PART)
    with (tmp_path / "f").open("rb") as file:
        source = FileSource(file.fileno(), PART * 2, "f")
        for _ in range(3):
            with pytest.raises(SegmentChanged, match=rf"f: ends at byte {PART} "), buffers.part(source, PART, PART):
                pytest.fail("a part without bytes was handed out")
    assert (buffers._lent, buffers._free) == (0, [])


def test_what_is_read_of_a_file_is_in_memory_once(tmp_path: Path) -> None:
    size_bytes = 8 << 20
    (tmp_path / "f").write_bytes(bytes(size_bytes))
    with (tmp_path / "f").open("rb") as file:
        source = FileSource(file.fileno(), size_bytes)
        tracemalloc.start()
        try:
            assert len(source.read_at(0, size_bytes)) == size_bytes
            assert tracemalloc.get_traced_memory()[1] < size_bytes * 1.2
        finally:
            tracemalloc.stop()
