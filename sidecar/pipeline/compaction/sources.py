"""What is compacted, wherever it lies: segments as values that go to other processes and are opened there."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from sidecar.compaction.segments import SegmentInput


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


SourceT = TypeVar("SourceT", bound=CompactionSource, covariant=True)
