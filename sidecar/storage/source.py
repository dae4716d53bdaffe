"""Upload sources: bytes that can be read at any position from several threads at once."""

import os

from sidecar.errors import PartitionError, SegmentChanged


class FileSource:
    """An open file, of which `size_bytes` bytes are uploaded from `start_position` on. The caller owns the descriptor.

    Reads are `pread`, so threads share the descriptor without a lock. The file is never mapped: a truncated mapping
    would end the process with SIGBUS.
    """

    def __init__(self, descriptor: int, size_bytes: int, name: str = "", start_position: int = 0) -> None:
        self.size_bytes = size_bytes
        self.name = name or f"file descriptor {descriptor}"
        self._descriptor = descriptor
        self._start_position = start_position

    def read_at(self, position: int, size_bytes: int) -> memoryview:
        """See `UploadSource`. Raises PartitionError if the file system fails to read."""
        content = memoryview(bytearray(size_bytes))
        self.read_into(position, content)
        return content

    def read_into(self, position: int, buffer: memoryview) -> None:
        """Fill all of a buffer, so that memory can be used again. Raises as `read_at`."""
        position += self._start_position
        while len(buffer):
            try:
                count = os.preadv(self._descriptor, [buffer], position)
            except OSError as error:
                raise PartitionError(f"{self.name}, at byte {position}: cannot be read: {error.strerror}") from error
            if not count:
                listed_bytes = self._start_position + self.size_bytes
                raise SegmentChanged(
                    f"{self.name}: ends at byte {position} but had {listed_bytes} bytes when it was"
                    " listed; it was truncated or replaced; the next scan lists it again"
                )
            position, buffer = position + count, buffer[count:]


class BytesSource:
    """An `UploadSource` of bytes in memory. `read_at` raises SegmentChanged beyond their end."""

    def __init__(self, body: bytes) -> None:
        self.size_bytes = len(body)
        self.name = "memory"
        self._body = body

    def read_at(self, position: int, size_bytes: int) -> bytes:
        if position + size_bytes > self.size_bytes:
            raise SegmentChanged(
                f"{size_bytes} bytes at {position} were requested of {self.size_bytes} bytes in memory"
            )
        return self._body[position : position + size_bytes]
