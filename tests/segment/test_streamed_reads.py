"""Reads of a streamed object: in order from the stream, and again only what came before the last chunk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from sidecar.errors import ObjectDamaged
from sidecar.logformat.batches import in_memory
from sidecar.segment.archived_objects import StreamedReads

DATA = bytes(range(200))


def test_only_what_came_before_the_last_chunk_is_read_again() -> None:
    again: list[int] = []

    def read_again(position: int, buffer: memoryview) -> int:
        again.append(position)
        return in_memory(DATA)(position, buffer)

    reads = StreamedReads(iter([DATA[:70], DATA[70:140], DATA[140:]]), read_again)

    def read(position: int, size_bytes: int) -> bytes:
        buffer = memoryview(bytearray(size_bytes))
        return bytes(buffer[: reads.read_at(position, buffer)])

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
        assert reads.read_at(0, buffer) == 10
        assert reads.read_at(10, buffer) == 0
        assert reads.read_at(10, buffer) == 0
    assert closed == [True]
