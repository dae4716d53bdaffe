"""Builds the indexes of a segment from its batches, as a broker's recovery would."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from producer_state.facts import Int64Column
from producer_state.replay import CompletedTransaction
from sidecar.errors import CorruptFile
from sidecar.logformat.batches import BatchColumns
from sidecar.logformat.headers import (
    CURRENT_MAGIC,
    LARGEST_POSITION,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    SMALLEST_MESSAGE_BYTES,
)
from sidecar.logformat.indexes.offset_index import OffsetIndex, relative_offsets, risen
from sidecar.logformat.indexes.time_index import TimeIndex
from sidecar.logformat.indexes.transaction_index import from_completed
from sidecar.logformat.leader_epochs import LeaderEpochs, epochs_of

INDEX_INTERVAL_BYTES = 4096
"""Default of `index.interval.bytes`."""


@dataclass(frozen=True, slots=True)
class BuiltIndexes:
    """What the batches of a segment say.

    `leader_epochs` holds an entry for every batch that began a new, higher epoch. `max_timestamp_ms` is -1 where no batch
    has a timestamp, `last_offset` and the checksums are None where there is no batch.
    `first_leader_epoch` is the first batch's, -1 for magic 0 and 1.
    """

    offset_index: bytes
    time_index: bytes
    transaction_index: bytes
    leader_epochs: LeaderEpochs
    max_timestamp_ms: int
    last_offset: int | None
    batch_count: int
    size_bytes: int
    first_batch_crc: int | None
    last_batch_crc: int | None
    first_leader_epoch: int | None

    @property
    def epochs_from_base(self) -> LeaderEpochs:
        """`leader_epochs` if they begin with the first batch, else none: what `leader_epochs.complete` may go by."""
        return self.leader_epochs if (self.first_leader_epoch or 0) >= 0 else LeaderEpochs()


class IndexBuilder:
    """A fold over the batches of one segment, in file order and in chunks of any size.

    Memory: 8 bytes per index entry and column. Source: LogSegment.recover.
    """

    def __init__(self, base_offset: int, index_interval_bytes: int = INDEX_INTERVAL_BYTES) -> None:
        self._base_offset = base_offset
        self._interval_bytes = index_interval_bytes
        self._last_indexed_position = 0
        self._largest = (NO_TIMESTAMP, base_offset)
        self._last_time_entry_ms = NO_TIMESTAMP
        self._offset_entries: list[tuple[Int64Column, Int64Column]] = []
        self._time_entries: list[tuple[Int64Column, Int64Column]] = []
        self._epochs: list[tuple[int, int]] = []
        self._latest_epoch = NO_LEADER_EPOCH
        self._last_offset: int | None = None
        self._batch_count = 0
        self._size_bytes = 0
        self._first_batch_crc: int | None = None
        self._last_batch_crc: int | None = None
        self._first_leader_epoch: int | None = None

    def add(self, columns: BatchColumns) -> None:
        """Take the next batches. Raises CorruptFile for an offset or a position that no index of the segment can hold."""
        if not len(columns):
            return
        self._check_offsets(columns)
        _check_end(columns)
        rows = self._indexed_rows(columns)
        self._offset_entries.append((columns.last_offset[rows], columns.position[rows].astype(np.int64)))
        self._add_timestamps(columns, rows)
        self._add_epochs(columns)
        if self._first_batch_crc is None:
            self._first_batch_crc = int(columns.crc[0])
            self._first_leader_epoch = int(columns.leader_epoch[0])
        self._last_batch_crc = int(columns.crc[-1])
        self._last_offset = int(columns.last_offset[-1])
        self._batch_count += len(columns)
        self._size_bytes = int(columns.position[-1]) + int(columns.size_bytes[-1])

    def _check_offsets(self, columns: BatchColumns) -> None:
        try:
            relative_offsets(columns.last_offset, self._base_offset)
        except CorruptFile as error:
            row = int(np.flatnonzero(columns.last_offset == error.offset)[0])
            raise CorruptFile(error.what, position=int(columns.position[row]), offset=error.offset) from error

    def _indexed_rows(self, columns: BatchColumns) -> Int64Column:
        positions = np.ascontiguousarray(columns.position, dtype=np.int64).data
        count = len(positions)
        # Batches have a smallest size, so the next entry lies within so many rows: the search stays short.
        reach = self._interval_bytes // SMALLEST_MESSAGE_BYTES[0] + 2
        rows: list[int] = []
        row = bisect_right(positions, self._last_indexed_position + self._interval_bytes)
        while row < count:
            rows.append(row)
            self._last_indexed_position = positions[row]
            target = self._last_indexed_position + self._interval_bytes
            row = bisect_right(positions, target, row + 1, min(count, row + reach))
        return np.array(rows, dtype=np.int64)

    def _add_timestamps(self, columns: BatchColumns, rows: Int64Column) -> None:
        timestamp_ms = columns.max_timestamp_ms
        before_ms, before_offset = self._largest
        largest_ms = np.maximum(np.maximum.accumulate(timestamp_ms), before_ms)
        # A strict comparison: of equal maxima the first batch counts.
        raised = np.flatnonzero(risen(largest_ms, before_ms))
        which = np.searchsorted(raised, rows, side="right") - 1
        offsets = np.concatenate([columns.last_offset[raised], [before_offset]])[which]
        self._append_time_entries(largest_ms[rows], offsets)
        if raised.size:
            self._largest = (int(largest_ms[-1]), int(columns.last_offset[raised[-1]]))

    def _append_time_entries(self, timestamp_ms: Int64Column, offset: Int64Column) -> None:
        grown = risen(timestamp_ms, self._last_time_entry_ms)
        if grown.any():
            self._time_entries.append((timestamp_ms[grown], offset[grown]))
            self._last_time_entry_ms = int(timestamp_ms[-1])

    def _add_epochs(self, columns: BatchColumns) -> None:
        known = np.where(columns.magic >= CURRENT_MAGIC, columns.leader_epoch, NO_LEADER_EPOCH)
        latest = np.maximum(np.maximum.accumulate(known), self._latest_epoch)
        rows = np.flatnonzero(risen(latest, self._latest_epoch))
        self._epochs += zip(known[rows].tolist(), columns.base_offset[rows].tolist(), strict=True)
        self._latest_epoch = int(latest[-1])

    def finish(self, transactions: Iterable[CompletedTransaction] = ()) -> BuiltIndexes:
        """The indexes, after the last batch. `transactions`: those whose markers the batches hold, in marker order."""
        max_timestamp_ms, max_timestamp_offset = self._largest
        self._append_time_entries(np.array([max_timestamp_ms]), np.array([max_timestamp_offset]))
        offset, position = _joined(self._offset_entries)
        timestamp_ms, time_offset = _joined(self._time_entries)
        end_offset = self._base_offset if self._last_offset is None else self._last_offset + 1
        return BuiltIndexes(
            offset_index=OffsetIndex(self._base_offset, offset, position).to_bytes(),
            time_index=TimeIndex(self._base_offset, timestamp_ms, time_offset).to_bytes(),
            transaction_index=from_completed(transactions, self._base_offset, end_offset).to_bytes(),
            leader_epochs=epochs_of(self._epochs),
            max_timestamp_ms=max_timestamp_ms,
            last_offset=self._last_offset,
            batch_count=self._batch_count,
            size_bytes=self._size_bytes,
            first_batch_crc=self._first_batch_crc,
            last_batch_crc=self._last_batch_crc,
            first_leader_epoch=self._first_leader_epoch,
        )


def _check_end(columns: BatchColumns) -> None:
    """Source: FileRecords.append, which refuses a segment of more bytes than an int32 counts."""
    end_position = int(columns.position[-1]) + int(columns.size_bytes[-1])
    if end_position > LARGEST_POSITION:
        raise CorruptFile(
            f"a batch that ends at byte {end_position}; a segment holds at most {LARGEST_POSITION} bytes",
            position=int(columns.position[-1]),
            offset=int(columns.base_offset[-1]),
        )


def _joined(entries: list[tuple[Int64Column, Int64Column]]) -> tuple[Int64Column, Int64Column]:
    empty = np.empty(0, dtype=np.int64)
    first = np.concatenate([empty, *(columns[0] for columns in entries)])
    return first, np.concatenate([empty, *(columns[1] for columns in entries)])
