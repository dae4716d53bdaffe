"""Reads objects of segments: of `.indexes` never more bytes than the commit names, and nothing that differs from it."""

from __future__ import annotations

from dataclasses import replace

from sidecar.archive.bundle import cut_part, indexes_size_bytes
from sidecar.archive.keys import below
from sidecar.errors import CorruptFile, ObjectMissing, PartitionError
from sidecar.logformat.window import ReadAt
from sidecar.model import ArchivedSegment, ObjectKey, PartName
from sidecar.ports import ObjectStore


def reader(store: ObjectStore, key: ObjectKey, size_bytes: int) -> ReadAt:
    """Fills a buffer from a position of an object: one request each. Reading raises StoreError."""

    def read_at(position: int, buffer: memoryview) -> int:
        content = store.read(key, position, min(len(buffer), size_bytes - position))
        buffer[: len(content)] = content
        return len(content)

    return read_at


def read_part(store: ObjectStore, root: str, segment: ArchivedSegment, name: PartName) -> bytes:
    """The bytes of one part.

    Raises:
        PartitionError: the commit names no such part.
        CorruptFile: the bytes differ from the commit.
        StoreError: the store fails, or has no such object.
    """
    key = below(root, segment.indexes_key)
    part = segment.part(name)
    if part is None:
        raise PartitionError(f"{key}: the commit names no part {name}; verify the archive")
    return cut_part(store.read(key, part.position, part.size_bytes), replace(part, position=0), key)


def read_indexes(store: ObjectStore, root: str, segment: ArchivedSegment) -> bytes:
    """The whole object; `cut_parts` checks the content.

    Raises:
        CorruptFile: the object is missing or has another size than the commit says.
        StoreError: the store fails.
    """
    key, size_bytes = below(root, segment.indexes_key), indexes_size_bytes(segment)
    try:
        data = store.read(key, 0, size_bytes + 1)
    except ObjectMissing as error:
        raise CorruptFile("committed, but not in the store", file=key) from error
    if len(data) != size_bytes:
        found = "more" if len(data) > size_bytes else str(len(data))
        raise CorruptFile(
            f"has {found} bytes, committed were {size_bytes}", file=key, position=min(len(data), size_bytes)
        )
    return data
