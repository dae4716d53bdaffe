"""One record, whatever format it was stored in."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.errors import CorruptFile

Header = tuple[str, bytes | None]
"""Name and value. Bytes of a name that are no UTF-8 are kept as surrogates, so that writing gives them back."""

NO_TIMESTAMP_TYPE = -1
"""Timestamp type of records of magic 0, which have no timestamp."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a reader sees it: absolute offset and timestamp, fields of its batch included.

    `timestamp_type` is 0 (create time), 1 (log append time) or -1 (magic 0: none). `batch_base_offset` is that of the
    batch, or of the first message of a legacy wrapper. `control` is None for data, "abort" or "commit", or the number of
    another control type. Absent numbers are -1. `magic` is the record's own: old cleaners left records of magic 0 in
    wrappers of magic 1.
    """

    offset: int
    timestamp_ms: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    batch_base_offset: int = -1
    timestamp_type: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    leader_epoch: int = -1
    transactional: bool = False
    control: str | int | None = None
    magic: int = 2


VARINT_BYTES = 5
VARLONG_BYTES = 10


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """A 32-bit varint and the position behind it. Raises CorruptFile if it does not end. Source: ByteUtils.readVarint."""
    raw, position = _read(data, position, min(end, position + VARINT_BYTES))
    raw &= 0xFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(data: bytes, position: int, end: int) -> tuple[int, int]:
    """A 64-bit varint and the position behind it. Raises CorruptFile if it does not end. Source: ByteUtils.readVarlong."""
    raw, position = _read(data, position, min(end, position + VARLONG_BYTES))
    raw &= 0xFFFFFFFFFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), position


def _read(data: bytes, begin: int, end: int) -> tuple[int, int]:
    raw = shift = 0
    for position in range(begin, end):
        byte = data[position]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, position + 1
        shift += 7
    raise CorruptFile("a varint that does not end", position=begin)


def write_varint(out: bytearray, value: int) -> None:
    """Append a 32-bit or 64-bit signed integer: the encoding is the same. Source: ByteUtils.writeVarlong."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
