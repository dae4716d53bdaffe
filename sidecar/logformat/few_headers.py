"""A walk over a few batch headers in plain Python: for a check that is not worth loading the compiled kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from sidecar.logformat.files import fill
from sidecar.logformat.headers import (
    BATCH_HEADER,
    CRC_FROM,
    CURRENT_MAGIC,
    PREFIX_BYTES,
    SMALLEST_MESSAGE_BYTES,
    BatchHeader,
)
from sidecar.logformat.window import ReadAt

HEADERS_MAX: Final = 64
WHOLE_BATCH_BYTES_MAX: Final = 2 * 1024 * 1024


class NotFew(Exception):
    """More batches than a few, another format than v2, or something that is not a batch."""


def few_headers(read_at: ReadAt, position: int, size_bytes: int, smallest_offset: int) -> Iterator[BatchHeader]:
    """The headers from `position`, the first byte of a batch, to the end of the file. Checksums are not checked.

    Args:
        size_bytes: of the file. smallest_offset: no base offset lies below it.

    Raises NotFew, also in the midst of the iteration.
    """
    for _ in range(HEADERS_MAX):
        if position == size_bytes:
            return
        header = BATCH_HEADER.read(_read(read_at, position, BATCH_HEADER.size_bytes))
        batch_bytes = PREFIX_BYTES + header.batch_length
        is_plausible = (
            header.magic == CURRENT_MAGIC
            and SMALLEST_MESSAGE_BYTES[CURRENT_MAGIC] <= batch_bytes <= size_bytes - position
            and header.base_offset >= smallest_offset
            and 0 <= header.record_count <= header.last_offset_delta + 1
        )
        if not is_plausible:
            raise NotFew
        yield header
        smallest_offset = header.base_offset + header.last_offset_delta + 1
        position += batch_bytes
    raise NotFew


def is_whole_batch(read_at: ReadAt, position: int, header: BatchHeader) -> bool:
    """Whether the bytes of the batch at `position` have the checksum that its header says. Raises NotFew if it is large."""
    batch_bytes = PREFIX_BYTES + header.batch_length
    if batch_bytes > WHOLE_BATCH_BYTES_MAX:
        raise NotFew
    begin = CRC_FROM[CURRENT_MAGIC]
    return crc32c(_read(read_at, position + begin, batch_bytes - begin)) == header.crc


def _read(read_at: ReadAt, position: int, size_bytes: int) -> bytes:
    """Exactly so many bytes. Raises NotFew where the file ends before."""
    content = bytearray(size_bytes)
    if fill(read_at, position, memoryview(content)) < size_bytes:
        raise NotFew
    return bytes(content)
