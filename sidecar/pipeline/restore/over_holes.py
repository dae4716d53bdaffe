"""Producers and transactions where offsets inside of what is restored are lost.

A transaction that was open below may have ended there, its marker lost with it. It is taken for ended by an abort, unless
something above tells that it went on: aborted records must never be read as committed, whatever that hides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from producer_state.snapshot import ProducerEntry, read_snapshot
from producer_state.table import ProducerTable
from sidecar.logformat.transaction_index import read_transaction_index


@dataclass(frozen=True, slots=True)
class UnsettledTransaction:
    """One that was open where offsets are lost, and nothing archived tells how it ended. `marker_offset`: of its abort marker."""

    producer_id: int
    first_offset: int
    marker_offset: int

    def to_json(self) -> dict[str, int]:
        """The stable JSON form."""
        return {
            "producer_id": self.producer_id,
            "first_offset": self.first_offset,
            "marker_offset": self.marker_offset,
        }


def ended_in_hole(
    below: ProducerTable, snapshot_above: bytes, transaction_indexes_above: Iterable[bytes]
) -> tuple[ProducerEntry, ...]:
    """Who had a transaction open at a hole's beginning that may have ended in it; by its first offset, ascending.

    An index above that has one ends it itself. A marker in the hole would end it twice, and what its producer wrote between the
    two would be read as committed.

    Args:
        snapshot_above: the state at the end of the segment behind the hole.
        transaction_indexes_above: of that segment, and of those that follow; read only where they are needed.
    """
    waiting = dict(_open(below.in_transaction().entries()))
    if waiting:
        _forget(waiting, (key for key, _ in _open(read_snapshot(snapshot_above))))
    for content in transaction_indexes_above if waiting else ():
        index = read_transaction_index(content)
        _forget(waiting, zip(index.producer_id.tolist(), index.first_offset.tolist(), strict=True))
    return tuple(sorted(waiting.values(), key=lambda entry: entry.current_txn_first_offset or 0))


def carried_over(below: ProducerTable, ended: Iterable[ProducerEntry], end_offset: int) -> ProducerTable:
    """The state at a hole's end, as far as it is known: that at its beginning, without the transactions that ended."""
    rows = below.rows.copy()
    gone = np.isin(rows["producer_id"], [entry.producer_id for entry in ended])
    rows["current_txn_first_offset"][gone] = -1
    return ProducerTable(end_offset, rows)


def _open(entries: Iterable[ProducerEntry]) -> Iterator[tuple[tuple[int, int], ProducerEntry]]:
    """By producer and first offset: a producer may have begun another one since."""
    for entry in entries:
        if entry.current_txn_first_offset is not None:
            yield (entry.producer_id, entry.current_txn_first_offset), entry


def _forget(waiting: dict[tuple[int, int], ProducerEntry], found: Iterable[tuple[int, int]]) -> None:
    for key in found:
        waiting.pop(key, None)
