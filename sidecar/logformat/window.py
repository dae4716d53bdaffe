"""A reused buffer that slides over a file. Never a memory map: mapped pages count as resident memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from sidecar.errors import SegmentChanged
from sidecar.logformat.files import fill
from sidecar.logformat.headers import CRC_FROM, CURRENT_MAGIC, MAGIC_POSITION
from sidecar.logformat.library import checksum

ReadAt = Callable[[int, memoryview], int]
"""(position, buffer) -> bytes put into the buffer; fewer than asked is fine, 0 means the file ends there."""

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
    """`buffer[cursor:filled]` holds the file's bytes from `position` on."""

    def __init__(self, read_at: ReadAt, position: int, end_position: int, capacity_bytes: int, file: str) -> None:
        self._read_at = read_at
        self._end_position = end_position
        self._file = file
        self.position = position
        self.cursor = 0
        self.filled = 0
        capacity = min(capacity_bytes, max(end_position - position, 1))
        self.buffer: npt.NDArray[np.uint8] = _kept.taken(capacity)

    def close(self) -> None:
        """Release the memory; the buffer may not be used any more."""
        _kept.given_back(self.buffer)
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
        held = self.buffer[self.cursor : self.cursor + self.held_bytes]
        target = self.buffer if size_bytes <= self.buffer.shape[0] else np.empty(size_bytes, dtype=np.uint8)
        target[: held.shape[0]] = held
        self.buffer, self.cursor, self.filled = target, 0, held.shape[0]
        end = min(target.shape[0], self.remaining_bytes)
        self._fill(target[self.filled : end].data, self.position + self.filled)
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
