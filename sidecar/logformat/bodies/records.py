"""The records of one batch of any format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import crc32c

from sidecar.errors import CorruptFile
from sidecar.logformat.bodies import legacy
from sidecar.logformat.bodies.codecs import DEFAULT_LIMIT_BYTES, decompress
from sidecar.logformat.bodies.record import Header, Record, read_varint, read_varlong
from sidecar.logformat.headers import (
    BATCH_HEADER,
    CODEC_MASK,
    CRC_FROM,
    CURRENT_MAGIC,
    MAGIC_POSITION,
    PREFIX_BYTES,
    SMALLEST_MESSAGE_BYTES,
    SMALLEST_PREFIX_BYTES,
    SMALLEST_RECORD_BYTES,
    BatchFlag,
    BatchHeader,
    Codec,
    TimestampType,
)

CONTROL_NAMES = {0: "abort", 1: "commit"}


def read_records(
    batch: bytes | memoryview, position: int = 0, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Iterator[Record]:
    """The records of one whole batch, legacy message or wrapper, in offset order; none of a batch that was emptied.

    Args:
        batch: exactly the bytes of the batch.
        position: of the batch in its file, for messages.
        limit_bytes: what the batch may hold decompressed.
    Raises CorruptFile where the bytes do not decode. Source: DefaultRecordBatch.iterator, DefaultRecord.readFrom.
    """
    data = bytes(batch)
    magic = _checked_magic(data, position)
    if magic < CURRENT_MAGIC:
        yield from legacy.read_messages(data, position, limit_bytes=limit_bytes)
        return
    header = BATCH_HEADER.read(data)
    if (computed := crc32c.crc32c(data[CRC_FROM[CURRENT_MAGIC] :])) != header.crc:
        what = f"checksum {computed:08x}, the batch says {header.crc:08x}"
        raise CorruptFile(what, position=position, offset=header.base_offset)
    if header.record_count == 0:
        return  # a compressed batch that was emptied keeps its codec but has no stream
    try:
        yield from _Decoder(header, position).records(data, limit_bytes)
    except CorruptFile as error:
        offset = header.base_offset if error.offset is None else error.offset
        place = position if error.position is None else error.position
        raise CorruptFile(error.what, position=place, offset=offset) from error


def _checked_magic(data: bytes, position: int) -> int:
    if len(data) < SMALLEST_PREFIX_BYTES:
        raise CorruptFile(f"{len(data)} bytes are not a batch", position=position)
    magic = int.from_bytes(data[MAGIC_POSITION : MAGIC_POSITION + 1], signed=True)
    if not 0 <= magic <= CURRENT_MAGIC:
        raise CorruptFile(f"magic {magic}, expected 0, 1 or 2", position=position)
    claimed = int.from_bytes(data[PREFIX_BYTES - 4 : PREFIX_BYTES], signed=True) + PREFIX_BYTES
    if claimed != len(data) or claimed < SMALLEST_MESSAGE_BYTES[magic]:
        raise CorruptFile(f"a batch of {len(data)} bytes whose size field claims {claimed}", position=position)
    return magic


@dataclass(frozen=True, slots=True)
class _Decoder:
    """Decodes the body of one magic 2 batch."""

    header: BatchHeader
    position: int

    def records(self, data: bytes, limit_bytes: int) -> Iterator[Record]:
        header = self.header
        codec = header.attributes & CODEC_MASK
        body, begin = data, BATCH_HEADER.size_bytes
        if codec != Codec.NONE:
            body, begin = decompress(codec, data[begin:], limit_bytes=limit_bytes), 0
        if (
            not 0
            < header.record_count
            <= min(header.last_offset_delta + 1, (len(body) - begin) // SMALLEST_RECORD_BYTES)
        ):
            raise CorruptFile(
                f"{header.record_count} records, expected 1 to {header.last_offset_delta + 1} in {len(body) - begin} bytes"
            )
        at, last_offset = begin, header.base_offset - 1
        for _ in range(header.record_count):
            try:
                record, at = self._record(body, at)
            except CorruptFile as error:
                raise self._placed(error, codec) from error
            if record.offset <= last_offset or record.offset > header.base_offset + header.last_offset_delta:
                what = f"record offset {record.offset}, expected {last_offset + 1} to "
                raise CorruptFile(f"{what}{header.base_offset + header.last_offset_delta}")
            last_offset = record.offset
            yield record
        if at != len(body):
            raise CorruptFile(f"{len(body) - at} bytes follow the last of {header.record_count} records")

    def _placed(self, error: CorruptFile, codec: int) -> CorruptFile:
        if codec == Codec.NONE:
            return CorruptFile(error.what, position=self.position + (error.position or 0))
        return CorruptFile(
            f"{error.what}, at byte {error.position} of the decompressed records", position=self.position
        )

    def _record(self, body: bytes, at: int) -> tuple[Record, int]:
        header = self.header
        begin = at
        size, at = read_varint(body, at, len(body))
        end = at + size
        if size < SMALLEST_RECORD_BYTES - 1 or end > len(body):
            raise CorruptFile(f"a record of {size} bytes where {len(body) - at} are left", position=begin)
        timestamp_delta, at = read_varlong(body, at + 1, end)
        offset_delta, at = read_varint(body, at, end)
        key, at = _nullable(body, at, end, "key")
        value, at = _nullable(body, at, end, "value")
        headers, at = _headers(body, at, end)
        if at != end:
            raise CorruptFile(f"{end - at} bytes of a record after its headers", position=at)
        appended = bool(header.attributes & BatchFlag.LOG_APPEND_TIME)
        record = Record(
            offset=header.base_offset + offset_delta,
            timestamp_ms=header.max_timestamp if appended else header.base_timestamp + timestamp_delta,
            key=key,
            value=value,
            headers=headers,
            batch_base_offset=header.base_offset,
            timestamp_type=TimestampType.LOG_APPEND_TIME if appended else TimestampType.CREATE_TIME,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            sequence=sequence_at(header.base_sequence, offset_delta),
            leader_epoch=header.leader_epoch,
            transactional=bool(header.attributes & BatchFlag.TRANSACTIONAL),
            control=control_type(key, begin) if header.attributes & BatchFlag.CONTROL else None,
        )
        return record, end


def sequence_at(base_sequence: int, offset_delta: int) -> int:
    """Sequence of a record: -1 without sequences, else wrapping after 2^31-1. Source: incrementSequence."""
    return -1 if base_sequence < 0 else (base_sequence + offset_delta) & 0x7FFFFFFF


def control_type(key: bytes | None, position: int | None = None) -> str | int:
    """What a control record's key says: "abort", "commit", or the type's number. Source: ControlRecordType.parseTypeId."""
    if key is None or len(key) < 4 or int.from_bytes(key[:2], signed=True) < 0:
        found = "no key" if key is None else key[:4].hex()
        raise CorruptFile(
            f"key of a control record: {found}, expected a version of at least 0 and a type", position=position
        )
    kind = int.from_bytes(key[2:4], signed=True)
    return CONTROL_NAMES.get(kind, kind)


def _nullable(body: bytes, at: int, end: int, what: str) -> tuple[bytes | None, int]:
    begin = at
    size, at = read_varint(body, at, end)
    if size < 0:
        return None, at
    if size > end - at:
        raise CorruptFile(f"a {what} of {size} bytes where {end - at} are left", position=begin)
    return body[at : at + size], at + size


def _headers(body: bytes, at: int, end: int) -> tuple[tuple[Header, ...], int]:
    begin = at
    count, at = read_varint(body, at, end)
    if not 0 <= count <= (end - at) // 2:
        raise CorruptFile(f"{count} headers in {end - at} bytes", position=begin)
    headers: list[Header] = []
    for _ in range(count):
        name, at = _nullable(body, at, end, "header name")
        if name is None:
            raise CorruptFile("a header without name", position=at)
        value, at = _nullable(body, at, end, "header value")
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), at
