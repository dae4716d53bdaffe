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

    @property
    def last_modified_ms(self) -> int:
        """The time of the broker's file, -1 if unknown."""

    def opened(self) -> AbstractContextManager[SegmentInput]:
        """The segment as the stages read it. Raises SegmentChanged if it is not the listed one, PartitionError, StoreError."""


def input_of(source: CompactionSource, read_at: ReadAt = lambda _position, _buffer: 0) -> SegmentInput:
    """The segment, read by a function that the caller has. By default for planning, where only its numbers count."""
    return SegmentInput(
        source.base_offset,
        source.end_offset,
        source.size_bytes,
        read_at,
        file=source.name,
        last_modified_ms=source.last_modified_ms,
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

    @property
    def last_modified_ms(self) -> int:
        return self.mtime_ns // 1_000_000

    @contextmanager
    def opened(self) -> Iterator[SegmentInput]:
        """The segment as the stages read it. Raises SegmentChanged if it is not the listed one, PartitionError."""
        segment = LocalSegment(str(self.path), self.size_bytes, self.growing)
        with process_store.disk_turn(self.path), segment.opened() as read_at:
            yield input_of(self, process_store.disk_reads(self.read_bytes_per_s).paced(read_at))
