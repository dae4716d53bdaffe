"""The offset index (`.index`): where in a `.log` to begin reading for an offset."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from producer_state.facts import Int64Column
from sidecar.errors import CorruptFile
from sidecar.logformat.batches import BatchColumns
from sidecar.logformat.headers import LARGEST_POSITION
from sidecar.logformat.indexes.verdict import FINE, IndexVerdict, disagrees, rebuild

ENTRY = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
"""One entry, big-endian: offset minus the segment's base, byte position in the `.log`."""

LARGEST_CHUNK_BYTES = 1024 * 1024
"""What a follower appends at once by default (`replica.fetch.max.bytes`); a log's first chunk never gets an entry."""


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """Columns of equal length n: absolute offsets and positions, in file order."""

    base_offset: int
    offset: Int64Column
    position: Int64Column

    def __len__(self) -> int:
        return int(self.offset.shape[0])

    def lookup(self, target_offset: int) -> tuple[int, int]:
        """The entry with the greatest offset not above the target, else (base offset, 0). Source: OffsetIndex.lookup."""
        row = int(np.searchsorted(self.offset, target_offset, side="right")) - 1
        return (self.base_offset, 0) if row < 0 else (int(self.offset[row]), int(self.position[row]))

    def to_bytes(self) -> bytes:
        """n entries of 8 bytes. Raises CorruptFile for an offset or a position that is no non-negative int32."""
        wrong = np.flatnonzero((self.position < 0) | (self.position > LARGEST_POSITION))
        if wrong.size:
            row = int(wrong[0])
            raise CorruptFile(
                f"position {int(self.position[row])} is not within 0 to {LARGEST_POSITION}",
                offset=int(self.offset[row]),
            )
        entries = np.empty(len(self), dtype=ENTRY)
        entries["relative_offset"] = relative_offsets(self.offset, self.base_offset)
        entries["position"] = self.position
        return entries.tobytes()


def relative_offsets(offsets: Int64Column, base_offset: int) -> Int64Column:
    """Offsets minus the base. Raises CorruptFile where the result is no non-negative int32.

    Source: LogSegment.ensureOffsetInRange, AbstractIndex.relativeOffset.
    """
    relative: Int64Column = offsets - base_offset
    wrong = np.flatnonzero((offsets < base_offset) | (relative < 0) | (relative > LARGEST_POSITION))
    if wrong.size:
        offset = int(offsets[wrong[0]])
        raise CorruptFile(
            f"offset {offset} is not within 0 to {LARGEST_POSITION} above the segment's base {base_offset}",
            offset=offset,
        )
    return relative


def risen(values: Int64Column, before: int) -> npt.NDArray[np.bool_]:
    """Where a value is greater than the one before it. (No subtraction: it could overflow.)"""
    risen_rows: npt.NDArray[np.bool_] = values > np.concatenate([np.array([before], dtype=np.int64), values[:-1]])
    return risen_rows


def read_offset_index(data: bytes | memoryview, base_offset: int, file: str = "") -> OffsetIndex:
    """All entries as they stand, order unchecked. Raises CorruptFile if the size is no multiple of 8."""
    if len(data) % ENTRY.itemsize:
        raise CorruptFile(f"size {len(data)} is not a multiple of {ENTRY.itemsize}", file=file, position=len(data))
    entries = np.frombuffer(data, dtype=ENTRY)
    return OffsetIndex(
        base_offset, entries["relative_offset"].astype(np.int64) + base_offset, entries["position"].astype(np.int64)
    )


