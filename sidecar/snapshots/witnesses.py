"""What a snapshot proves of offsets below it: a transaction that is open there was open all the way since it began."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from producer_state.facts import Int64Column
from producer_state.snapshot import ProducerEntry, Rows, rows_of
from producer_state.table import ProducerTable


@dataclass(frozen=True, slots=True)
class OpenBelow:
    """The producers whose transactions were open at an offset, as they were there.

    `late`: those that have written since. Of their last batch below the offset the snapshot says nothing: it is left blank.
    """

    rows: Rows
    late: Int64Column

    @classmethod
    def of(cls, witness: ProducerTable, offset: int) -> OpenBelow:
        """What a snapshot says of the transactions that began below an offset, which lies below the snapshot."""
        undecided = witness.in_transaction().rows
        rows = undecided[undecided["current_txn_first_offset"] < offset]
        late = rows["last_offset"] >= offset
        rows[late] = without_batch(rows[late])
        return cls(rows, rows["producer_id"][late])


def without_batch(rows: Rows) -> Rows:
    """A copy of the rows in which no last batch is known."""
    found, blank = rows.copy(), rows_of([ProducerEntry(0)])[0]
    for name in ("last_sequence", "last_offset", "offset_delta", "last_timestamp_ms"):
        found[name] = blank[name]
    return found


def with_rows(table: ProducerTable, rows: Rows) -> ProducerTable:
    """The table with these producers in the place of what it says of them."""
    others = table.rows[~np.isin(table.rows["producer_id"], rows["producer_id"])]
    both = np.concatenate([others, rows])
    return ProducerTable(table.end_offset, both[np.argsort(both["producer_id"])])
