"""What is compacted, wherever it lies: segments as values that go to other processes and are opened there."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from sidecar.compaction.segments import SegmentInput, largest_index_bytes
from sidecar.logformat.window import ReadAt


class CompactionSource(Protocol):
    """The batches `[base_offset, end_offset)`; goes through pickle."""

    @property
    def name(self) -> str:
        """For messages: a path or a key."""
        ...

    @property
    def base_offset(self) -> int:
        """As in its name."""
        ...

    @property
    def end_offset(self) -> int:
        """The base of the next segment."""
        ...

    @property
    def size_bytes(self) -> int:
        """As listed or committed."""
        ...

    def opened(self) -> AbstractContextManager[SegmentInput]:
        """The segment as the stages read it. Raises SegmentChanged if it is not the listed one, PartitionError, StoreError."""
        ...

    def unread(self) -> SegmentInput:
        """The segment for planning, where only its numbers count: nothing is opened."""
        ...


def input_of(source: CompactionSource, read_at: ReadAt, last_modified_ms: int) -> SegmentInput:
    """The segment, read by a function that the caller has."""
    return SegmentInput(
        source.base_offset,
        source.end_offset,
        source.size_bytes,
        read_at,
        file=source.name,
        last_modified_ms=last_modified_ms,
        index_bytes=largest_index_bytes(source.size_bytes),
    )


SourceT = TypeVar("SourceT", bound=CompactionSource, covariant=True)
