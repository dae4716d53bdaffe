"""What the bundle of an archived segment says of the log before compaction: producer state at its end, leader epochs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from producer_state.table import ProducerTable
from producer_state.wire import ProducerStateError
from sidecar.archive.bundle import cut_parts
from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.errors import CorruptFile
from sidecar.model import ArchivedSegment, PartName
from sidecar.ports import ObjectStore
from sidecar.segment.archived_objects import read_indexes, read_part


def table_at_end(store: ObjectStore, root: str, segment: ArchivedSegment) -> ProducerTable:
    """The archived producer state at a segment's end. Raises CorruptFile, StoreError."""
    content = read_part(store, root, segment, PartName.PRODUCER_SNAPSHOT)
    try:
        return ProducerTable.from_snapshot(segment.end_offset, content)
    except ProducerStateError as error:
        key = below(root, segment.indexes_key)
        raise CorruptFile(f"the archived producer snapshot cannot be read: {error}", file=key) from error


def open_transactions(table: ProducerTable) -> set[tuple[int, int]]:
    """Producer and first offset of each."""
    rows = table.rows[table.rows["current_txn_first_offset"] >= 0]
    return set(zip(rows["producer_id"].tolist(), rows["current_txn_first_offset"].tolist(), strict=True))


def small_parts(store: ObjectStore, root: str, segment: ArchivedSegment) -> Mapping[PartName, bytes]:
    """All parts of `.indexes`, checked. Raises CorruptFile, StoreError."""
    return cut_parts(read_indexes(store, root, segment), segment, below(root, segment.indexes_key))


def first_undecided(store: ObjectStore, state: PartitionState) -> int | None:
    """First offset of the earliest transaction of which it is not archived how it ended; its data may yet be aborted.

    It is open at the archive's end; or at the beginning of a hole, in which its end may be lost. Raises CorruptFile, StoreError.
    """
    ends = [before for before, after in pairwise(state.segments) if before.end_offset != after.base_offset]
    tables = (table_at_end(store, state.lineage.root, segment) for segment in (*ends, *state.segments[-1:]))
    offsets = [table.first_open_transaction_offset() for table in tables]
    return min((offset for offset in offsets if offset is not None), default=None)
