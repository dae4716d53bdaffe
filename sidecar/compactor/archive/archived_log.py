"""Archived segments as what is compacted: values that go to other processes, and are read there out of the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from sidecar.archive.bundle import log_size_bytes
from sidecar.archive.keys import below
from sidecar.compaction.segments import SegmentInput
from sidecar.host import process_store
from sidecar.logformat.window import ReadAt
from sidecar.model import ArchivedSegment, ObjectKey
from sidecar.ports import ObjectStore
from sidecar.rewriting.sources import input_of
from sidecar.store_settings import StoreSettings

LAST_MODIFIED: Final = "last_modified_ms"
"""Strategy parameter of compacted segments: the file time of the newest source, as a cleaner passes it on."""

_NS_PER_MS = 1_000_000
_TIME_DIGITS_MAX = 18
"""Such times fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """A `CompactionSource`: the `.log` object of a live segment."""

    store: StoreSettings
    root: str
    segment: ArchivedSegment

    @property
    def name(self) -> str:
        return self.key

    @property
    def key(self) -> ObjectKey:
        return below(self.root, self.segment.log_key)

    @property
    def base_offset(self) -> int:
        return self.segment.base_offset

    @property
    def end_offset(self) -> int:
        return self.segment.end_offset

    @property
    def size_bytes(self) -> int:
        """Of the `.log` object, as committed."""
        return log_size_bytes(self.segment)

    @property
    def last_modified_ms(self) -> int:
        """The time of the broker's file, or of the newest one of which this segment was compacted; -1 if unknown."""
        if self.segment.source_mtime_ns is not None:
            return self.segment.source_mtime_ns // _NS_PER_MS
        text = self.segment.strategy_parameters.get(LAST_MODIFIED, "")
        return int(text) if text.isdecimal() and len(text) <= _TIME_DIGITS_MAX else -1

    @contextmanager
    def opened(self) -> Iterator[SegmentInput]:
        """See CompactionSource. Reading raises StoreError."""
        yield self.as_input(reader(process_store.store_of(self.store), self.key, self.size_bytes))

    def unread(self) -> SegmentInput:
        return self.as_input(lambda _position, _buffer: 0)

    def as_input(self, read_at: ReadAt) -> SegmentInput:
        return input_of(self, read_at, self.last_modified_ms)


def reader(store: ObjectStore, key: ObjectKey, size_bytes: int) -> ReadAt:
    """Fills a buffer from a position of an object: one request each."""

    def read_at(position: int, buffer: memoryview) -> int:
        content = store.read(key, position, min(len(buffer), size_bytes - position))
        buffer[: len(content)] = content
        return len(content)

    return read_at
