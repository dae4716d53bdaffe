"""Reads objects of segments: of `.indexes` never more bytes than the commit names, and nothing that differs from it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from sidecar.archive.bundle import cut_part, cut_parts, indexes_size_bytes
from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.errors import CorruptFile, ObjectMissing, PartitionError
from sidecar.event_log import EVENTS
from sidecar.model import ArchivedSegment, ObjectKey, PartName
from sidecar.ports import ObjectStore

if TYPE_CHECKING:
    from producer_state.table import ProducerTable
    from sidecar.logformat.window import ReadAt


def read_committed(store: ObjectStore, key: ObjectKey, size_bytes: int, position: int, wanted_bytes: int) -> bytes:
    """A range of an object that has `size_bytes` by its commit. Raises CorruptFile where the object ends before, StoreError."""
    wanted_bytes = min(wanted_bytes, size_bytes - position)
    content = _read(store, key, position, wanted_bytes)
    if len(content) < wanted_bytes:
        facts = store.head(key)
        # The store may announce more than it has.
        found = 0 if facts is None else min(facts.size_bytes, position + len(content))
        raise CorruptFile(f"has {found} bytes in the store, but the commit says {size_bytes}", file=key)
    return content


def reader(store: ObjectStore, key: ObjectKey, size_bytes: int) -> ReadAt:
    """Fills a buffer from a position of an object: one request each. Reading raises as `read_committed`."""

    def read_at(position: int, buffer: memoryview) -> int:
        content = read_committed(store, key, size_bytes, position, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    return read_at


def note_damaged_answer(key: str, problem: str) -> None:
    """An object seemed damaged, and was sound when it was read again."""
    EVENTS.warning("answer_damaged", key=key, problem=problem)


def read_part(store: ObjectStore, root: str, segment: ArchivedSegment, name: PartName) -> bytes:
    """The bytes of one part. Raises PartitionError if the commit names no such part, CorruptFile if they are missing or differ,
    StoreError.
    """
    key = below(root, segment.indexes_key)
    part = segment.part(name)
    if part is None:
        raise PartitionError(f"{key}: the commit does not name a part {name}; verify the archive")
    return cut_part(_read(store, key, part.position, part.size_bytes), part, key, part.position)


def table_at_end(store: ObjectStore, root: str, segment: ArchivedSegment) -> ProducerTable:
    """The archived producer state at a segment's end. Raises as `read_part`, and CorruptFile where it cannot be read."""
    from producer_state.table import ProducerTable  # loads numpy, which `verify` without --deep does without
    from producer_state.wire import ProducerStateError

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
    data = _read(store, key, 0, size_bytes + 1)
    if len(data) != size_bytes:
        found = "more" if len(data) > size_bytes else str(len(data))
        raise CorruptFile(
            f"has {found} bytes, but the commit says {size_bytes}", file=key, position=min(len(data), size_bytes)
        )
    return data


def _read(store: ObjectStore, key: ObjectKey, position: int, size_bytes: int) -> bytes:
    try:
        return store.read(key, position, size_bytes)
    except ObjectMissing as error:
        raise CorruptFile("committed, but not in the store", file=key) from error
