"""Upload sources: bytes that can be read at any position from several threads at once."""

from __future__ import annotations

import os

from sidecar.errors import PartitionError, SegmentChanged


class FileSource:
    """An open file, of which the first `size_bytes` bytes are uploaded. The caller owns the descriptor.

    Reads are `pread`, so threads share the descriptor without a lock. The file is never mapped: a truncated mapping
    would end the process with SIGBUS.
    """

    def __init__(self, descriptor: int, size_bytes: int, name: str = "") -> None:
        """Args: name: of the file, for messages."""
        self.size_bytes = size_bytes
        self._descriptor = descriptor
        self._name = name or f"file descriptor {descriptor}"

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """See `UploadSource`. Raises PartitionError if the file system fails to read."""
        pieces: list[bytes] = []
        missing_bytes = size_bytes
        while missing_bytes > 0:
            try:
                piece = os.pread(self._descriptor, missing_bytes, position + size_bytes - missing_bytes)
            except OSError as error:
                raise PartitionError(f"{self._name}, at byte {position}: cannot be read: {error.strerror}") from error
            if not piece:
                end = position + size_bytes - missing_bytes
                raise SegmentChanged(
                    f"{self._name}: ends at byte {end} but had {self.size_bytes} bytes when it was listed;"
                    " it was truncated or replaced meanwhile and will be looked at again"
                )
            pieces.append(piece)
            missing_bytes -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class BytesSource:
    """Bytes in memory."""

    def __init__(self, body: bytes) -> None:
        self.size_bytes = len(body)
        self._body = body

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """See `UploadSource`."""
        if position + size_bytes > self.size_bytes:
            raise SegmentChanged(f"{size_bytes} bytes at {position} were asked of {self.size_bytes} bytes in memory")
        return self._body[position : position + size_bytes]
