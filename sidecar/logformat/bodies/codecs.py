"""The five codecs of record batches and legacy wrappers, in the framings that Kafka writes and with all it reads.

Output is always bounded by the caller's limit: sizes declared in a stream are never believed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Final

import cramjam
import lz4.frame
import zstandard
from isal import isal_zlib

from sidecar.errors import CorruptFile
from sidecar.logformat.headers import Codec

DEFAULT_LIMIT_BYTES: Final = 256 * 1024 * 1024

_SMALLEST_PIECE_BYTES: Final = 256 * 1024
_GZIP_FIRST_STEP_BYTES: Final = 4096
"""The library copies what it was given beyond a member's end. Steps grow with the member, so that copies do too, and no more."""
_GZIP: Final = 31
_RAW_DEFLATE: Final = -15
_GZIP_HEADER: Final = bytes.fromhex("1f8b08000000000000ff")
_LZ4_HEADER_FOR_MAGIC_0: Final = bytes.fromhex("04224d1860401a")


def compress(codec: int, data: bytes | memoryview, magic: int = 2) -> bytes:
    """`data` in the framing that Kafka itself writes.

    Args: codec: see Codec. magic: of the batch; decides one byte of lz4, and whether zstd may be used.
    """
    match Codec(codec):
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            stream = isal_zlib.compressobj(level=isal_zlib.ISAL_DEFAULT_COMPRESSION, wbits=_RAW_DEFLATE)
            body = stream.compress(data) + stream.flush()
            trailer = zlib.crc32(data).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
            return bytes(_GZIP_HEADER + body + trailer)
        case Codec.SNAPPY:
            return compress_framed(data)
        case Codec.LZ4:
            frame: bytes = lz4.frame.compress(
                data,
                block_size=lz4.frame.BLOCKSIZE_MAX64KB,
                block_linked=False,
                content_checksum=False,
                block_checksum=False,
                store_size=False,
            )
            # Messages of magic 0 carry a checksum that was computed over too many bytes, and old clients expect it.
            return frame if magic > 0 else _LZ4_HEADER_FOR_MAGIC_0 + frame[len(_LZ4_HEADER_FOR_MAGIC_0) :]
        case Codec.ZSTD:
            if magic < 2:
                raise ValueError(f"zstd needs magic 2, this batch has magic {magic}")
            return zstandard.ZstdCompressor(level=3, write_content_size=False).compress(data)


