"""Batches put together field by field, and scans as plain values."""

from __future__ import annotations

import struct

import crc32c

from sidecar.logformat.batches import BatchColumns, SegmentScanner


def batch_bytes(base_offset: int, body: bytes = b"\x0c\x00\x00\x00\x01\x00\x00", **changes: int) -> bytes:
    """A magic 2 batch with a right checksum around any body; `changes` name header fields."""
    fields = {
        "attributes": 0,
        "last_offset_delta": 0,
        "base_timestamp": 1000,
        "max_timestamp": 2000,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": 1,
        "leader_epoch": 5,
    } | changes
    epoch = fields.pop("leader_epoch")
    covered = struct.pack(">hiqqqhii", *fields.values()) + body
    return struct.pack(">qiibI", base_offset, 9 + len(covered), epoch, 2, crc32c.crc32c(covered)) + covered


def at_offset(message: bytes, offset: int) -> bytes:
    """The same batch or message elsewhere: the offset is outside the checksum."""
    return struct.pack(">q", offset) + message[8:]


def rows(scanner: SegmentScanner) -> list[dict[str, int]]:
    """All rows of a scan as dicts."""
    return [
        {name: int(getattr(chunk, name)[row]) for name in BatchColumns.__slots__}
        for chunk in scanner
        for row in range(len(chunk))
    ]


def finished(scanner: SegmentScanner) -> SegmentScanner:
    """The scanner, iterated."""
    for _ in scanner:
        continue
    return scanner
