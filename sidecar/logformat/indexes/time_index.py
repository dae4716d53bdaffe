"""The time index (`.timeindex`): from which offset on records may have a timestamp above a given one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from producer_state.facts import Int64Column
from sidecar.errors import CorruptFile
from sidecar.logformat.batches import BatchColumns
from sidecar.logformat.files import open_regular
from sidecar.logformat.headers import CURRENT_MAGIC, NO_TIMESTAMP
from sidecar.logformat.indexes.offset_index import relative_offsets, risen, unfinished
from sidecar.logformat.indexes.verdict import FINE, IndexVerdict, disagrees, rebuild

_ENTRIES_AT_END: Final = 64
"""So many are read to judge an index by its end."""

ENTRY = np.dtype([("timestamp_ms", ">i8"), ("relative_offset", ">i4")])
"""One entry, big-endian: largest timestamp so far, last offset of the batch that first had it, minus the base."""


@dataclass(frozen=True, slots=True)
class TimeIndex:
    """Columns of equal length n: timestamps and absolute offsets, in file order.

    Every record with a timestamp above an entry's has an offset above that entry's.
    """

    base_offset: int
    timestamp_ms: Int64Column
    offset: Int64Column

    def __len__(self) -> int:
        return int(self.offset.shape[0])

    def to_bytes(self) -> bytes:
        """n entries of 12 bytes. Raises CorruptFile if an offset cannot be expressed relative to the base."""
        entries = np.empty(len(self), dtype=ENTRY)
        entries["timestamp_ms"] = self.timestamp_ms
        entries["relative_offset"] = relative_offsets(self.offset, self.base_offset)
        return entries.tobytes()


def read_time_index(data: bytes | memoryview, base_offset: int, file: str = "") -> TimeIndex:
    """All entries as they stand, order unchecked. Raises CorruptFile if the size is no multiple of 12."""
    if len(data) % ENTRY.itemsize:
        raise CorruptFile(f"size {len(data)} is not a multiple of {ENTRY.itemsize}", file=file, position=len(data))
    entries = np.frombuffer(data, dtype=ENTRY)
    return TimeIndex(
        base_offset, entries["timestamp_ms"].astype(np.int64), entries["relative_offset"].astype(np.int64) + base_offset
    )


def check_as_broker(data: bytes | memoryview, base_offset: int, file: str = "") -> None:
    """What a broker demands of an index it fetched from remote storage. Raises CorruptFile.

    Source: TimeIndex.sanityCheck.
    """
    index = read_time_index(data, base_offset, file)
    if len(index) and int(index.timestamp_ms[-1]) < int(index.timestamp_ms[0]):
        first_ms, last_ms = int(index.timestamp_ms[0]), int(index.timestamp_ms[-1])
        raise CorruptFile(f"last timestamp {last_ms} lies below the first one, {first_ms}", file=file)
    if len(index) and int(index.offset[-1]) < base_offset:
        last_offset = int(index.offset[-1])
        raise CorruptFile(f"last offset {last_offset} lies below the segment's base {base_offset}", file=file)


def read_newest_timestamp_ms(path: Path, base_offset: int, end_offset: int) -> int | None:
    """The largest timestamp of a rolled segment `[base_offset, end_offset)`: that of its index's last entry.

    None if the file is empty, torn, not ascending at its end, ends in zeros, or names an offset outside of the segment.
    Raises OSError.
    A broker that truncated its log within the segment may have left a timestamp that is too low: see `TimeIndexCheck`.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        file.seek(max(0, size_bytes - _ENTRIES_AT_END * ENTRY.itemsize))
        tail = file.read()
    if size_bytes % ENTRY.itemsize or not tail:
        return None
    index = read_time_index(tail, base_offset, str(path))
    ascends = bool((np.diff(index.timestamp_ms) > 0).all() and (np.diff(index.offset) > 0).all())
    newest_ms, offset = int(index.timestamp_ms[-1]), int(index.offset[-1])
    return newest_ms if ascends and newest_ms > 0 and base_offset <= offset < end_offset else None


