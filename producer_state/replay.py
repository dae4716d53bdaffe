"""The producer table of a partition, and the rules by which batches change it under replication.

Source: UnifiedLog.updateProducers, ProducerAppendInfo.append, ProducerStateEntry, ProducerStateManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from producer_state.facts import BatchFacts
from producer_state.snapshot import ProducerEntry
from producer_state.wire import ProducerStateError

_SMALLEST_TABLE = 64
_COMPLETED_AT_ONCE = 4096


class InvalidTransaction(ProducerStateError):
    """A batch outside any transaction while its producer has one open: a broker refuses to load such a log."""


class MalformedMarker(ProducerStateError):
    """A control batch whose end-transaction marker cannot be read."""


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction that a marker ended. Offsets inclusive; `last_offset` is the marker's.

    `last_stable_offset`: right after the marker, the first offset of the earliest transaction of another producer still
    open, else the marker's offset + 1; -1 for committed transactions, where nobody asks. Source: AbortedTxn.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    aborted: bool


class ProducerTable:
    """The state of all producers at one offset. Immutable; `replay` gives the next state."""

    __slots__ = ("_ids", "_rows", "_used")

    def __init__(self) -> None:
        """The state before the first batch."""
        self._ids: Any = None
        self._rows: Any = None
        self._used = 0

    @classmethod
    def from_entries(cls, entries: Iterable[ProducerEntry]) -> ProducerTable:
        """The state that a snapshot holds."""
        from producer_state import kernels  # the idle daemon must not load numba

        listed = list(entries)
        table = cls()
        table._ids, table._rows = _allocate(len(listed))
        for entry in listed:
            values = [getattr(entry, field.name) for field in fields(entry)][1:]
            values[-1] = -1 if values[-1] is None else values[-1]
            kernels.insert(table._ids, table._rows, entry.producer_id, np.array(values, dtype=np.int64))
        table._used = len(listed)
        return table

    def __len__(self) -> int:
        return self._used

    def replay(self, facts: BatchFacts) -> tuple[ProducerTable, list[CompletedTransaction]]:
        """The state after these batches, and the transactions they ended, in marker order.

        Raises:
            InvalidTransaction, MalformedMarker: with the offset of the batch.
        """
        from producer_state import kernels

        after = ProducerTable()
        after._ids, after._rows = _allocate(0) if self._ids is None else (self._ids.copy(), self._rows.copy())
        after._used = self._used
        columns = [getattr(facts, field.name) for field in fields(facts)]
        buffer = np.empty((min(_COMPLETED_AT_ONCE, len(facts) + 1), kernels.COMPLETED_FIELDS), dtype=np.int64)
        completed: list[CompletedTransaction] = []
        row, why = 0, -1
        while why != kernels.DONE:
            row, after._used, ended, why = kernels.replay(after._ids, after._rows, after._used, row, *columns, buffer)
            completed += [CompletedTransaction(*values[:4], bool(values[4])) for values in buffer[:ended].tolist()]
            if why == kernels.TABLE_FULL:
                after._grow()
            elif why == kernels.INVALID_TXN:
                raise InvalidTransaction(
                    f"offset {int(facts.base_offset[row])}: producer {int(facts.producer_id[row])} writes outside the "
                    f"transaction that it has open since offset {after._open_since(int(facts.producer_id[row]))}"
                )
            elif why == kernels.MALFORMED_MARKER:
                raise MalformedMarker(
                    f"offset {int(facts.base_offset[row])}: control batch of producer {int(facts.producer_id[row])} is no "
                    f"abort or commit marker (type {int(facts.marker_type[row])})"
                )
        return after, completed

    def _grow(self) -> None:
        from producer_state import kernels

        old_ids, old_rows = self._ids, self._rows
        self._ids, self._rows = _allocate(self._used * 2)
        for slot in np.flatnonzero(old_ids >= 0):
            kernels.insert(self._ids, self._rows, old_ids[slot], old_rows[slot])

    def _open_since(self, producer_id: int) -> int:
        return dict(self.open_transactions())[producer_id]

    def entries(self) -> tuple[ProducerEntry, ...]:
        """All producers, ascending by id, those that only an empty control batch has touched left out.

        Such a producer has no epoch and is dropped by whoever loads it.
        """
        if self._ids is None:
            return ()
        slots = np.flatnonzero((self._ids >= 0) & (self._rows[:, 0] >= 0))
        slots = slots[np.argsort(self._ids[slots])]
        return tuple(
            ProducerEntry(producer_id, *row[:6], None if row[6] < 0 else row[6])
            for producer_id, row in zip(self._ids[slots].tolist(), self._rows[slots].tolist(), strict=True)
        )

    def open_transactions(self) -> list[tuple[int, int]]:
        """(producer id, first offset) of every open transaction, ascending by first offset."""
        if self._ids is None:
            return []
        slots = np.flatnonzero((self._ids >= 0) & (self._rows[:, 6] >= 0))
        found = zip(self._ids[slots].tolist(), self._rows[slots, 6].tolist(), strict=True)
        return sorted(found, key=lambda item: item[1])

    def without_expired(self, now_ms: int, expiration_ms: int) -> ProducerTable:
        """Without producers that have no open transaction and were idle for `expiration_ms` at `now_ms`.

        Source: ProducerStateManager.isProducerExpired.
        """
        kept = [entry for entry in self.entries() if not is_expired(entry, now_ms, expiration_ms)]
        return self if len(kept) == self._used else ProducerTable.from_entries(kept)


def is_expired(entry: ProducerEntry, now_ms: int, expiration_ms: int) -> bool:
    """Source: ProducerStateManager.isProducerExpired."""
    return entry.current_txn_first_offset is None and now_ms - entry.last_timestamp_ms >= expiration_ms


def _allocate(entries: int) -> tuple[Any, Any]:
    capacity = max(_SMALLEST_TABLE, 1 << (entries * 2).bit_length())
    return np.full(capacity, -1, dtype=np.int64), np.full((capacity, 7), -1, dtype=np.int64)
