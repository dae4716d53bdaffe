"""What the bundle of an archived segment says of the log before compaction: producer state at its end, leader epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from producer_state.table import ProducerTable
from producer_state.wire import ProducerStateError
from sidecar.archive.bundle import cut_part, cut_parts
from sidecar.archive.keys import below
from sidecar.errors import CorruptFile, PartitionError
from sidecar.model import ArchivedSegment, PartName
from sidecar.ports import ObjectStore


def table_at_end(store: ObjectStore, root: str, segment: ArchivedSegment) -> ProducerTable:
    """The archived producer state at a segment's end. Raises CorruptFile, StoreError."""
    key = below(root, segment.indexes_key)
    part = segment.part(PartName.PRODUCER_SNAPSHOT)
    if part is None:
        raise PartitionError(f"{key}: committed without a producer snapshot; verify the archive")
    content = cut_part(store.read(key, part.position, part.size_bytes), replace(part, position=0), key)
    try:
        return ProducerTable.from_snapshot(segment.end_offset, content)
    except ProducerStateError as error:
        raise CorruptFile(f"the archived producer snapshot cannot be read: {error}", file=key) from error


def small_parts(store: ObjectStore, root: str, segment: ArchivedSegment) -> Mapping[PartName, bytes]:
    """All parts of `.indexes`, checked. Raises CorruptFile, StoreError."""
    key = below(root, segment.indexes_key)
    return cut_parts(store.read(key), segment, key)