@dataclass(slots=True)
class TimeIndexCheck:
    """Compares a broker's time index with its log, chunk by chunk.

    An entry (t, o) is right if o lies in a batch and t is the largest timestamp up to that batch's end. Brokers can also
    leave entries that are too low, because they forget the largest timestamp when a log is truncated or loaded without
    a time index; such a file is rebuilt. A timestamp that the log does not have is a contradiction.
    `data` is None where the file is absent.
    """

    data: bytes | memoryview | None
    base_offset: int
    _index: TimeIndex | None = field(init=False, default=None)
    _verdict: IndexVerdict | None = field(init=False, default=None)
    _poorer: IndexVerdict | None = field(init=False, default=None)
    _next_row: int = field(init=False, default=0)
    _max_timestamp_ms: int = field(init=False, default=NO_TIMESTAMP)

    def __post_init__(self) -> None:
        self._verdict = unfinished(self.data, ENTRY.itemsize, "time index")
        if self.data is None or self._verdict is not None:
            return
        self._index = read_time_index(self.data, self.base_offset)
        if len(self._index) and int(self._index.offset[0]) < self.base_offset:
            self._fail(0, f"{_entry(self._index, 0)} lies below the segment's base {self.base_offset}")
            return
        rises = risen(self._index.timestamp_ms, NO_TIMESTAMP)
        rises[1:] &= self._index.offset[1:] >= self._index.offset[:-1]
        if not rises.all():
            row = int(np.flatnonzero(~rises)[0])
            self._fail(row, f"{_entry(self._index, row)} is not above the one before it")

    def _fail(self, row: int, reason: str) -> None:
        self._verdict = disagrees(f"time index: {reason}", row * ENTRY.itemsize)

    def add(self, columns: BatchColumns) -> None:
        """Take the next batches in file order."""
        index = self._index
        if index is None or self._verdict is not None or not len(columns):
            return
        first, self._next_row = (
            self._next_row,
            int(np.searchsorted(index.offset, columns.last_offset[-1], side="right")),
        )
        entries = slice(first, self._next_row)
        largest_ms = np.maximum(np.maximum.accumulate(columns.max_timestamp_ms), self._max_timestamp_ms)
        self._max_timestamp_ms = int(largest_ms[-1])
        batch = np.searchsorted(columns.last_offset, index.offset[entries])
        # A legacy wrapper shows only its last offset in its header, so an offset inside cannot be distinguished from a gap.
        outside = (columns.base_offset[batch] > index.offset[entries]) & (columns.magic[batch] >= CURRENT_MAGIC)
        too_high = index.timestamp_ms[entries] > largest_ms[batch]
        elsewhere = index.timestamp_ms[entries] != columns.max_timestamp_ms[batch]
        too_low = index.timestamp_ms[entries] < largest_ms[batch]
        wrong = np.flatnonzero(outside | too_high | (too_low & elsewhere))
        if wrong.size:
            row = first + int(wrong[0])
            largest = int(largest_ms[batch[wrong[0]]])
            found = "is in no batch" if outside[wrong[0]] else f"but the largest timestamp up to there is {largest}"
            self._fail(row, f"{_entry(index, row)} {found}")
        elif too_low.any():
            self._poorer = rebuild(
                f"time index: {_entry(index, first + int(np.flatnonzero(too_low)[0]))} is lower than one before it in the log"
            )

    def finish(self, rebuilt: bytes) -> IndexVerdict:
        """The verdict, after the last batch. `rebuilt` is the index built from the same batches."""
        if self.data is not None and bytes(self.data) == rebuilt:
            return FINE
        if self._verdict is not None or self._index is None:
            return self._verdict or FINE
        index = self._index
        if self._next_row < len(index):
            self._fail(self._next_row, f"{_entry(index, self._next_row)} is beyond the last batch")
            return self._verdict or FINE
        if self._poorer is not None:
            return self._poorer
        last_ms = int(index.timestamp_ms[-1]) if len(index) else NO_TIMESTAMP
        if last_ms < self._max_timestamp_ms:
            return rebuild(f"the time index ends at timestamp {last_ms}, the log's largest is {self._max_timestamp_ms}")
        return FINE


def _entry(index: TimeIndex, row: int) -> str:
    return f"entry {row} (timestamp {int(index.timestamp_ms[row])}, offset {int(index.offset[row])})"
