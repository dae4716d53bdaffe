"""Messages of magic 0 and 1: single ones, and wrappers around a compressed set of them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sidecar.errors import CorruptFile
from sidecar.logformat.bodies.codecs import DEFAULT_LIMIT_BYTES, compress, decompress
from sidecar.logformat.bodies.record import NO_TIMESTAMP_TYPE, Record
from sidecar.logformat.headers import (
    CODEC_MASK,
    CRC_FROM,
    MAGIC_POSITION,
    MESSAGE_HEADER,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    SMALLEST_MESSAGE_BYTES,
    SMALLEST_PREFIX_BYTES,
    TIMESTAMPED_MESSAGE_HEADER,
    BatchFlag,
    Codec,
    MessageHeader,
    TimestampedMessageHeader,
    TimestampType,
)


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it is stored; its offset may be relative to that of a wrapper."""

    offset: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        """Not NONE for a wrapper."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """Source: LegacyRecord.timestampType."""
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        appended = self.attributes & BatchFlag.LOG_APPEND_TIME
        return TimestampType.LOG_APPEND_TIME if appended else TimestampType.CREATE_TIME

    def record(self, *, batch_base_offset: int) -> Record:
        return Record(
            offset=self.offset,
            timestamp_ms=self.timestamp_ms,
            key=self.key,
            value=self.value,
            batch_base_offset=batch_base_offset,
            timestamp_type=self.timestamp_type,
            magic=self.magic,
        )


def read_messages(data: bytes, position: int = 0, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[Record]:
    """The records of one whole message or wrapper, in offset order. Raises CorruptFile.

    Source: AbstractLegacyRecordBatch.iterator and its DeepRecordsIterator.
    """
    try:
        message = _message(data)
        if message.codec == Codec.NONE:
            yield message.record(batch_base_offset=message.offset)
        else:
            yield from _unwrapped(message, limit_bytes)
    except CorruptFile as error:
        place = position if error.position is None else position + error.position
        offset = int.from_bytes(data[:8], signed=True) if error.offset is None else error.offset
        raise CorruptFile(error.what, position=place, offset=offset) from error


def _message(data: bytes) -> Message:
    """Decode a message that takes up `data` exactly."""
    header = MESSAGE_HEADER.read(data)
    timestamp = NO_TIMESTAMP
    at = MESSAGE_HEADER.size_bytes
    if header.magic == 1:
        at = TIMESTAMPED_MESSAGE_HEADER.size_bytes
        timestamp = TIMESTAMPED_MESSAGE_HEADER.read(data).timestamp
    if (computed := zlib.crc32(data[CRC_FROM[header.magic] :])) != header.crc:
        raise CorruptFile(f"checksum {computed:08x}, the message says {header.crc:08x}", position=0)
    key, at = _nullable(data, at, "key")
    value, at = _nullable(data, at, "value")
    if at != len(data):
        raise CorruptFile(f"{len(data) - at} bytes after a message's value", position=at)
    return Message(header.offset, header.magic, header.attributes, timestamp, key, value)


def _nullable(data: bytes, at: int, what: str) -> tuple[bytes | None, int]:
    size = int.from_bytes(data[at : at + 4], signed=True)
    if len(data) - at < 4 or size > len(data) - at - 4:
        raise CorruptFile(f"a {what} of {size} bytes where {max(len(data) - at - 4, 0)} are left", position=at)
    at += 4
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _unwrapped(wrapper: Message, limit_bytes: int) -> Iterator[Record]:
    """The records of a wrapper, with absolute offsets and the wrapper's append time where it has one.

    Two passes, because offsets count back from the last message: a list of all would cost many times their bytes.
    """
    if wrapper.value is None:
        raise CorruptFile("a compressed message without value")
    nested = decompress(wrapper.codec, wrapper.value, magic=wrapper.magic, limit_bytes=limit_bytes)
    at, first_offset, last_offset = 0, None, -1
    while at < len(nested):
        size = _nested_size(nested, at)
        last_offset = int.from_bytes(nested[at : at + 8], signed=True)
        first_offset = last_offset if first_offset is None else first_offset
        at += size
    if first_offset is None:
        raise CorruptFile("a compressed message without messages")
    shift = _offset_shift(wrapper, last_offset)
    at, before = 0, -1
    while at < len(nested):
        size = _nested_size(nested, at)
        try:
            message = _message(nested[at : at + size])
        except CorruptFile as error:
            raise CorruptFile(f"{error.what}, in the message at byte {at} of the decompressed set") from error
        if message.codec != Codec.NONE:
            raise CorruptFile(f"a compressed message within a compressed message, at byte {at} of the decompressed set")
        message = _absolute(message, wrapper, shift)
        if message.offset <= before:
            raise CorruptFile(f"message offset {message.offset} after {before} within a compressed message")
        yield message.record(batch_base_offset=first_offset + shift)
        before = message.offset
        at += size


def _absolute(message: Message, wrapper: Message, shift: int) -> Message:
    message = replace(message, offset=message.offset + shift)
    if message.magic == 0 or wrapper.timestamp_type != TimestampType.LOG_APPEND_TIME:
        return message
    return replace(message, timestamp_ms=wrapper.timestamp_ms, attributes=int(BatchFlag.LOG_APPEND_TIME))


def _nested_size(data: bytes, at: int) -> int:
    """Size of the message at `at` of a decompressed set."""
    left = len(data) - at
    size = int.from_bytes(data[at + PREFIX_BYTES - 4 : at + PREFIX_BYTES], signed=True) + PREFIX_BYTES
    magic = data[at + MAGIC_POSITION] if left >= SMALLEST_PREFIX_BYTES else -1
    if magic not in (0, 1) or not SMALLEST_MESSAGE_BYTES[magic] <= size <= left:
        raise CorruptFile(
            f"a message of {size} bytes and magic {magic} where {left} are left, at byte {at} of the decompressed set"
        )
    return size


def _offset_shift(wrapper: Message, last_nested_offset: int) -> int:
    """What to add to nested offsets: magic 0 has absolute ones, magic 1 counts back from the wrapper's.

    A wrapper at offset 0 comes from clients that left the base to the broker.
    """
    if wrapper.magic == 0 or wrapper.offset == 0:
        return 0
    if wrapper.offset < last_nested_offset:
        raise CorruptFile(f"a wrapper at offset {wrapper.offset} whose last message is at {last_nested_offset}")
    return wrapper.offset - last_nested_offset


def build_legacy_message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    timestamp_ms: int = NO_TIMESTAMP,
    append_time: bool = False,
    codec: int = 0,
) -> bytes:
    """One message of magic 0 (which has no timestamp) or 1. With a codec it is a wrapper, and `value` its stream.

    Source: LegacyRecord.write.
    """
    attributes = codec | (BatchFlag.LOG_APPEND_TIME if append_time and magic == 1 else 0)
    if magic == 0:
        data = bytearray(MESSAGE_HEADER.write(MessageHeader(offset, 0, 0, magic, attributes)))
    else:
        header = TimestampedMessageHeader(offset, 0, 0, magic, attributes, timestamp_ms)
        data = bytearray(TIMESTAMPED_MESSAGE_HEADER.write(header))
    for field in (key, value):
        data += (-1 if field is None else len(field)).to_bytes(4, signed=True) + (field or b"")
    data[PREFIX_BYTES - 4 : PREFIX_BYTES] = (len(data) - PREFIX_BYTES).to_bytes(4)
    data[PREFIX_BYTES:MAGIC_POSITION] = zlib.crc32(data[CRC_FROM[magic] :]).to_bytes(4)
    return bytes(data)


def build_legacy_wrapper(
    records: Sequence[Record],
    *,
    codec: int,
    magic: int = 1,
    nested_magic: int | None = None,
    append_time_ms: int | None = None,
) -> bytes:
    """A wrapper around at least one record: absolute nested offsets for magic 0, relative ones for magic 1.

    `nested_magic` below `magic` gives what old cleaners wrote (KAFKA-4298), absolute offsets and all. `append_time_ms`: of the
    nested messages, too. Source: MemoryRecordsBuilder.writeLegacyCompressedWrapperHeader, MemoryRecordsBuilder.appendLegacyRecord.
    """
    inner, appended = magic if nested_magic is None else nested_magic, append_time_ms is not None
    base = records[0].offset if inner == 1 else 0
    times_ms = [record.timestamp_ms if append_time_ms is None else append_time_ms for record in records]
    nested = b"".join(
        build_legacy_message(
            record.offset - base, record.key, record.value, magic=inner, timestamp_ms=time_ms, append_time=appended
        )
        for record, time_ms in zip(records, times_ms, strict=True)
    )
    stream = compress(codec, nested, magic)
    return build_legacy_message(
        records[-1].offset, None, stream, magic=magic, timestamp_ms=max(times_ms), append_time=appended, codec=codec
    )
