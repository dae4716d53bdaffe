"""Just enough of the lz4 and zstd frame formats to judge what their libraries do not."""

from __future__ import annotations

from typing import Final

import zstandard

from sidecar.errors import CorruptFile

_LZ4_MAGIC: Final = bytes.fromhex("04224d18")
_LZ4_CONTENT_SIZE: Final = 0x08
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_RLE: Final = 1
_MASK: Final = 0xFFFFFFFF


def require_lz4_frame(data: bytes) -> None:
    """Raise CorruptFile unless a frame of the one known version begins here. Source: Lz4BlockInputStream.readHeader."""
    if len(data) < 7 or data[:4] != _LZ4_MAGIC or data[4] >> 6 != 1:
        raise CorruptFile(f"no lz4 frame: it begins with {data[:5].hex()}, expected 04224d18 and version 1")


def with_right_lz4_checksum(data: bytes) -> bytes:
    """The frame with the header checksum of the standard: messages of magic 0 carry another, which no reader checks."""
    end = 14 if data[4] & _LZ4_CONTENT_SIZE else 6
    if len(data) <= end:
        raise CorruptFile(f"an lz4 header that is cut after {len(data)} bytes")
    return data[:end] + bytes([xxh32_short(data[4:end]) >> 8 & 0xFF]) + data[end + 1 :]


def xxh32_short(data: bytes) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes, which is all that a frame header needs."""
    prime_1, prime_2, prime_3, prime_4, prime_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    state = prime_5 + len(data)
    words = len(data) // 4 * 4
    for index in range(0, words, 4):
        state = state + int.from_bytes(data[index : index + 4], "little") * prime_3 & _MASK
        state = (state << 17 | state >> 15) * prime_4 & _MASK
    for byte in data[words:]:
        state = state + byte * prime_5 & _MASK
        state = (state << 11 | state >> 21) * prime_1 & _MASK
    state = (state ^ state >> 15) * prime_2 & _MASK
    state = (state ^ state >> 13) * prime_3 & _MASK
    return state ^ state >> 16


def require_whole_zstd_frames(data: bytes) -> None:
    """Raise CorruptFile unless `data` is one or more frames, the last one whole: the library's reader ends in silence."""
    position = 0
    while position < len(data) or position == 0:
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
        elif magic == _ZSTD_MAGIC:
            position = _end_of_zstd_frame(data, position)
        else:
            raise CorruptFile(
                f"no zstd frame at byte {position} of the stream: it begins with {data[position:][:4].hex()}"
            )
        if position > len(data):
            raise CorruptFile(f"a zstd frame that is cut: {position - len(data)} bytes are missing at least")


def _end_of_zstd_frame(data: bytes, position: int) -> int:
    header = data[position : position + 18]
    try:
        parameters = zstandard.get_frame_parameters(header)
        position += zstandard.frame_header_size(header)
    except zstandard.ZstdError as error:
        raise CorruptFile(f"a zstd frame at byte {position} of the stream whose header says: {error}") from error
    last = False
    while not last and position + 3 <= len(data):
        block = int.from_bytes(data[position : position + 3], "little")
        last = bool(block & 1)
        position += 3 + (1 if block >> 1 & 3 == _RLE else block >> 3)
    return position + (4 if parameters.has_checksum else 0) if last else len(data) + 1
