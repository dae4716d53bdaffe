"""The `.log` files that are compacted, as values that go to other processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sidecar.compaction.segments import SegmentInput
from sidecar.host import process_store
from sidecar.logformat.window import ReadAt
from sidecar.rewriting.sources import input_of
from sidecar.snapshots.tasks import LocalSegment


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
        """See CompactionSource."""
        return str(self.path)

    @contextmanager
    def opened(self) -> Iterator[SegmentInput]:
        """The segment as the stages read it. Raises SegmentChanged if it is not the listed one, PartitionError."""
        segment = LocalSegment(str(self.path), self.size_bytes, self.growing)
        with process_store.disk_turn(self.path), contextmanager(segment.opened)() as read_at:
            yield self.as_input(process_store.disk_reads(self.read_bytes_per_s).paced(read_at))

    def as_input(self, read_at: ReadAt) -> SegmentInput:
        """The segment, read by a function that the caller has."""
        return input_of(self, read_at, self.mtime_ns // 1_000_000)

    def unread(self) -> SegmentInput:
        """The segment for planning, where only its numbers count."""
        return self.as_input(lambda _position, _buffer: 0)
