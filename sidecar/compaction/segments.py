"""What the stages work on: segments, the byte ranges they are split into, and how those bytes are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from crc32c import crc32c

from sidecar.errors import CorruptFile, SegmentChanged
from sidecar.logformat.batches import SegmentScanner
from sidecar.logformat.columns import BatchColumns, Blocks, Stop, allocate, columns_of
from sidecar.logformat.headers import LARGEST_POSITION
from sidecar.logformat.indexes.rebuild import INDEX_INTERVAL_BYTES
from sidecar.logformat.indexes.time_index import ENTRY as TIME_ENTRY
from sidecar.logformat.library import walk_batches
from sidecar.logformat.window import ReadAt, Window

MIB: Final = 1024 * 1024
SPLIT_BYTES: Final = 64 * MIB
WINDOW_BYTES: Final = 8 * MIB
"""Smaller ones cost more for their parts of batches at both ends than they save in caches."""
LARGEST_BATCH_BYTES: Final = 512 * MIB
_ROWS: Final = 16_384
_RELEASE_GIL: Final = 1


@dataclass(frozen=True, slots=True)
class SegmentInput:
    """A segment to be compacted, `[base_offset, end_offset)`; `end_offset` is the base of the next one.

    `file` is for messages. `last_modified_ms` decides on legacy tombstones. `forgets_below`: its producer snapshot leaves out on
    purpose who wrote below its base, so that it is joined to nothing below.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    read_at: ReadAt
    file: str = ""
    last_modified_ms: int = 0
    index_bytes: int = 0
    forgets_below: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """Bytes `[begin, end)` of a segment: whole batches. `number` counts the splits of a partition in log order."""

    number: int
    segment: int
    begin: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.begin


def largest_index_bytes(size_bytes: int) -> int:
    """What the larger index of a log of so many bytes may need: its own size proves nothing, files may be allocated in advance."""
    return TIME_ENTRY.itemsize * (size_bytes // INDEX_INTERVAL_BYTES + 1)


def pieces_of(segment: SegmentInput) -> Iterator[memoryview]:
    """All bytes of a segment as they are, in order; each piece is void when the next is asked for. Raises SegmentChanged."""
    buffer = memoryview(bytearray(min(WINDOW_BYTES, segment.size_bytes)))
    position = 0
    while position < segment.size_bytes:
        count = segment.read_at(position, buffer[: min(len(buffer), segment.size_bytes - position)])
        if count <= 0:
            raise SegmentChanged(f"{segment.file}: ended at byte {position} of {segment.size_bytes} while it was read")
        yield buffer[:count]
        position += count


@dataclass(frozen=True, slots=True)
class Chunk:
    """Batches `[0, rows)` of `blocks`, all within `buffer`, whose first byte is byte `file_position` of the file.

    `split_crc32c`: of the split up to their end, from their own checksums. It means nothing where these were not checked.
    """

    buffer: np.ndarray[tuple[int], np.dtype[np.uint8]]
    file_position: int
    blocks: Blocks
    rows: int
    split_crc32c: int

    def columns(self) -> BatchColumns:
        """The headers; a copy where they are few."""
        return columns_of(self.blocks, self.rows)

    def batch(self, row: int) -> memoryview:
        """The bytes of one batch; valid until the next chunk."""
        return self._batches(row, row)

    def crc32c(self, before: int = 0) -> int:
        """CRC-32C of all its batches, continued from `before`. Unlike their own it covers offsets and leader epochs."""
        return crc32c(self._batches(0, self.rows - 1), before, gil_release_mode=_RELEASE_GIL)

    def _batches(self, first: int, last: int) -> memoryview:
        begin, end = (int(self.blocks[0][0, row]) - self.file_position for row in (first, last))
        return self.buffer.data[begin : end + int(self.blocks[1][0, last])]


def chunks(
    segment: SegmentInput, split: Split, *, check_crc: bool = True, window_bytes: int = WINDOW_BYTES
) -> Iterator[Chunk]:
    """The batches of a split with the buffer they lie in; each chunk is void when the next is asked for.

    Memory: one window, which grows to the largest batch. Raises CorruptFile with the position, SegmentChanged.
    """
    window = Window(segment.read_at, split.begin, split.end, window_bytes, segment.file)
    blocks = allocate(_ROWS)
    smallest, largest = segment.base_offset, min(segment.base_offset + LARGEST_POSITION, 2**63 - 2)
    needed, checksum = 1, 0
    while window.remaining_bytes:
        if window.held_bytes < min(needed, window.remaining_bytes):
            window.hold(min(needed, window.remaining_bytes))
        begin, position = window.cursor, window.position
        limits = smallest, largest, check_crc, LARGEST_BATCH_BYTES
        at, rows, smallest, code, detail, checksum = walk_batches(
            window.buffer, begin, window.filled, position, *blocks, 0, *limits, -1, checksum
        )
        window.advance(at - begin)
        if rows:
            yield Chunk(window.buffer, position - begin, blocks, int(rows), int(checksum))
        if code != Stop.COLUMNS_FULL and window.remaining_bytes:
            if code != Stop.MORE_BYTES or detail > window.remaining_bytes:
                raise _problem(segment, split, window.position, int(smallest), Stop(code), int(detail))
            needed = int(detail)


def _problem(segment: SegmentInput, split: Split, position: int, smallest: int, stop: Stop, detail: int) -> CorruptFile:
    """What is wrong at a position, in the words of the scanner."""
    if stop is Stop.BATCH_TOO_WIDE and detail <= split.end - position:
        what = (
            f"a batch of {detail} bytes; batches above {LARGEST_BATCH_BYTES} bytes cannot be compacted: exclude the "
            "topic from compaction"
        )
        return CorruptFile(what, file=segment.file, position=position)
    if stop is Stop.MORE_BYTES and split.end < segment.size_bytes:
        what = (
            f"no batch ends at byte {split.end}, but one ended there when the segment was first read: compact it again"
        )
        return CorruptFile(what, file=segment.file, position=position)
    scanner = SegmentScanner(
        segment.read_at, split.end, base_offset=segment.base_offset, file=segment.file, start_position=position
    )
    for _ in scanner:
        break
    problem = scanner.problem
    if problem is not None:
        return problem
    what = f"an offset below {smallest}, where the batch before ended"
    return CorruptFile(what, file=segment.file, position=position)
