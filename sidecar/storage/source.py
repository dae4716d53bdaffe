"""Upload sources: bytes that can be read at any position from several threads at once."""

from __future__ import annotations

import os

from sidecar.errors import PartitionError, SegmentChanged


class FileSource:
    """An open file, of which `size_bytes` bytes are uploaded from `start_position` on. The caller owns the descriptor.

    Reads are `pread`, so threads share the descriptor without a lock. The file is never mapped: a truncated mapping
    would end the process with SIGBUS.
    """

    def __init__(self, descriptor: int, size_bytes: int, name: str = "", start_position: int = 0) -> None:
        """Args: name: of the file, for messages."""
        self.size_bytes = size_bytes
        self._descriptor = descriptor
        self._start_position = start_position
        self._name = name or f"file descriptor {descriptor}"

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """See `UploadSource`. Raises PartitionError if the file system fails to read."""
        buffer = bytearray(size_bytes)
        self.read_into(position, memoryview(buffer))
        return bytes(buffer)

    def read_into(self, position: int, buffer: memoryview) -> None:
        """Fill all of a buffer, so that memory can be used again. As `read_at`; SegmentChanged if the file has become shorter."""
        filled_bytes = 0
        position += self._start_position
        while filled_bytes < len(buffer):
            try:
                read_bytes = os.preadv(self._descriptor, [buffer[filled_bytes:]], position + filled_bytes)
            except OSError as error:
                raise PartitionError(f"{self._name}, at byte {position}: cannot be read: {error.strerror}") from error
            if read_bytes == 0:
                listed_bytes = self._start_position + self.size_bytes
                raise SegmentChanged(
                    f"{self._name}: ends at byte {position + filled_bytes} but had {listed_bytes} bytes when it was"
                    " listed; it was truncated or replaced; the next scan lists it again"
                )
            filled_bytes += read_bytes


class BytesSource:
    """An `UploadSource` of bytes in memory. `read_at` raises SegmentChanged beyond their end."""

    def __init__(self, body: bytes) -> None:
        self.size_bytes = len(body)
        self._body = body

    def read_at(self, position: int, size_bytes: int) -> bytes:
        if position + size_bytes > self.size_bytes:
            raise SegmentChanged(
                f"{size_bytes} bytes at {position} were requested of {self.size_bytes} bytes in memory"
            )
        return self._body[position : position + size_bytes]
