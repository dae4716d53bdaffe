"""Reads objects of segments: of `.indexes` never more bytes than the commit names, and nothing that differs from it."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Final

import numpy as np

from producer_state.table import ProducerTable
from producer_state.wire import ProducerStateError
from sidecar.archive.bundle import cut_part, cut_parts, indexes_size_bytes, log_size_bytes
from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.errors import CorruptFile, ObjectDamaged, ObjectMissing, PartitionError
from sidecar.logformat.batches import SegmentScanner
from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.indexes.offset_index import read_offset_index
from sidecar.logformat.window import ReadAt
from sidecar.model import ArchivedSegment, ObjectKey, PartName
from sidecar.ports import MIB, ObjectStore

CHUNK_BYTES: Final = MIB
"""Of a log that is streamed. Smaller ones switch threads more often; for larger writes the kernel looks for larger free memory."""


def read_committed(store: ObjectStore, key: ObjectKey, size_bytes: int, position: int, wanted_bytes: int) -> bytes:
    """A range of an object that has `size_bytes` by its commit. Raises CorruptFile where the object ends before, StoreError."""
    wanted_bytes = min(wanted_bytes, size_bytes - position)
    content = store.read(key, position, wanted_bytes)
    if len(content) < wanted_bytes:
        facts = store.head(key)
        found = 0 if facts is None else facts.size_bytes
        raise CorruptFile(f"has {found} bytes in the store, but the commit says {size_bytes}", file=key)
    return content


def reader(store: ObjectStore, key: ObjectKey, size_bytes: int) -> ReadAt:
    """Fills a buffer from a position of an object: one request each. Reading raises as `read_committed`."""

    def read_at(position: int, buffer: memoryview) -> int:
        content = read_committed(store, key, size_bytes, position, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    return read_at


class StreamedReads:
    """The chunks of an object as reads, of which almost all follow one another: those share one request.

    `again` reads bytes before the last chunk: the beginning of a batch that is larger than any window.
    """

    def __init__(self, chunks: Iterator[bytes], again: ReadAt) -> None:
        self._chunks = chunks
        self._again = again
        self._chunk = memoryview(b"")
        self.received_bytes = 0

    def read_at(self, position: int, buffer: memoryview) -> int:
        """See `ReadAt`. Raises what the chunks and `again` raise, but for an object that ends early: the caller knows its size."""
        with suppress(ObjectDamaged):
            while position >= self.received_bytes and (chunk := next(self._chunks, b"")):
                self._chunk = memoryview(chunk)
                self.received_bytes += len(chunk)
        begin = position - (self.received_bytes - len(self._chunk))
        if begin < 0:
            return self._again(position, buffer)
        piece = self._chunk[begin : begin + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        if isinstance(self._chunks, Generator):
            self._chunks.close()


def read_part(store: ObjectStore, root: str, segment: ArchivedSegment, name: PartName) -> bytes:
    """The bytes of one part. Raises PartitionError if the commit names no such part, CorruptFile if they differ, StoreError."""
    key = below(root, segment.indexes_key)
    part = segment.part(name)
    if part is None:
        raise PartitionError(f"{key}: the commit does not name a part {name}; verify the archive")
    return cut_part(store.read(key, part.position, part.size_bytes), part, key, part.position)


def indexed_position(store: ObjectStore, root: str, segment: ArchivedSegment, offset: int) -> int:
    """Where a batch begins that ends at or below an offset, as near as the archived index gives it; 0 for the segment's first."""
    part = segment.part(PartName.OFFSET_INDEX)
    if offset <= segment.base_offset or part is None or part.size_bytes == 0:
        return 0
    cut = read_part(store, root, segment, PartName.OFFSET_INDEX)
    return read_offset_index(cut, segment.base_offset, below(root, segment.indexes_key)).lookup(offset)[1]


def archived_deletes(store: ObjectStore, state: PartitionState, first_offsets: Mapping[int, int]) -> set[int]:
    """Producers with an archived tombstone, or record without a key, from an offset on.

    `first_offsets`: of their transactions that are open where the archive ends. Raises CorruptFile, StoreError.
    """
    found: set[int] = set()
    root, from_offset = state.lineage.root, min(first_offsets.values(), default=sys.maxsize)
    for segment in state.segments:
        if segment.end_offset <= from_offset:
            continue
        key, size_bytes = below(root, segment.log_key), log_size_bytes(segment)
        read_at, position = reader(store, key, size_bytes), indexed_position(store, root, segment, from_offset)
        scanner = SegmentScanner(read_at, size_bytes, file=key, check_crc=False, start_position=position)
        for columns in scanner:
            for row in np.flatnonzero(np.isin(columns.producer_id, list(first_offsets))).tolist():
                if columns.base_offset[row] < first_offsets[producer_id := int(columns.producer_id[row])]:
                    continue
                batch = bytearray(int(columns.size_bytes[row]))
                read_at(int(columns.position[row]), memoryview(batch))
                if any(record.value is None or record.key is None for record in read_records(memoryview(batch))):
                    found.add(producer_id)
        scanner.require_exact()
    return found


def table_at_end(store: ObjectStore, root: str, segment: ArchivedSegment) -> ProducerTable:
    """The archived producer state at a segment's end. Raises as `read_part`, and CorruptFile where it cannot be read."""
    content = read_part(store, root, segment, PartName.PRODUCER_SNAPSHOT)
    try:
        return ProducerTable.from_snapshot(segment.end_offset, content)
    except ProducerStateError as error:
        key = below(root, segment.indexes_key)
        raise CorruptFile(f"the archived producer snapshot cannot be read: {error}", file=key) from error


def first_undecided(store: ObjectStore, state: PartitionState) -> int | None:
    """First offset of the earliest transaction of which it is not archived how it ended; its data may yet be aborted.

    It is open at the archive's end; or at the beginning of a gap, in which its end may be lost. Raises CorruptFile, StoreError.
    """
    ends = [before for before, after in pairwise(state.segments) if before.end_offset != after.base_offset]
    tables = (table_at_end(store, state.lineage.root, segment) for segment in (*ends, *state.segments[-1:]))
    offsets = [table.first_open_transaction_offset() for table in tables]
    return min((offset for offset in offsets if offset is not None), default=None)


def read_parts(store: ObjectStore, root: str, segment: ArchivedSegment) -> Mapping[PartName, bytes]:
    """All parts of `.indexes`, checked against the commit. Raises as `read_indexes`, and CorruptFile where they differ."""
    return cut_parts(read_indexes(store, root, segment), segment, below(root, segment.indexes_key))


def read_indexes(store: ObjectStore, root: str, segment: ArchivedSegment) -> bytes:
    """The whole object; `cut_parts` checks the content. Raises CorruptFile if it is missing or has another size, StoreError."""
    key, size_bytes = below(root, segment.indexes_key), indexes_size_bytes(segment)
    try:
        data = store.read(key, 0, size_bytes + 1)
    except ObjectMissing as error:
        raise CorruptFile("committed, but not in the store", file=key) from error
    if len(data) != size_bytes:
        found = "more" if len(data) > size_bytes else str(len(data))
        raise CorruptFile(
            f"has {found} bytes, but the commit says {size_bytes}", file=key, position=min(len(data), size_bytes)
        )
    return data
