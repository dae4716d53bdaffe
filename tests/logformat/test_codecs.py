"""Every framing that Kafka's readers accept, and streams that are cut, damaged or too large."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from sidecar.errors import CorruptFile
from sidecar.logformat.bodies import codecs
from sidecar.logformat.bodies.codecs import compress, decompress, xxh32_short
from sidecar.logformat.headers import Codec

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(f"record {number % 977} of many; ".encode() for number in range(9000))
NOISE = random.Random(7).randbytes(150_000)
XERIAL_HEADER = bytes.fromhex("82534e41505059000000000100000001")


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=3000) | st.sampled_from([TEXT, NOISE]), magic=st.sampled_from([0, 1, 2]))
def test_what_is_compressed_comes_back(codec: Codec, data: bytes, magic: int) -> None:
    magic = 2 if codec is Codec.ZSTD else magic
    assert decompress(codec, compress(codec, data, magic), magic=magic, limit_bytes=len(data)) == data


@pytest.mark.parametrize(
    ("codec", "magic", "header"),
    [
        (Codec.GZIP, 2, "1f8b08000000000000ff"),
        (Codec.SNAPPY, 2, "82534e41505059000000000100000001"),
        (Codec.LZ4, 2, "04224d18604082"),
        (Codec.LZ4, 1, "04224d18604082"),
        (Codec.LZ4, 0, "04224d1860401a"),
        (Codec.ZSTD, 2, "28b52ffd00"),  # no content size, no checksum
    ],
)
def test_streams_begin_as_kafka_writes_them(codec: Codec, magic: int, header: str) -> None:
    assert compress(codec, TEXT, magic).hex().startswith(header)


def test_snappy_is_cut_into_blocks_of_32_kib() -> None:
    framed = compress(Codec.SNAPPY, NOISE)
    position, sizes = 16, []
    while position < len(framed):
        size = int.from_bytes(framed[position : position + 4])
        sizes.append(cramjam.snappy.decompress_raw_len(framed[position + 4 : position + 4 + size]))
        position += 4 + size
    assert sizes == [32_768] * 4 + [len(NOISE) - 4 * 32_768]


def test_lz4_ends_with_an_end_mark_and_no_checksum() -> None:
    assert compress(Codec.LZ4, TEXT)[-4:] == bytes(4)


FRAMINGS: dict[str, tuple[Codec, int, Callable[[bytes], bytes]]] = {
    "gzip of two members": (Codec.GZIP, 2, lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:])),
    "gzip with a file name": (Codec.GZIP, 1, lambda data: _gzip_with_name(data)),
    "gzip with zeros behind": (Codec.GZIP, 1, lambda data: gzip.compress(data) + bytes(20)),
    "bare snappy": (Codec.SNAPPY, 2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "joined snappy": (Codec.SNAPPY, 2, lambda data: compress(2, data[:50_000]) + compress(2, data[50_000:])),
    "lz4 with everything": (
        Codec.LZ4,
        2,
        lambda data: lz4.frame.compress(
            data, block_linked=False, block_checksum=True, content_checksum=True, store_size=True
        ),
    ),
    "lz4 in large blocks": (
        Codec.LZ4,
        1,
        lambda data: lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False),
    ),
    "lz4 of magic 0": (Codec.LZ4, 0, lambda data: compress(Codec.LZ4, data, 0)),
    "lz4 of magic 0 with a right checksum": (Codec.LZ4, 0, lambda data: compress(Codec.LZ4, data, 2)),
    "lz4 of magic 0 with a size": (
        Codec.LZ4,
        0,
        lambda data: _flip(lz4.frame.compress(data, block_linked=False, store_size=True), 14),
    ),
    "zstd with size and checksum": (
        Codec.ZSTD,
        2,
        lambda data: zstandard.ZstdCompressor(write_checksum=True, write_content_size=True).compress(data),
    ),
    "zstd of two frames and a skippable one": (
        Codec.ZSTD,
        2,
        lambda data: compress(4, data[:99]) + bytes.fromhex("502a4d1803000000aabbcc") + compress(4, data[99:]),
    ),
    "zstd of a high level": (Codec.ZSTD, 2, lambda data: zstandard.ZstdCompressor(level=22).compress(data)),
}


def _gzip_with_name(data: bytes) -> bytes:
    plain = gzip.compress(data)
    return plain[:3] + b"\x08" + plain[4:10] + b"name\x00" + plain[10:]


def _flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :]


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("data", [TEXT, NOISE], ids=["text", "noise"])
def test_foreign_framings_are_read(framing: str, data: bytes) -> None:
    codec, magic, encode = FRAMINGS[framing]
    assert decompress(codec, encode(data), magic=magic, limit_bytes=len(data)) == data


def test_an_lz4_header_checksum_is_checked_from_magic_1_on() -> None:
    with pytest.raises(CorruptFile, match="damaged lz4"):
        decompress(Codec.LZ4, compress(Codec.LZ4, TEXT, 0), magic=1)


def test_short_hashes_are_those_of_known_headers() -> None:
    assert xxh32_short(bytes.fromhex("6040")) >> 8 & 0xFF == 0x82
    assert xxh32_short(bytes.fromhex("04224d186040")) >> 8 & 0xFF == 0x1A
    assert xxh32_short(b"") == 0x02CC5D05


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_cut_stream_is_corrupt_wherever_it_is_cut(codec: Codec) -> None:
    whole = compress(codec, NOISE[:40_000])
    blocks_end = {16, len(whole)} | {20 + int.from_bytes(whole[16:20])}
    for size in [*range(60), *range(60, len(whole), 811), *range(len(whole) - 12, len(whole))]:
        if codec is Codec.SNAPPY and size in blocks_end:
            continue  # whole blocks: snappy's framing has no end mark, and only the records show what is missing
        with pytest.raises(CorruptFile):
            decompress(codec, whole[:size])


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=200), whole=st.booleans())
def test_any_bytes_are_a_stream_or_corrupt(codec: Codec, data: bytes, whole: bool) -> None:
    stream = data if whole else compress(codec, TEXT[:5000])[:20] + data
    try:
        found = decompress(codec, stream, limit_bytes=100_000)
    except CorruptFile:
        return
    assert len(found) <= 100_000


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bombs_stop_at_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(30_000_000))
    with pytest.raises(CorruptFile, match=r"1000000 bytes allowed|at most 1000000"):
        decompress(codec, bomb, limit_bytes=1_000_000)


def test_snappy_that_claims_too_much_is_refused_before_it_is_believed() -> None:
    claim = bytes.fromhex("ffffffff0f") + b"\x00" * 40
    with pytest.raises(CorruptFile, match="claims 4294967295"):
        decompress(Codec.SNAPPY, claim, limit_bytes=2**40)


def test_a_snappy_header_must_be_whole() -> None:
    with pytest.raises(CorruptFile, match="snappy header"):
        decompress(Codec.SNAPPY, XERIAL_HEADER[:12])


@pytest.mark.parametrize("versions", ["0000000000000000", "ffffffff00000001", "0000000200000002", "0100000001000000"])
def test_the_version_of_a_snappy_header_counts_only_between_blocks_as_for_kafka(versions: str) -> None:
    stream = compress(Codec.SNAPPY, b"value")
    named = stream[:8] + bytes.fromhex(versions) + stream[16:]
    assert decompress(Codec.SNAPPY, named) == b"value"
    if versions[0] == "0" and int(versions[:8], 16):
        assert decompress(Codec.SNAPPY, stream + named) == b"valuevalue"
    else:
        with pytest.raises(CorruptFile, match="snappy header between blocks"):
            decompress(Codec.SNAPPY, stream + named)


@pytest.mark.parametrize(("codec", "magic"), [(5, 2), (7, 1), (4, 1), (4, 0)])
def test_codecs_that_a_magic_does_not_know(codec: int, magic: int) -> None:
    with pytest.raises(CorruptFile, match=f"codec {codec}"):
        decompress(codec, b"", magic=magic)


def test_zstd_is_not_written_below_magic_2() -> None:
    with pytest.raises(ValueError, match="zstd"):
        compress(Codec.ZSTD, b"", 1)


def test_a_zstd_header_of_an_unknown_kind_is_corrupt() -> None:
    frame = bytearray(compress(4, b"abc" * 100))
    frame[4] |= 0x08  # a reserved bit
    with pytest.raises(CorruptFile, match="zstd frame at byte 0"):
        decompress(4, bytes(frame), limit_bytes=1000)


class CountedMembers:
    """In the place of the gzip library: what it is given and what it hands back, which it copies."""

    def __init__(self) -> None:
        self.copied_bytes = 0

    def decompressobj(self, wbits: int) -> CountedMember:
        return CountedMember(self, isal_zlib.decompressobj(wbits=wbits))


class CountedMember:
    """One member."""

    def __init__(self, counts: CountedMembers, member: Any) -> None:
        self._counts = counts
        self._member = member

    def __getattr__(self, name: str) -> Any:
        return getattr(self._member, name)

    def decompress(self, data: bytes, max_bytes: int) -> bytes:
        found: bytes = self._member.decompress(data, max_bytes)
        self._counts.copied_bytes += len(data) + len(self._member.unused_data) + len(self._member.unconsumed_tail)
        return found


@pytest.mark.parametrize("member", [b"", b"x", NOISE], ids=["empty", "tiny", "large"])
def test_gzip_copies_in_proportion_to_its_members(member: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def copied_bytes(count: int) -> int:
        counts = CountedMembers()
        monkeypatch.setattr(codecs, "isal_zlib", counts)
        assert decompress(Codec.GZIP, gzip.compress(member, mtime=0) * count) == member * count
        return counts.copied_bytes

    enough = 3 + 100_000 // len(gzip.compress(member))
    few, many = (copied_bytes(count) for count in (enough, 10 * enough))
    assert many <= 20 * few


@pytest.mark.parametrize("size_bytes", [1, 4095, 4096, 4097, 30_000])
@pytest.mark.parametrize("cut_bytes", [0, 1, 8, 12])
def test_gzip_members_end_wherever_a_step_ends(size_bytes: int, cut_bytes: int) -> None:
    data = bytes(size_bytes * 400) + NOISE[:size_bytes]
    stream = gzip.compress(data, mtime=0) * 2
    if not cut_bytes:
        assert decompress(Codec.GZIP, stream) == data * 2
        assert decompress(Codec.GZIP, stream + b"not gzip") == data * 2
    else:
        with pytest.raises(CorruptFile, match="cut"):
            decompress(Codec.GZIP, stream[:-cut_bytes])
