"""The five codecs of record batches and legacy wrappers, in the framings that Kafka writes and with all it reads.

Output is always bounded by the caller's limit: sizes declared in a stream are never believed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Final

import lz4.frame
import zstandard
from isal import isal_zlib

from sidecar.errors import CorruptFile
from sidecar.logformat.bodies import snappy
from sidecar.logformat.bodies.streams import require_lz4_frame, require_whole_zstd_frames, with_right_lz4_checksum
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
            return snappy.compress_framed(data)
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
                raise ValueError(f"zstd is not allowed below magic 2, asked for with magic {magic}")
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
        raise CorruptFile(f"codec {codec} is unknown to magic {magic}")
    if codec == Codec.NONE:
        return bytes(data)
    try:
        return _decoders[Codec(codec)](bytes(data), magic, limit_bytes)
    except snappy.FOREIGN_ERRORS + _FOREIGN_ERRORS as error:
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
            raise CorruptFile(f"the stream holds more than the {limit_bytes} bytes allowed for one batch")
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
    return _gathered(snappy.blocks(data, limit_bytes), limit_bytes)


_decoders: dict[Codec, Callable[[bytes, int, int], bytes]] = {
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
