"""Partitions as the compactor sees them, made of directories, random logs or rows of batches; facts by our own replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from producer_state.replay import CompletedTransaction, replay
from producer_state.table import Expiration, ProducerTable
from sidecar.compaction.last_batches import LastBatches
from sidecar.logformat.batches import scan_bytes
from tests.compaction.reference.values import ReferenceSegment


@dataclass(frozen=True, slots=True)
class Partition:
    """Segments in order; the last one counts as active. `table` is the producer state at the log's end."""

    segments: tuple[ReferenceSegment, ...]
    table: ProducerTable
    completed: tuple[CompletedTransaction, ...]

    @property
    def aborted(self) -> tuple[CompletedTransaction, ...]:
        """All aborted transactions of the log."""
        return tuple(found for found in self.completed if found.aborted)

    @property
    def decided(self) -> tuple[ReferenceSegment, ...]:
        """The segments that end at or below the first open transaction; all where none is open."""
        unstable = self.table.first_open_transaction_offset()
        return tuple(found for found in self.segments if unstable is None or found.end_offset <= unstable)

    @property
    def rolled(self) -> tuple[ReferenceSegment, ...]:
        """Those of `decided` that are not active."""
        return tuple(found for found in self.decided if found is not self.segments[-1])

    def last_batches(self, now_ms: int, expiration_ms: int = 86_400_000) -> LastBatches:
        """Of the producers that a broker still knows at `now_ms`."""
        return LastBatches.of(self.table.unexpired(Expiration(now_ms, expiration_ms)))


def partition_of(logs: Sequence[tuple[int, bytes, int]]) -> Partition:
    """From (base offset, log, modification time in ms) of each segment."""
    table = ProducerTable.blank(logs[0][0])
    completed: list[CompletedTransaction] = []
    end_offset = logs[-1][0]
    for _, log, _ in logs:
        for columns in scan_bytes(log):
            table, found = replay(table, columns.facts())
            completed += found
            end_offset = int(columns.last_offset[-1]) + 1
    # An active segment may hold nothing, and stand above offsets that the cleaner took from its predecessor's end.
    end_offset = max(end_offset, logs[-1][0])
    ends = [*(base for base, _, _ in logs[1:]), end_offset]
    segments = [ReferenceSegment(base, end, log, mtime) for (base, log, mtime), end in zip(logs, ends, strict=True)]
    return Partition(tuple(segments), table, tuple(completed))


def partition_in(directory: Path) -> Partition:
    """The partition in a directory."""
    logs = sorted(directory.glob("*.log"))
    return partition_of([(int(log.stem), log.read_bytes(), int(log.stat().st_mtime * 1000)) for log in logs])
