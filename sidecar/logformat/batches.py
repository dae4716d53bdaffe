"""A segment file as columns of batch headers, in chunks, with memory that does not grow with the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from producer_state.kernel_library import Prepared
from sidecar.errors import CorruptFile
from sidecar.logformat.columns import BatchColumns, Stop, allocate, columns_of
from sidecar.logformat.files import LazyFile, PositionalFile
from sidecar.logformat.headers import (
    CRC_POSITION,
    CURRENT_MAGIC,
    LARGEST_POSITION,
    MAGIC_POSITION,
    SMALLEST_MESSAGE_BYTES,
)
from sidecar.logformat.library import walk_batches, walk_file
from sidecar.logformat.window import ReadAt, Window

__all__ = ["HEADERS_WINDOW_BYTES", "BatchColumns", "ScanEnd", "SegmentScanner", "scan_bytes", "scan_file"]

MIB: Final = 1024 * 1024
HEADERS_WINDOW_BYTES: Final = 16 * 1024
"""For walks over a local file without checksums: of batches above this size only the headers are read."""
_OFFSET_AND_SIZE_BYTES: Final = 12


class ScanEnd(StrEnum):
    """How a segment file ended."""

    EXACT = "exact"
    PARTIAL_TAIL = "partial_tail"
    ZERO_TAIL = "zero_tail"
    CORRUPT = "corrupt"


class SegmentScanner:
    """Walks one segment file, batch by batch, checking each.

    Iterate once: it yields `BatchColumns` chunks in file order, each with its own memory, none empty. Afterwards
    `valid_bytes`, `end`, `problem` and `batch_count` say how far the file is good, and `crc32c` is the checksum of these bytes:
    it follows from the batches' own. (Without `check_crc` it means nothing.) Memory: one window, plus the chunk.
    A rolled segment is whole only if `end` is EXACT: a broker's reader passes over tails in silence.
    Source: FileLogInputStream.nextBatch, DefaultRecordBatch.ensureValid, LegacyRecord.ensureValid.
    """

    def __init__(
        self,
        read_at: ReadAt,
        size_bytes: int,
        *,
        base_offset: int | None = None,
        file: str = "",
        check_crc: bool = True,
        window_bytes: int = 2 * MIB,
        max_batches: int = 65_536,
        start_position: int = 0,
        largest_window_bytes: int = 16 * MIB,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """Args:
        read_at: fills a buffer from a position; returns how many bytes it put there, 0 at the file's end.
        size_bytes: where the walk ends; the file must have that many bytes.
        base_offset: of the segment; offsets must lie within 2^31-1 above it. None: not known, any offset goes.
        max_batches: rows of a chunk.
        start_position: where the walk begins; must be the first byte of a batch.
        largest_window_bytes: the window grows up to this for a larger batch; above it a batch is checksummed in pieces.
        close: called when the iteration ends.
        """
        self._read_at = read_at
        self._size_bytes = size_bytes
        self._file = file
        self._check_crc = check_crc
        self._largest_held_bytes = max(window_bytes, largest_window_bytes, _SMALLEST_WINDOW_BYTES)
        self._window = Window(read_at, start_position, size_bytes, max(window_bytes, _SMALLEST_WINDOW_BYTES), file)
        self._max_batches = max_batches
        self._close = close
        self._smallest_offset = 0 if base_offset is None else base_offset
        self._largest_offset = (
            min(self._smallest_offset + LARGEST_POSITION, 2**63 - 2) if base_offset is not None else 2**63 - 2
        )
        self._wide_batch_file_crc = -1
        self._end: ScanEnd | None = None
        self.valid_bytes = start_position
        self.crc32c = 0
        self.problem: CorruptFile | None = None
        self.batch_count = 0

    @property
    def end(self) -> ScanEnd:
        """How the file ended. Raises RuntimeError before the iteration is through."""
        if self._end is None:
            raise RuntimeError(f"the scan of {self._file or 'this segment'} is not finished")
        return self._end

    def require_exact(self) -> None:
        """Raise the problem, if any: for callers that do not use the tail."""
        if self.end is not ScanEnd.EXACT and self.problem is not None:
            raise self.problem

    def __iter__(self) -> Iterator[BatchColumns]:
        try:
            while self._end is None:
                chunk = self._next_chunk()
                self.batch_count += len(chunk)
                if len(chunk):
                    yield chunk
        finally:
            self._window.close()
            self._close()

    def _next_chunk(self) -> BatchColumns:
        blocks = allocate(min(self._max_batches, self._window.remaining_bytes // SMALLEST_MESSAGE_BYTES[0] + 1))
        prepared = list(map(Prepared.of, blocks))
        rows = 0
        while self._end is None:
            rows, code, detail = self._walk(prepared, rows)
            self._wide_batch_file_crc = -1
            self.valid_bytes = self._window.position
            if code == Stop.COLUMNS_FULL:
                break
            self._go_on(Stop(code), int(detail))
        return columns_of(blocks, int(rows))

    def _walk(self, blocks: Sequence[Prepared], rows: int) -> tuple[int, int, int]:
        """Fill the columns as far as the window goes, or the file where the kernel can read it: (rows, stop, detail)."""
        window, source = self._window, self._read_at
        limits = self._smallest_offset, self._largest_offset, self._check_crc, self._largest_held_bytes
        state = rows, *limits, self._wide_batch_file_crc, self.crc32c
        begin = window.cursor
        if isinstance(source, PositionalFile | LazyFile):
            at, rows, self._smallest_offset, code, detail, self.crc32c, window.filled, window.position = walk_file(
                source.descriptor,
                source.start_position,
                self._size_bytes,
                window.buffer,
                begin,
                window.filled,
                window.position,
                *blocks,
                *state,
            )
            window.cursor = at
        else:
            at, rows, self._smallest_offset, code, detail, self.crc32c = walk_batches(
                window.buffer, begin, window.filled, window.position, *blocks, *state
            )
            window.advance(at - begin)
        return rows, code, detail

    def _go_on(self, stop: Stop, detail: int) -> None:
        """Do what the walk needs next, or settle how the file ends."""
        remaining = self._window.remaining_bytes
        if self._size_bytes > LARGEST_POSITION:
            self._finish(
                ScanEnd.CORRUPT, f"a file of {self._size_bytes} bytes; a segment has at most {LARGEST_POSITION}"
            )
        elif remaining == 0:
            self._finish(ScanEnd.EXACT, "")
        elif stop in (Stop.MORE_BYTES, Stop.BATCH_TOO_WIDE) and detail <= remaining:
            if stop is Stop.MORE_BYTES:
                self._window.hold(detail)
            else:
                self._check_ahead(detail)
        elif stop in (Stop.MORE_BYTES, Stop.SIZE) and self._window.zeros_ahead():
            # A batch begins with its base offset and its size, whose high bytes may be zero.
            cut = "the beginning of a batch that was cut, " if remaining < _OFFSET_AND_SIZE_BYTES else ""
            what = f"{remaining} zero bytes follow the last batch ({cut}never written, or lost in a crash)"
            self._finish(ScanEnd.ZERO_TAIL, what)
        elif stop in (Stop.MORE_BYTES, Stop.BATCH_TOO_WIDE):
            self._finish(ScanEnd.PARTIAL_TAIL, f"the last batch is cut: {remaining} bytes left of at least {detail}")
        else:
            self._finish(ScanEnd.CORRUPT, self._describe(stop, detail))

    def _check_ahead(self, size_bytes: int) -> None:
        """Check the batch at the cursor, which is larger than any window, so that the walk can pass it."""
        if not self._check_crc:
            self._wide_batch_file_crc = 0
            return
        self._window.hold(SMALLEST_MESSAGE_BYTES[CURRENT_MAGIC])
        crc, self._wide_batch_file_crc = self._window.checksums_ahead(size_bytes, self.crc32c)
        if crc != self._stored_crc:
            self._finish(ScanEnd.CORRUPT, self._describe(Stop.CRC, crc))

    @property
    def _stored_crc(self) -> int:
        at = CRC_POSITION[self._window.int_at(MAGIC_POSITION, 1)]
        return self._window.int_at(at, 4) & 0xFFFFFFFF

    def _finish(self, end: ScanEnd, what: str) -> None:
        self._end = end
        if end is not ScanEnd.EXACT:
            offset = None
            if self._window.remaining_bytes >= _OFFSET_AND_SIZE_BYTES:
                if self._window.held_bytes < _OFFSET_AND_SIZE_BYTES:
                    self._window.hold(_OFFSET_AND_SIZE_BYTES)
                offset = self._window.int_at(0, 8)
            self.problem = CorruptFile(what, file=self._file, position=self._window.position, offset=offset)

    def _describe(self, stop: Stop, detail: int) -> str:
        match stop:
            case Stop.SIZE:
                return f"size field {self._window.int_at(8, 4)}, expected at least {detail - 12} for this magic"
            case Stop.MAGIC:
                return (
                    f"magic {detail}, expected 0, 1 or 2; if a newer broker wrote this, use a newer release of this "
                    "program"
                )
            case Stop.BASE_OFFSET:
                return f"offset {detail}, expected at least {self._smallest_offset}: below the segment's base or the batch before"
            case Stop.LAST_OFFSET:
                return f"offset {detail} and up, the segment's largest possible is {self._largest_offset}"
            case Stop.LAST_OFFSET_DELTA:
                return f"last offset delta {detail}, expected at least 0"
            case Stop.RECORD_COUNT:
                return f"{detail} records, expected 0 to {self._window.int_at(23, 4) + 1}, as many as the batch has offsets"
            case Stop.CODEC:
                return f"codec {detail} is unknown for this magic"
            case _:
                return f"checksum {detail:08x}, the batch says {self._stored_crc:08x}: damaged"


_SMALLEST_WINDOW_BYTES = 64


def scan_bytes(data: bytes | bytearray | memoryview, **options: Any) -> SegmentScanner:
    """Scan a segment in memory; options as of SegmentScanner."""
    return SegmentScanner(in_memory(data), len(data), **options)


def in_memory(data: bytes | bytearray | memoryview) -> ReadAt:
    """Bytes that are read as a file is."""
    source = memoryview(data)

    def read_at(position: int, buffer: memoryview) -> int:
        piece = source[position : position + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    return read_at


def scan_file(path: Path, **options: Any) -> SegmentScanner:
    """Scan a segment file; options as of SegmentScanner. Raises SegmentChanged if the file is gone."""
    source = LazyFile(path)
    options.setdefault("file", str(path))
    return SegmentScanner(source, source.size_bytes, close=source.close, **options)
