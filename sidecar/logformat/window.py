"""A reused buffer that slides over a file or an object's chunks. Never a memory map: mapped pages count as resident memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Final

import numpy as np
import numpy.typing as npt

from sidecar.errors import ObjectDamaged, SegmentChanged
from sidecar.logformat.files import fill
from sidecar.logformat.headers import CRC_FROM, CURRENT_MAGIC, MAGIC_POSITION
from sidecar.logformat.library import checksum

ReadAt = Callable[[int, memoryview], int]
"""(position, buffer) -> bytes put into the buffer; fewer than asked is fine, 0 means the file ends there."""


class StreamedReads:
    """The chunks of an object as `ReadAt`. Almost all reads follow one another: those share one request.

    `again` reads bytes before the last chunk: the beginning of a batch that is larger than any window.
    """

    def __init__(self, chunks: Iterator[bytes], again: ReadAt) -> None:
        self._chunks = chunks
        self._again = again
        self._chunk = memoryview(b"")
        self.received_bytes = 0

    def __call__(self, position: int, buffer: memoryview) -> int:
        """See `ReadAt`. Raises what the chunks and `again` raise, but for an object that ends early: the caller knows its size."""
        piece = self.chunk_at(position)
        if piece is None:
            return self._again(position, buffer)
        piece = piece[: len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    def chunk_at(self, position: int) -> memoryview | None:
        """The last chunk itself from a position on, empty at the object's end; None before the chunk. Raises as the chunks do."""
        with suppress(ObjectDamaged):
            while position >= self.received_bytes and (chunk := next(self._chunks, b"")):
                self._chunk = memoryview(chunk)
                self.received_bytes += len(chunk)
        begin = position - (self.received_bytes - len(self._chunk))
        return None if begin < 0 else self._chunk[begin:]

    def close(self) -> None:
        if isinstance(self._chunks, Generator):
            self._chunks.close()


_STEP_BYTES: Final = 1024 * 1024
_KEPT_BYTES: Final = 2 * 1024 * 1024


class _Kept(threading.local):
    """The last window's memory, for the next window of the thread: the kernel clears new pages, half as slowly as it reads."""

    memory: npt.NDArray[np.uint8] | None = None

    def taken(self, size_bytes: int) -> npt.NDArray[np.uint8]:
        memory, self.memory = self.memory, None
        if memory is None or memory.shape[0] < size_bytes:
            memory = np.empty(size_bytes, dtype=np.uint8)
        return memory[:size_bytes]

    def given_back(self, buffer: npt.NDArray[np.uint8]) -> None:
        memory = buffer if buffer.base is None else buffer.base
        if isinstance(memory, np.ndarray) and memory.shape[0] <= _KEPT_BYTES:
            self.memory = memory


_kept = _Kept()


class Window:
    """`buffer[cursor:filled]` holds the file's bytes from `position` on: in memory of its own, or in a chunk of a stream."""

    def __init__(self, read_at: ReadAt, position: int, end_position: int, capacity_bytes: int, file: str) -> None:
        self._read_at = read_at
        self._end_position = end_position
        self._file = file
        self.position = position
        self.cursor = 0
        self.filled = 0
        capacity = min(capacity_bytes, max(end_position - position, 1))
        self.buffer = self._memory = _kept.taken(capacity)

    def close(self) -> None:
        """Release the memory; the buffer may not be used any more."""
        _kept.given_back(self._memory)
        self.buffer, self.filled = np.empty(0, dtype=np.uint8), 0

    @property
    def held_bytes(self) -> int:
        return max(self.filled - self.cursor, 0)

    @property
    def remaining_bytes(self) -> int:
        return self._end_position - self.position

    def advance(self, size_bytes: int) -> None:
        """Move the cursor, possibly to behind the buffered bytes."""
        self.cursor += size_bytes
        self.position += size_bytes

    def int_at(self, index: int, width: int) -> int:
        """The signed big-endian integer `index` bytes behind the cursor, which must be buffered."""
        return int.from_bytes(self.buffer[self.cursor + index : self.cursor + index + width].tobytes(), signed=True)

    def hold(self, size_bytes: int) -> None:
        """Have at least `size_bytes` from the cursor on in the buffer, and as much more as it takes.

        The caller has checked that the file has them. Raises SegmentChanged if it has become shorter.
        """
        held, source = self.buffer[self.cursor : self.cursor + self.held_bytes], self._read_at
        if size_bytes <= held.shape[0]:
            return
        self.cursor = 0
        if isinstance(source, StreamedReads):
            # Only the batch that two chunks share is copied: the next walk begins in the chunk itself.
            chunk = None if held.shape[0] else source.chunk_at(self.position)
            if chunk is not None and size_bytes <= len(chunk):
                self.buffer = np.frombuffer(chunk, dtype=np.uint8)
                self.filled = min(len(chunk), self.remaining_bytes)
                return
            end = size_bytes
        else:
            end = min(max(size_bytes, self._memory.shape[0]), self.remaining_bytes)
        if size_bytes > self._memory.shape[0]:
            self._memory = np.empty(size_bytes, dtype=np.uint8)
        self._memory[: held.shape[0]] = held
        self.buffer, self.filled = self._memory, held.shape[0]
        self._fill(self.buffer[self.filled : end].data, self.position + self.filled)
        self.filled = end

    def zeros_ahead(self) -> bool:
        """Whether the file holds nothing but zero bytes from the cursor on."""
        return all(not piece.any() for piece in self._pieces(0, self.remaining_bytes))

    def checksums_ahead(self, size_bytes: int, file_crc: int) -> tuple[int, int]:
        """Of the batch at the cursor, of which only the header need be buffered: its checksum, and the file's CRC-32C up to
        its end, continued from `file_crc`."""
        magic, crc = self.int_at(MAGIC_POSITION, 1), 0
        begin = CRC_FROM[magic]
        file_crc = checksum(CURRENT_MAGIC, self.buffer[self.cursor : self.cursor + begin], file_crc)
        for piece in self._pieces(begin, size_bytes):
            crc, file_crc = checksum(magic, piece, crc), checksum(CURRENT_MAGIC, piece, file_crc)
        return crc, file_crc

    def _pieces(self, begin: int, end: int) -> Iterator[npt.NDArray[np.uint8]]:
        """The file's bytes `[begin, end)` behind the cursor, read without the window."""
        scratch = np.empty(min(_STEP_BYTES, end - begin), dtype=np.uint8)
        for at in range(begin, end, _STEP_BYTES):
            piece = scratch[: min(_STEP_BYTES, end - at)]
            self._fill(piece.data, self.position + at)
            yield piece

    def _fill(self, target: memoryview, position: int) -> None:
        if fill(self._read_at, position, target) < len(target):
            raise SegmentChanged(
                f"{self._file or 'segment'}: became shorter than {self._end_position} bytes while it was read"
            )
