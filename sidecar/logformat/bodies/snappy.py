"""Snappy in the block framing of the Java library ("xerial"), and bare, as librdkafka writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import cramjam

from sidecar.errors import CorruptFile

FOREIGN_ERRORS: tuple[type[Exception], ...] = (cramjam.DecompressionError,)

_MAGIC: Final = bytes.fromhex("82534e4150505900")
_VERSIONS: Final = (1).to_bytes(4) + (1).to_bytes(4)
_HEADER_BYTES: Final = len(_MAGIC) + len(_VERSIONS)
_BLOCK_BYTES: Final = 32 * 1024
_LARGEST_RATIO: Final = 64
"""A copy element of two bytes yields at most 64, so no block can hold more than this many times its size."""


def compress_framed(data: bytes | memoryview) -> bytes:
    """The framing that Kafka writes: header, then blocks of at most 32 KiB. Source: SnappyOutputStream."""
    out = [_MAGIC, _VERSIONS]
    for start in range(0, len(data), _BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(bytes(data[start : start + _BLOCK_BYTES])))
        out += [len(block).to_bytes(4), block]
    return b"".join(out)


def blocks(data: bytes, limit_bytes: int) -> Iterator[bytes]:
    """The decompressed blocks of a framed stream, or the one block that bare snappy is.

    A header may come again between blocks, where streams were joined. Source: SnappyInputStream.
    """
    if data[: len(_MAGIC)] != _MAGIC:
        yield _block(data, limit_bytes)
        return
    position = 0
    while position < len(data):
        if data[position : position + len(_MAGIC)] == _MAGIC:
            compatible = int.from_bytes(data[position + 12 : position + _HEADER_BYTES])
            if len(data) - position < _HEADER_BYTES or compatible != 1:
                raise CorruptFile(f"a snappy header that is cut, or of compatible version {compatible} instead of 1")
            position += _HEADER_BYTES
            continue
        size = int.from_bytes(data[position : position + 4])
        position += 4
        if size > len(data) - position:
            raise CorruptFile(f"a snappy block of {size} bytes where {max(len(data) - position, 0)} are left")
        yield _block(data[position : position + size], limit_bytes)
        position += size


def _block(data: bytes, limit_bytes: int) -> bytes:
    declared = _declared_bytes(data)
    if declared > min(limit_bytes, _LARGEST_RATIO * len(data)):
        raise CorruptFile(
            f"a snappy block of {len(data)} bytes that claims to hold {declared}, allowed are {limit_bytes}"
        )
    return bytes(cramjam.snappy.decompress_raw(data))


def _declared_bytes(data: bytes) -> int:
    """The size that a block begins with, as an unsigned varint; 0 if there is none, which the library then refuses."""
    size = 0
    for index, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    return 0
