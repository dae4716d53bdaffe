"""Fixed headers of batches and legacy messages, their flags and codecs: each layout is defined here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

from producer_state.facts import CONTROL, TRANSACTIONAL
from producer_state.wire import Int8, Int16, Int32, Int64, Layout, UInt32

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

CURRENT_MAGIC = 2
LARGEST_POSITION = 2**31 - 1
"""Positions in a segment file, its size, and offsets relative to its base are signed 32-bit."""

SMALLEST_RECORD_BYTES = 7
"""Of magic 2: length, attributes, two deltas, two lengths and a count of headers, one byte each. Source: DefaultRecord."""


class Codec(IntEnum):
    """The low three attribute bits. Source: CompressionType."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchFlag(IntFlag):
    """Attribute bits above the codec. Legacy messages of magic 1 know the first only."""

    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = TRANSACTIONAL
    CONTROL = CONTROL
    DELETE_HORIZON = 0x40


CODEC_MASK = 0x07


class TimestampType(IntEnum):
    """What the timestamp of a record means. Source: TimestampType."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """Header of a magic 2 record batch. Source: DefaultRecordBatch."""

    base_offset: Int64
    batch_length: Int32  # bytes after this field
    leader_epoch: Int32  # outside the checksum: each leader writes its own
    magic: Int8
    crc: UInt32  # CRC-32C of everything from `attributes` on
    attributes: Int16
    last_offset_delta: Int32
    base_timestamp: Int64  # the delete horizon, where that flag is set
    max_timestamp: Int64
    producer_id: Int64
    producer_epoch: Int16
    base_sequence: Int32
    record_count: Int32


@dataclass(frozen=True, slots=True)
class MessageHeader:
    """Header of a magic 0 message, up to its key. Source: LegacyRecord."""

    offset: Int64
    size: Int32  # bytes after this field
    crc: UInt32  # CRC-32 of everything from `magic` on
    magic: Int8
    attributes: Int8


@dataclass(frozen=True, slots=True)
class TimestampedMessageHeader:
    """Header of a magic 1 message, up to its key. Source: LegacyRecord."""

    offset: Int64
    size: Int32
    crc: UInt32
    magic: Int8
    attributes: Int8
    timestamp: Int64


BATCH_HEADER = Layout(BatchHeader)
MESSAGE_HEADER = Layout(MessageHeader)
TIMESTAMPED_MESSAGE_HEADER = Layout(TimestampedMessageHeader)

SIZE_POSITION = BATCH_HEADER.offset_of("batch_length")
MAGIC_POSITION = BATCH_HEADER.offset_of("magic")
PREFIX_BYTES = SIZE_POSITION + 4
"""Offset and size: what the size field does not count."""
SMALLEST_PREFIX_BYTES = MAGIC_POSITION + 1
"""With fewer bytes than this even the magic is out of reach."""
SMALLEST_MESSAGE_BYTES = (
    MESSAGE_HEADER.size_bytes + 8,
    TIMESTAMPED_MESSAGE_HEADER.size_bytes + 8,
    BATCH_HEADER.size_bytes,
)
"""By magic. Legacy messages carry two lengths, of key and value, after their header."""
CRC_POSITION = (MESSAGE_HEADER.offset_of("crc"), MESSAGE_HEADER.offset_of("crc"), BATCH_HEADER.offset_of("crc"))
"""By magic: where the checksum is."""
CRC_FROM = (MAGIC_POSITION, MAGIC_POSITION, BATCH_HEADER.offset_of("attributes"))
"""By magic: the first byte that the checksum covers."""