def without_zero_tail(data: bytes | memoryview, entry_bytes: int) -> bytes | memoryview:
    """The file without whole entries of zeros at its end: what an index has that was never trimmed.

    No entry of a trimmed file is all zeros, but for a time index whose only timestamp is 0 on the base offset.
    """
    used_bytes = len(bytes(data).rstrip(b"\0"))
    kept_bytes = -(-used_bytes // entry_bytes) * entry_bytes
    return data[:kept_bytes] if kept_bytes < len(data) // entry_bytes * entry_bytes else data


def unfinished(data: bytes | memoryview | None, entry_bytes: int, name: str) -> IndexVerdict | None:
    """The verdict on a file that is absent, cut or was never trimmed; None where its entries have to be checked."""
    if data is None:
        return rebuild(f"there is no {name}")
    if len(data) % entry_bytes:
        return disagrees(f"size {len(data)} is not a multiple of {entry_bytes}", len(data))
    if len(without_zero_tail(data, entry_bytes)) < len(data):
        return rebuild(f"the {name} was never trimmed: it ends in zeros")
    return None


def check_as_broker(data: bytes | memoryview, base_offset: int, file: str = "") -> None:
    """What a broker demands of an index it fetched from remote storage. Raises CorruptFile.

    Source: OffsetIndex.sanityCheck.
    """
    index = read_offset_index(data, base_offset, file)
    if len(index) and int(index.offset[-1]) < base_offset:
        last_offset = int(index.offset[-1])
        raise CorruptFile(f"last offset {last_offset} lies below the segment's base {base_offset}", file=file)


@dataclass(slots=True)
class OffsetIndexCheck:
    """Compares a broker's offset index with its log, chunk by chunk.

    An entry (o, p) is right if a batch begins at p, every batch before p ends below o, and o lies in some batch from p on.
    That holds for entries per batch and for those of multi-batch chunks (followers, old cleaners), so a right index need not
    equal a rebuilt one. Old cleaners name the last record that they kept, not the end of its batch.
    `data` is None where the file is absent. Source: MemoryRecords.filterTo, LogSegment.append before KAFKA-806.
    """

    data: bytes | memoryview | None
    base_offset: int
    _index: OffsetIndex | None = field(init=False, default=None)
    _verdict: IndexVerdict | None = field(init=False, default=None)
    _next_by_position: int = field(init=False, default=0)
    _next_by_offset: int = field(init=False, default=0)
    _last_offset: int = field(init=False, default=-1)
    _end_position: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._verdict = unfinished(self.data, ENTRY.itemsize, "offset index")
        if self.data is None or self._verdict is not None:
            return
        self._index = read_offset_index(self.data, self.base_offset)
        self._check_order(self._index)

    def _check_order(self, index: OffsetIndex) -> None:
        if len(index) and int(index.offset[0]) < self.base_offset:
            self._fail(0, f"offset {int(index.offset[0])} lies below the segment's base {self.base_offset}")
            return
        rises = risen(index.offset, self.base_offset - 1) & risen(index.position, -1)
        if not rises.all():
            row = int(np.flatnonzero(~rises)[0])
            self._fail(row, f"{_entry(index, row)} is not above the one before it, {_entry(index, row - 1)}")

    def _fail(self, row: int, reason: str) -> None:
        self._verdict = disagrees(f"offset index: {reason}", row * ENTRY.itemsize)

    def add(self, columns: BatchColumns) -> None:
        """Take the next batches in file order."""
        index = self._index
        if index is None or self._verdict is not None or not len(columns):
            return
        self._check_positions(index, columns)
        if self._verdict is None:
            self._check_offsets(index, columns)
        self._last_offset = int(columns.last_offset[-1])
        self._end_position = int(columns.position[-1]) + int(columns.size_bytes[-1])

    def _check_positions(self, index: OffsetIndex, columns: BatchColumns) -> None:
        first, self._next_by_position = (
            self._next_by_position,
            int(np.searchsorted(index.position, columns.position[-1], side="right")),
        )
        entries = slice(first, self._next_by_position)
        batch = np.searchsorted(columns.position, index.position[entries])
        wrong = np.flatnonzero(columns.position[batch] != index.position[entries])
        if wrong.size:
            row = first + int(wrong[0])
            self._fail(row, f"no batch begins at position {int(index.position[row])}")
            return
        offset_before = np.where(batch > 0, columns.last_offset[batch - 1], self._last_offset)
        wrong = np.flatnonzero(offset_before >= index.offset[entries])
        if wrong.size:
            row = first + int(wrong[0])
            self._fail(
                row, f"{_entry(index, row)}, but a batch before it ends at offset {int(offset_before[wrong[0]])}"
            )

    def _check_offsets(self, index: OffsetIndex, columns: BatchColumns) -> None:
        first, self._next_by_offset = (
            self._next_by_offset,
            int(np.searchsorted(index.offset, columns.last_offset[-1], side="right")),
        )
        entries = slice(first, self._next_by_offset)
        batch = np.searchsorted(columns.last_offset, index.offset[entries])
        wrong = np.flatnonzero(columns.base_offset[batch] > index.offset[entries])
        if wrong.size:
            row = first + int(wrong[0])
            self._fail(row, f"offset {int(index.offset[row])} is in no batch")

    def finish(self, rebuilt: bytes) -> IndexVerdict:
        """The verdict, after the last batch. `rebuilt` is the index built from the same batches."""
        if self.data is not None and bytes(self.data) == rebuilt:
            return FINE
        if self._verdict is not None or self._index is None:
            return self._verdict or FINE
        index = self._index
        row = min(self._next_by_position, self._next_by_offset)
        if row < len(index):
            self._fail(row, f"{_entry(index, row)} points beyond the log, which ends at position {self._end_position}")
            return self._verdict or FINE
        if len(index) == 0 and rebuilt and self._end_position > LARGEST_CHUNK_BYTES:
            return rebuild(f"the offset index is empty for a log of {self._end_position} bytes")
        return FINE


def _entry(index: OffsetIndex, row: int) -> str:
    return f"entry {row} (offset {int(index.offset[row])}, position {int(index.position[row])})"
