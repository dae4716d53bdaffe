"""Decompression of batches into reused memory: a new buffer for each batch halves the speed of the fast codecs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import zstandard

from sidecar.errors import CorruptFile
from sidecar.logformat.bodies.codecs import DEFAULT_LIMIT_BYTES, compress, decompress, require_whole_zstd_frames
from sidecar.logformat.headers import MAGIC_POSITION, MESSAGE_HEADER, TIMESTAMPED_MESSAGE_HEADER, Codec

_FIRST_BUFFER_BYTES: Final = 1024 * 1024

Body = np.ndarray[tuple[int], np.dtype[np.uint8]]


def wrapped_stream(batch: memoryview) -> memoryview:
    """The compressed set of a legacy wrapper, given all its bytes. Raises CorruptFile without position."""
    at = (MESSAGE_HEADER, TIMESTAMPED_MESSAGE_HEADER)[batch[MAGIC_POSITION]].size_bytes
    for field in ("key", "value"):
        size = int.from_bytes(batch[at : at + 4], signed=True)
        at += 4
        if len(batch) < at + max(size, 0):
            raise CorruptFile(f"a {field} of {size} bytes where {len(batch) - at} are left")
        if field == "value" and (size < 0 or at + size != len(batch)):
            raise CorruptFile(f"a compressed message whose value has {size} bytes where {len(batch) - at} are left")
        at += max(size, 0) if field == "key" else 0
    return batch[at:]


class Inflater:
    """Decompresses one batch at a time; what it returns is void at the next call. Not to be shared between threads."""

    def __init__(self) -> None:
        self._buffer: Body = np.empty(_FIRST_BUFFER_BYTES, dtype=np.uint8)
        self._zstd = zstandard.ZstdDecompressor()
        self._zstd_compressor = zstandard.ZstdCompressor(level=3, write_content_size=False)

    def inflate(self, codec: int, stream: memoryview, magic: int = 2) -> tuple[Body, int]:
        """A buffer and how many bytes of it count. Raises CorruptFile without position."""
        if codec != Codec.ZSTD or magic < 2:
            body = np.frombuffer(
                decompress(codec, stream, magic=magic, limit_bytes=DEFAULT_LIMIT_BYTES), dtype=np.uint8
            )
            return body, len(body)
        data = bytes(stream)
        require_whole_zstd_frames(data)
        try:
            with self._zstd.stream_reader(data, read_across_frames=True) as reader:
                filled = self._fill(reader)  # which may replace the buffer
                return self._buffer, filled
        except zstandard.ZstdError as error:
            raise CorruptFile(f"a damaged zstd stream of {len(data)} bytes: {error}") from error

    def deflate(self, codec: int, body: memoryview) -> bytes:
        """As `codecs.compress` for magic 2, with a compressor that is made once."""
        return self._zstd_compressor.compress(body) if codec == Codec.ZSTD else compress(codec, body)

    def _fill(self, reader: Any) -> int:
        filled = 0
        while count := reader.readinto(self._buffer[filled:].data):
            filled += count
            if filled > DEFAULT_LIMIT_BYTES:
                raise CorruptFile(f"the stream has more than the {DEFAULT_LIMIT_BYTES} bytes allowed for one batch")
            if filled == len(self._buffer):
                grown: Body = np.empty(2 * filled, dtype=np.uint8)
                grown[:filled] = self._buffer
                self._buffer = grown
        return filled
