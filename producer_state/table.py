"""The producer state of a partition at one offset, and which producers a broker forgets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from producer_state.facts import Int64Column
from producer_state.snapshot import (
    ENTRY_DTYPE,
    NONE,
    ProducerEntry,
    Rows,
    entries_of,
    read_rows,
    rows_of,
    write_rows,
)

SKEW_MARGIN_MS = 5 * 60 * 1000
"""How far clocks may be apart."""

_FIELDS = (ENTRY_DTYPE.names or ())[1:]
_BLANK = rows_of([ProducerEntry(0)])[0]


@dataclass(frozen=True, slots=True)
class Expiration:
    """When a producer is forgotten: no open transaction, and its last batch or marker is `window_ms` old or older.

    `window_ms` None: never. Brokers use their own wall clock and the timestamps in the log, so that -1 is always old
    and a future timestamp lives longer. Source: ProducerStateManager.isProducerExpired.
    """

    now_ms: int
    window_ms: int | None

    @classmethod
    def with_margins(cls, now_ms: int, producer_id_expiration_ms: int | None) -> Expiration:
        """An expiration that forgets no one whom a broker would still know.

        Args:
            now_ms: our wall clock; taken back by the margin, as the broker's clock may be behind.
            producer_id_expiration_ms: the largest `producer.id.expiration.ms` of any broker; the margin is added.
        """
        window_ms = None if producer_id_expiration_ms is None else producer_id_expiration_ms + SKEW_MARGIN_MS
        return cls(now_ms - SKEW_MARGIN_MS, window_ms)

    @property
    def last_expired_ms(self) -> int | None:
        return None if self.window_ms is None else self.now_ms - self.window_ms

    def keeps(self, timestamp_ms: int) -> bool:
        last_expired_ms = self.last_expired_ms
        return last_expired_ms is None or timestamp_ms > last_expired_ms


@dataclass(frozen=True, slots=True, eq=False)
class ProducerTable:
    """State after every batch below `end_offset`: records of ENTRY_DTYPE in ascending producer id. Never changed."""

    end_offset: int
    rows: Rows

    @classmethod
    def blank(cls, end_offset: int = 0) -> ProducerTable:
        """No producer known, as at the start of a log."""
        return cls(end_offset, np.empty(0, ENTRY_DTYPE))

    @classmethod
    def from_entries(cls, end_offset: int, entries: Iterable[ProducerEntry]) -> ProducerTable:
        return cls(end_offset, rows_of(entries))

    @classmethod
    def from_snapshot(cls, end_offset: int, data: bytes | bytearray | memoryview) -> ProducerTable:
        """The table that `<end_offset>.snapshot` holds, nothing expired. Raises CorruptSnapshot."""
        return cls(end_offset, read_rows(data))

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerTable):
            return NotImplemented
        return self.end_offset == other.end_offset and bool(np.array_equal(self.rows, other.rows))

    __hash__ = None  # type: ignore[assignment]  # arrays inside: it can be compared, not hashed

    def entries(self) -> tuple[ProducerEntry, ...]:
        return entries_of(self.rows)

    def get(self, producer_id: int) -> ProducerEntry | None:
        index = int(np.searchsorted(self.rows["producer_id"], producer_id))
        if index == len(self.rows) or self.rows["producer_id"][index] != producer_id:
            return None
        return entries_of(self.rows[index : index + 1])[0]

    def only(self, producer_ids: Int64Column) -> ProducerTable:
        return ProducerTable(self.end_offset, self.rows[np.isin(self.rows["producer_id"], producer_ids)])

    def in_transaction(self) -> ProducerTable:
        return ProducerTable(self.end_offset, self.rows[self.rows["current_txn_first_offset"] >= 0])

    def open_transactions(self, below_offset: int = 2**63 - 1) -> dict[int, int]:
        """Producers in a transaction that began below an offset, and its first offset."""
        first_offsets = self.rows["current_txn_first_offset"]
        rows = self.rows[(first_offsets >= 0) & (first_offsets < below_offset)]
        return dict(zip(rows["producer_id"].tolist(), rows["current_txn_first_offset"].tolist(), strict=True))

    def without_transactions(self, producer_ids: Iterable[int]) -> ProducerTable:
        """With these producers in no transaction."""
        rows = self.rows.copy()
        rows["current_txn_first_offset"][np.isin(rows["producer_id"], list(producer_ids))] = -1
        return ProducerTable(self.end_offset, rows)

    def open_as_in(self, other: ProducerTable, base_offset: int) -> ProducerTable:
        """With only those transactions that are open there, too. Below an offset, they began where that says."""
        rows = self.rows.copy()
        begun = other.open_transactions()
        for number in np.flatnonzero(rows["current_txn_first_offset"] >= 0).tolist():
            first_offset = begun.get(int(rows["producer_id"][number]))
            if first_offset is None or rows["current_txn_first_offset"][number] < base_offset:
                rows["current_txn_first_offset"][number] = -1 if first_offset is None else first_offset
        return ProducerTable(self.end_offset, rows)

    def unexpired(self, expiration: Expiration) -> ProducerTable:
        """Without the producers that a loader would forget, and without those of whom nothing is known.

        The latter stem from empty control batches of unknown producers; the next expiry check removes them anyway.
        """
        rows, last_expired_ms = self.rows, expiration.last_expired_ms
        if (rows["last_timestamp_ms"] > max(NONE, NONE if last_expired_ms is None else last_expired_ms)).all():
            return self
        keep = np.any([rows[name] != blank for name, blank in zip(_FIELDS, _BLANK.item()[1:], strict=True)], axis=0)
        if last_expired_ms is not None:
            keep &= rows["last_timestamp_ms"] > last_expired_ms
        return ProducerTable(self.end_offset, rows[keep | (rows["current_txn_first_offset"] >= 0)])

    def first_open_transaction_offset(self) -> int | None:
        return min(self.open_transactions().values(), default=None)

    def decided_below(self, end_offset: int) -> int:
        """Up to where, `end_offset` at most, no transaction is open."""
        open_offset = self.first_open_transaction_offset()
        return end_offset if open_offset is None else min(open_offset, end_offset)

    def to_snapshot(self) -> bytes:
        return write_rows(self.rows)
