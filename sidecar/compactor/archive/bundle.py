"""Which transactions archived segments leave open."""

from __future__ import annotations

from itertools import pairwise

from producer_state.table import ProducerTable
from sidecar.archive.state import PartitionState
from sidecar.ports import ObjectStore
from sidecar.segment.archived_objects import table_at_end


def open_transactions(table: ProducerTable) -> set[tuple[int, int]]:
    """Producer and first offset of each."""
    rows = table.rows[table.rows["current_txn_first_offset"] >= 0]
    return set(zip(rows["producer_id"].tolist(), rows["current_txn_first_offset"].tolist(), strict=True))


def first_undecided(store: ObjectStore, state: PartitionState) -> int | None:
    """First offset of the earliest transaction of which it is not archived how it ended; its data may yet be aborted.

    It is open at the archive's end; or at the beginning of a hole, in which its end may be lost. Raises CorruptFile, StoreError.
    """
    ends = [before for before, after in pairwise(state.segments) if before.end_offset != after.base_offset]
    tables = (table_at_end(store, state.lineage.root, segment) for segment in (*ends, *state.segments[-1:]))
    offsets = [table.first_open_transaction_offset() for table in tables]
    return min((offset for offset in offsets if offset is not None), default=None)