def decompress(
    codec: int, data: bytes | memoryview, *, magic: int = 2, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> bytes:
    """What `data` holds. Raises CorruptFile (without position) for a damaged or cut stream, or one that exceeds the limit.

    Accepts what Kafka's readers accept: several gzip members, snappy with and without framing and with repeated
    headers, the lz4 header checksum of magic 0, several zstd frames.
    Source: the wrapForInput methods of GzipCompression, SnappyCompression, Lz4Compression, ZstdCompression.
    """
    if codec not in tuple(Codec) or (codec == Codec.ZSTD and magic < 2):
        raise CorruptFile(f"codec {codec} is unknown for magic {magic}")
    if codec == Codec.NONE:
        return bytes(data)
    try:
        return _decoders[Codec(codec)](bytes(data), magic, limit_bytes)
    except SNAPPY_ERRORS + _FOREIGN_ERRORS as error:
        raise CorruptFile(f"a damaged {Codec(codec).name.lower()} stream of {len(data)} bytes: {error}") from error


_GzipError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub says instance, not class
_FOREIGN_ERRORS: tuple[type[Exception], ...] = (_GzipError, zstandard.ZstdError, RuntimeError, EOFError)
"""lz4 raises RuntimeError for damage, and EOFError behind its frame."""


def _gathered(pieces: Iterator[bytes], limit_bytes: int) -> bytes:
    found: list[bytes] = []
    size_bytes = 0
    for piece in pieces:
        size_bytes += len(piece)
        if size_bytes > limit_bytes:
            raise CorruptFile(f"the stream has more than the {limit_bytes} bytes allowed for one batch")
        found.append(piece)
    return b"".join(found)


def _piece_bytes(data: bytes) -> int:
    """How much to ask of a stream at once: in proportion, because its library copies what is left at each call."""
    return max(_SMALLEST_PIECE_BYTES, 4 * len(data))


def _gunzip(data: bytes, _magic: int, limit_bytes: int) -> bytes:
    return _gathered(_gzip_members(data), limit_bytes)


def _gzip_members(data: bytes) -> Iterator[bytes]:
    view, position, piece_bytes = memoryview(data), 0, _piece_bytes(data)
    # What is no further member is ignored, as GZIPInputStream does.
    while position == 0 or data.startswith(_GZIP_HEADER[:2], position):
        member = isal_zlib.decompressobj(wbits=_GZIP)
        step_bytes = _GZIP_FIRST_STEP_BYTES
        while not member.eof:
            rest: bytes | memoryview = view[position : position + step_bytes]
            if not rest:
                raise CorruptFile("a gzip stream that is cut")
            position += len(rest)
            step_bytes *= 2
            is_full = True
            while (rest or is_full) and not member.eof:
                piece = member.decompress(rest, piece_bytes)
                rest, is_full = member.unconsumed_tail, len(piece) == piece_bytes
                yield piece
        position -= len(member.unused_data)


def _lz4(data: bytes, magic: int, limit_bytes: int) -> bytes:
    require_lz4_frame(data)
    frame = lz4.frame.LZ4FrameDecompressor()
    source = with_right_lz4_checksum(data) if magic == 0 else data

    def pieces() -> Iterator[bytes]:
        rest = source
        while not frame.eof:
            piece = frame.decompress(rest, _piece_bytes(data))
            rest = b""
            if not piece and frame.needs_input and not frame.eof:
                raise CorruptFile("an lz4 frame that is cut")
            yield piece

    return _gathered(pieces(), limit_bytes)


def _zstd(data: bytes, _magic: int, limit_bytes: int) -> bytes:
    require_whole_zstd_frames(data)
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        return _gathered(iter(lambda: reader.read(_piece_bytes(data)), b""), limit_bytes)


def _snappy(data: bytes, _magic: int, limit_bytes: int) -> bytes:
    return _gathered(snappy_blocks(data, limit_bytes), limit_bytes)


_decoders: dict[Codec, Callable[[bytes, int, int], bytes]] = {
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}

_LZ4_MAGIC: Final = bytes.fromhex("04224d18")
_LZ4_CONTENT_SIZE: Final = 0x08
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_RLE: Final = 1
_MASK: Final = 0xFFFFFFFF


def require_lz4_frame(data: bytes) -> None:
    """Raise CorruptFile unless a frame of the one known version begins here. Source: Lz4BlockInputStream.readHeader."""
    if len(data) < 7 or data[:4] != _LZ4_MAGIC or data[4] >> 6 != 1:
        raise CorruptFile(f"not an lz4 frame: it begins with {data[:5].hex()}, expected 04224d18 and version 1")


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
                f"no zstd frame at byte {position} of the stream, which begins with {data[position:][:4].hex()}"
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


SNAPPY_ERRORS: tuple[type[Exception], ...] = (cramjam.DecompressionError,)

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


def snappy_blocks(data: bytes, limit_bytes: int) -> Iterator[bytes]:
    """The decompressed blocks of a framed stream, or the one block that bare snappy is.

    A header may come again between blocks, where streams were joined. Only there does its version count, the compatible one
    nowhere. Source: SnappyInputStream.
    """
    if data[: len(_MAGIC)] != _MAGIC:
        yield _block(data, limit_bytes)
        return
    position = 0
    while position < len(data):
        if data.startswith(_MAGIC, position):
            if len(data) - position < _HEADER_BYTES:
                raise CorruptFile("a snappy header that is cut")
            version = int.from_bytes(data[position + len(_MAGIC) : position + 12], signed=True)
            if position and version < 1:
                raise CorruptFile(f"a snappy header between blocks of version {version}, below 1")
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
            f"a snappy block of {len(data)} bytes that claims {declared} decompressed bytes, at most "
            f"{limit_bytes} are allowed"
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
