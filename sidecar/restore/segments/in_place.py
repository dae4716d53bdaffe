"""Bytes of a file that is being written, read and replaced where they stand; an operating system may do less than it was asked."""

from __future__ import annotations

import os
from pathlib import Path

from sidecar.errors import PartitionError
from sidecar.restore.staging import translating


def bytes_at(descriptor: int, path: Path, position: int, size_bytes: int) -> bytearray:
    """Exactly these bytes. Raises PartitionError where the file has fewer, and as `translating` does."""
    buffer = bytearray(size_bytes)
    done_bytes = 0
    with translating(path), memoryview(buffer) as view:
        while done_bytes < size_bytes:
            count = os.preadv(descriptor, [view[done_bytes:]], position + done_bytes)
            if not count:
                raise PartitionError(
                    f"{path}: ends at byte {position + done_bytes}, expected {position + size_bytes} bytes at least: something "
                    f"else has cut it while it was written; run the same command again"
                )
            done_bytes += count
    return buffer


def put_at(descriptor: int, path: Path, position: int, content: bytes | bytearray | memoryview) -> None:
    """Write all of it there. Raises as `translating` does."""
    with translating(path), memoryview(content) as whole:
        done_bytes = 0
        while done_bytes < len(whole):
            done_bytes += os.pwrite(descriptor, whole[done_bytes:], position + done_bytes)
