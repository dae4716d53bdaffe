"""Zigzag varints in plain Python, for single records; the loops over many are in the kernels."""

from __future__ import annotations

from sidecar.errors import CorruptFile

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
