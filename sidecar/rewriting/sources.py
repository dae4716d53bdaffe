"""What is compacted, wherever it lies: segments as values that go to other processes and are opened there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from sidecar.compaction.segments import SegmentInput, largest_index_bytes
from sidecar.host import process_store
from sidecar.logformat.window import ReadAt
from sidecar.snapshots.tasks import LocalSegment


class CompactionSource(Protocol):
    """The batches `[base_offset, end_offset)`; goes through pickle."""

    @property
    def name(self) -> str:
        """For messages: a path or a key."""

    @property
    def base_offset(self) -> int:
        """As in its name."""

    @property
    def end_offset(self) -> int:
        """The base of the next segment."""

    @property
    def size_bytes(self) -> int:
        """As listed or committed."""

    def opened(self) -> AbstractContextManager[SegmentInput]:
        """The segment as the stages read it. Raises SegmentChanged if it is not the listed one, PartitionError, StoreError."""

    def unread(self) -> SegmentInput:
        """The segment for planning, where only its numbers count: nothing is opened."""


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


@dataclass(frozen=True, slots=True)
class LogFile:
    """The batches `[base_offset, end_offset)`: the first `size_bytes` bytes of a file.

    `growing`: the active segment of a running broker, which may have become longer. `read_bytes_per_s`: the limit of all
    processes that read now, None for none; where `run` reads itself, its own limit counts.
    """

    path: Path
    base_offset: int
    end_offset: int
    size_bytes: int
    mtime_ns: int
    growing: bool = False
    read_bytes_per_s: int | None = None

    @property
    def name(self) -> str:
        return str(self.path)

    @contextmanager
    def opened(self) -> Iterator[SegmentInput]:
        """The segment as the stages read it. Raises SegmentChanged if it is not the listed one, PartitionError."""
        segment = LocalSegment(str(self.path), self.size_bytes, self.growing)
        with process_store.disk_turn(self.path), segment.opened() as read_at:
            yield self.as_input(process_store.disk_reads(self.read_bytes_per_s).paced(read_at))

    def as_input(self, read_at: ReadAt) -> SegmentInput:
        return input_of(self, read_at, self.mtime_ns // 1_000_000)

    def unread(self) -> SegmentInput:
        return self.as_input(lambda _position, _buffer: 0)
