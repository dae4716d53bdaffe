"""What the bundle of an archived segment says of the log before compaction: producer state at its end, leader epochs."""

from __future__ import annotations

from collections.abc import Mapping

from producer_state.table import ProducerTable
from producer_state.wire import ProducerStateError
from sidecar.archive.bundle import cut_parts
from sidecar.archive.keys import below
from sidecar.errors import CorruptFile
from sidecar.model import ArchivedSegment, PartName
from sidecar.ports import ObjectStore
from sidecar.segment.archived_indexes import read_indexes, read_part


def table_at_end(store: ObjectStore, root: str, segment: ArchivedSegment) -> ProducerTable:
    """The archived producer state at a segment's end. Raises CorruptFile, StoreError."""
    content = read_part(store, root, segment, PartName.PRODUCER_SNAPSHOT)
    try:
        return ProducerTable.from_snapshot(segment.end_offset, content)
    except ProducerStateError as error:
        key = below(root, segment.indexes_key)
        raise CorruptFile(f"the archived producer snapshot cannot be read: {error}", file=key) from error


def small_parts(store: ObjectStore, root: str, segment: ArchivedSegment) -> Mapping[PartName, bytes]:
    """All parts of `.indexes`, checked. Raises CorruptFile, StoreError."""
    return cut_parts(read_indexes(store, root, segment), segment, below(root, segment.indexes_key))
