"""Where a segment is cut: always between two batches, whose bytes stay as they are."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from producer_state.facts import Int64Column
from sidecar.logformat.batches import BatchColumns, SegmentScanner
from sidecar.logformat.headers import CURRENT_MAGIC
from sidecar.logformat.indexes.rebuild import BuiltIndexes, IndexBuilder
from sidecar.logformat.positional import PositionalFile
from sidecar.ports import MIB
from sidecar.restore.plan import SegmentPlan
from sidecar.restore.segments.in_place import bytes_at, put_at
from sidecar.restore.staging import translating

_COPY_BYTES = 4 * MIB


class Cut:
    """A fold over a segment's batches: which bytes of its file stay, and the offsets that these are named by.

    A batch that reaches over a border stays whole. `base_offset`: for the new file's name. `end_offset`: where the log ends.
    """

    def __init__(self, plan: SegmentPlan) -> None:
        self._plan = plan
        self._next_offset = plan.segment.base_offset
        self._first_kept: int | None = None
        self._last_kept = -1
        self._stopped_at: int | None = None
        self.start_position = 0
        self.end_position = 0

    def add(self, columns: BatchColumns) -> int:
        """Take the next batches in file order. Returns how many of them, from the first on, are not behind the end."""
        first_offset = _first_offsets(columns, self._next_offset)
        self._next_offset = int(columns.last_offset[-1]) + 1
        if self._stopped_at is not None:
            return 0
        leaving = first_offset >= self._plan.end_offset
        if self._plan.until_timestamp_ms is not None:
            is_wanted = columns.last_offset >= self._plan.kept_from_offset
            leaving |= is_wanted & (columns.max_timestamp_ms > self._plan.until_timestamp_ms)
        rows = np.flatnonzero(leaving)
        stop = int(rows[0]) if rows.size else len(columns)
        if rows.size:
            self._stopped_at = int(first_offset[stop])
        below = int(np.searchsorted(columns.last_offset[:stop], self._plan.kept_from_offset, side="left"))
        if self._first_kept is None:
            self.start_position = self.end_position = (
                int(columns.position[below]) if below < len(columns) else _end(columns)
            )
            if below < stop:
                self._first_kept = int(first_offset[below])
        if below < stop:
            self.end_position = int(columns.position[stop - 1]) + int(columns.size_bytes[stop - 1])
            self._last_kept = int(columns.last_offset[stop - 1])
        return stop

    @property
    def base_offset(self) -> int:
        """See the class."""
        if not self._plan.is_cut_at_start:
            return self._plan.segment.base_offset
        first = self._plan.first_offset
        return first if self._first_kept is None else min(first, self._first_kept)

    @property
    def batches_end_offset(self) -> int:
        """Behind the last batch that stays, 0 where none does."""
        return self._last_kept + 1

    @property
    def end_offset(self) -> int:
        """See the class."""
        if self._plan.until_timestamp_ms is not None and self._stopped_at is not None:
            return max(self._stopped_at, self._last_kept + 1, self.base_offset)
        return max(self._plan.end_offset, self._last_kept + 1, self.base_offset)


def _first_offsets(columns: BatchColumns, next_offset: int) -> Int64Column:
    """The first offset of each batch; of a legacy wrapper, whose header does not tell, the lowest that it can have."""
    after_previous = np.concatenate([np.array([next_offset], dtype=np.int64), columns.last_offset[:-1] + 1])
    return np.where(columns.magic >= CURRENT_MAGIC, columns.base_offset, after_previous)


def _end(columns: BatchColumns) -> int:
    return int(columns.position[-1]) + int(columns.size_bytes[-1])


def keep_only(descriptor: int, path: Path, start_position: int, end_position: int) -> None:
    """Make a file consist of these of its bytes. Raises as `bytes_at` does."""
    for position in range(start_position, end_position if start_position else 0, _COPY_BYTES):
        data = bytes_at(descriptor, path, position, min(_COPY_BYTES, end_position - position))
        put_at(descriptor, path, position - start_position, data)
    with translating(path):
        os.ftruncate(descriptor, end_position - start_position)


def indexes_of(descriptor: int, size_bytes: int, base_offset: int, file: str) -> BuiltIndexes:
    """The offset and time index of a file that was cut, as a broker's recovery would build them. Raises CorruptFile."""
    builder = IndexBuilder(base_offset)
    scanner = SegmentScanner(
        PositionalFile(descriptor),
        size_bytes,
        base_offset=base_offset,
        file=file,
    )
    for columns in scanner:
        builder.add(columns)
    scanner.require_exact()
    return builder.finish()
