"""Buffers for parts under way, lent to one worker at a time and used again.

A fresh allocation per part costs a page fault for every 4 KiB of it: as much CPU as the whole rest of sending it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sidecar.ports import UploadSource
from sidecar.storage.checksums import crc32c_of
from sidecar.storage.source import ReadsInto

_STEP_BYTES = 256 * 1024
"""Read and hashed at a time: what was just read is hashed while it is in the processor's cache."""


class PartBuffers:
    """Buffers of one size. All are freed when none is in use, so an idle sidecar keeps none."""

    def __init__(self, part_bytes: int) -> None:
        self.part_bytes = part_bytes
        self._free: list[bytearray] = []
        self._lent = 0
        self._lock = threading.Lock()

    @contextmanager
    def part(self, source: UploadSource, position: int, size_bytes: int) -> Iterator[tuple[bytes | bytearray, int]]:
        """The bytes of a part and their CRC-32C; valid until the block is left.

        botocore takes no memoryview, so only parts that fill a buffer are sent from it; the last part is a copy.
        """
        if size_bytes != self.part_bytes or not isinstance(source, ReadsInto):
            body = bytes(source.read_at(position, size_bytes))
            yield body, crc32c_of(body)
            return
        buffer = self._take()
        try:
            yield buffer, _fill(buffer, source, position)
        finally:
            self._give_back(buffer)

    def _take(self) -> bytearray:
        with self._lock:
            self._lent += 1
            if self._free:
                return self._free.pop()
        return bytearray(self.part_bytes)

    def _give_back(self, buffer: bytearray) -> None:
        with self._lock:
            self._lent -= 1
            if self._lent == 0:
                self._free.clear()
            else:
                self._free.append(buffer)


def _fill(buffer: bytearray, source: ReadsInto, position: int) -> int:
    crc32c = 0
    with memoryview(buffer) as whole:
        for start in range(0, len(whole), _STEP_BYTES):
            with whole[start : start + _STEP_BYTES] as step:
                source.read_into(position + start, step)
                crc32c = crc32c_of(step, crc32c)
    return crc32c
