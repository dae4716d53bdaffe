"""Reads of a streamed object: in order from the stream, without a copy, and again only what came before the last chunk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from sidecar.errors import ObjectDamaged
from sidecar.logformat.batches import SegmentScanner, in_memory
from sidecar.logformat.window import StreamedReads, Window
from tests.logformat.raw_batches import batch_bytes, rows

DATA = bytes(range(200))


def test_only_what_came_before_the_last_chunk_is_read_again() -> None:
    again: list[int] = []

    def read_again(position: int, buffer: memoryview) -> int:
        again.append(position)
        return in_memory(DATA)(position, buffer)

    reads = StreamedReads(iter([DATA[:70], DATA[70:140], DATA[140:]]), read_again)

    def read(position: int, size_bytes: int) -> bytes:
        buffer = memoryview(bytearray(size_bytes))
        return bytes(buffer[: reads(position, buffer)])

    assert read(0, 50) == DATA[:50]
    assert read(50, 50) == DATA[50:70]
    assert read(20, 20) == DATA[20:40]
    assert read(70, 50) == DATA[70:120]
    assert again == []
    assert read(60, 20) == DATA[60:80]
    assert read(120, 50) == DATA[120:140]
    assert read(190, 20) == DATA[190:]
    assert read(0, 200) == DATA
    assert again == [60, 0]
    assert read(200, 1) == b""
    assert reads.received_bytes == 200


def test_an_object_that_ends_early_ends_there() -> None:
    closed = []

    def chunks() -> Iterator[bytes]:
        try:
            yield DATA[:10]
            raise ObjectDamaged("ends early")
        finally:
            closed.append(True)

    with closing(StreamedReads(chunks(), in_memory(b""))) as reads:
        buffer = memoryview(bytearray(20))
        assert reads(0, buffer) == 10
        assert reads(10, buffer) == 0
        assert reads(10, buffer) == 0
    assert closed == [True]


def test_a_window_holds_a_chunk_itself_and_copies_only_what_two_chunks_share() -> None:
    first, second = DATA[:120], DATA[120:]
    window = Window(StreamedReads(iter([first, second]), in_memory(b"")), 0, len(DATA), 64, "")
    window.hold(10)
    assert np.shares_memory(window.buffer, np.frombuffer(first, dtype=np.uint8))
    assert (window.cursor, window.filled) == (0, 120)
    window.advance(115)
    window.hold(20)
    assert window.buffer[window.cursor : window.filled].tobytes() == DATA[115:135]
    window.advance(20)
    window.hold(1)
    assert np.shares_memory(window.buffer, np.frombuffer(second, dtype=np.uint8))
    assert window.buffer[window.cursor : window.filled].tobytes() == DATA[135:]


LARGE = b"\x01" * 3000
BATCHES = b"".join(batch_bytes(offset, body) for offset, body in enumerate([b"", b"abc", LARGE, b"", LARGE, b"x"]))


@pytest.mark.parametrize("tail", [b"", bytes(40), BATCHES[:30], b"\xff" * 90], ids=["exact", "zeros", "cut", "damaged"])
@pytest.mark.parametrize("chunk_bytes", [1, 7, 61, 64, 500, 3100, 100_000])
@pytest.mark.parametrize("largest_window_bytes", [1000, 1 << 24])
def test_a_walk_over_chunks_finds_what_a_walk_over_the_file_finds(
    tail: bytes, chunk_bytes: int, largest_window_bytes: int
) -> None:
    data = BATCHES + tail

    def found(scanner: SegmentScanner) -> tuple[object, ...]:
        return rows(scanner), scanner.end, str(scanner.problem), scanner.valid_bytes, scanner.crc32c

    chunks = (data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes))
    whole, streamed = (
        SegmentScanner(read_at, len(data), window_bytes=100, largest_window_bytes=largest_window_bytes)
        for read_at in (in_memory(data), StreamedReads(chunks, in_memory(data)))
    )
    assert found(streamed) == found(whole)


def test_what_an_object_has_behind_the_segment_is_not_in_the_window() -> None:
    window = Window(StreamedReads(iter([DATA]), in_memory(b"")), 0, 150, 64, "")
    window.hold(10)
    assert (window.filled, window.remaining_bytes) == (150, 150)


@pytest.mark.parametrize("chunk_bytes", [61, 3100, 100_000])
def test_batches_behind_the_segment_in_its_object_are_not_walked(chunk_bytes: int) -> None:
    object_ = BATCHES + batch_bytes(6)
    chunks = (object_[at : at + chunk_bytes] for at in range(0, len(object_), chunk_bytes))
    scanner = SegmentScanner(StreamedReads(chunks, in_memory(object_)), len(BATCHES))
    assert [row["base_offset"] for row in rows(scanner)] == list(range(6))
    assert (scanner.end, scanner.valid_bytes) == ("exact", len(BATCHES))
