"""The `.indexes` object: the small parts of a segment one after the other, without header or padding.

The order is the one that stock KIP-405 plugins read. Two spare parts at the end are for a cluster that must not see the
real producer state or leader epochs: the same object can be attached to it. Positions are free: readers go by the commit's
table, never by the order.
"""

from collections.abc import Mapping

from crc32c import crc32c

from sidecar.errors import CorruptFile
from sidecar.model import ArchivedSegment, Part, PartName

EMPTY_SNAPSHOT = bytes.fromhex("000148674bc700000000")
"""Producer snapshot, version 1, without entries."""

FLAT_LEADER_EPOCHS = b"0\n1\n0 0\n"
"""Leader-epoch text with the single epoch 0 from offset 0."""

INDEXES_BYTES_MAX = 256 * 1024 * 1024
"""Readers take a `.indexes` object into memory whole; no writer makes a larger one."""

LOG_BYTES_MAX = 5 * 1024**4
"""No object of S3 is larger. Kafka's limit for a segment is lower, 2**31 - 1, and checked where the log is read."""

REQUIRED_PARTS = frozenset(set(PartName) - {PartName.TRANSACTION_INDEX})


def assemble_indexes(
    offset_index: bytes,
    time_index: bytes,
    producer_snapshot: bytes,
    leader_epochs_text: bytes,
    transaction_index: bytes | None,
) -> tuple[bytes, tuple[Part, ...]]:
    """The bytes of a `.indexes` object and its table of parts, in ascending position.

    An index without entries is a part of 0 bytes; a transaction index that does not exist (None) is no part at all.
    """
    contents: list[tuple[PartName, bytes]] = [
        (PartName.OFFSET_INDEX, offset_index),
        (PartName.TIME_INDEX, time_index),
        (PartName.PRODUCER_SNAPSHOT, producer_snapshot),
        (PartName.LEADER_EPOCHS, leader_epochs_text),
    ]
    if transaction_index is not None:
        contents.append((PartName.TRANSACTION_INDEX, transaction_index))
    contents += [(PartName.EMPTY_SNAPSHOT, EMPTY_SNAPSHOT), (PartName.FLAT_LEADER_EPOCHS, FLAT_LEADER_EPOCHS)]
    parts: list[Part] = []
    position = 0
    for name, content in contents:
        parts.append(Part(name, position, len(content), crc32c(content)))
        position += len(content)
    return b"".join(content for _, content in contents), tuple(parts)


def log_part(size_bytes: int, checksum: int) -> Part:
    return Part(PartName.LOG, 0, size_bytes, checksum)


def cut_part(indexes: bytes | memoryview, part: Part, file: str = "", start: int = 0) -> bytes:
    """One part's bytes out of a `.indexes` object, or out of its bytes from position `start` on.

    Raises CorruptFile if they are not there or not those committed.
    """
    content = bytes(indexes[part.position - start : part.position - start + part.size_bytes])
    if len(content) != part.size_bytes:
        raise CorruptFile(
            f"part {part.name} reaches from {part.position} to {part.position + part.size_bytes}, "
            f"but the object has only {len(content)} of these {part.size_bytes} bytes",
            file=file,
            position=part.position,
        )
    found = crc32c(content)
    if found != part.crc32c:
        raise CorruptFile(
            f"part {part.name} has CRC-32C {found:08x}, the commit says {part.crc32c:08x}",
            file=file,
            position=part.position,
        )
    return content


def cut_parts(indexes: bytes | memoryview, segment: ArchivedSegment, file: str = "") -> Mapping[PartName, bytes]:
    """Every part that lies in `.indexes`, checked. Raises CorruptFile."""
    return {part.name: cut_part(indexes, part, file) for part in segment.parts if part.name is not PartName.LOG}


def indexes_size_bytes(segment: ArchivedSegment) -> int:
    return max(part.position + part.size_bytes for part in segment.parts if part.name is not PartName.LOG)


def log_size_bytes(segment: ArchivedSegment) -> int:
    return sum(part.size_bytes for part in segment.parts if part.name is PartName.LOG)
