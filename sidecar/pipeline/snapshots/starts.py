"""Where a replay may begin, and which snapshots it may begin from."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Protocol

from producer_state.exactness import knows_beginning
from producer_state.snapshot import CorruptSnapshot
from producer_state.strays import stray_offsets
from producer_state.table import ProducerTable
from sidecar.errors import PartitionError, SegmentChanged


class StartKind(StrEnum):
    """What the state at a start comes from."""

    LOG_START = "log start"
    SNAPSHOT = "snapshot"
    WINDOW = "window"


@dataclass(frozen=True, slots=True)
class Start:
    """The state at the base of a segment. In a WINDOW start no producer is named yet.

    `beginning_known`: see `exactness`. `log_time_ms`: the largest timestamp below it, as far as known (-1: none).
    """

    table: ProducerTable
    kind: StartKind
    beginning_known: bool
    log_time_ms: int = -1

    @property
    def offset(self) -> int:
        """Where the replay begins."""
        return self.table.end_offset

    @property
    def has_snapshot(self) -> bool:
        """Whether a snapshot named producers here."""
        return len(self.table) > 0

    @classmethod
    def at_log_start(cls, table: ProducerTable) -> Start:
        """The log's first segment, with what the snapshot there says."""
        return cls(table, StartKind.LOG_START, knows_beginning(table))


class SnapshotFiles(Protocol):
    """The snapshots of a partition."""

    @property
    def snapshot_offsets(self) -> Collection[int]:
        """Where there are snapshots."""
        ...

    def snapshot(self, offset: int) -> tuple[bytes, int]:
        """See `PartitionLog`."""
        ...


class TrustedSnapshots:
    """The snapshots from which a window replay may begin. One rule; a snapshot is trusted if all of these hold:

    - It belongs to a segment's base (or to the end of the last one): brokers delete others unread.
    - Its checksum is right, it names at least one producer, and nothing in it lies at or above its own offset.
    - No empty snapshot stands inside its window. A broker that starts cleanly and finds no snapshots writes empty ones
      without reading the log, and what it writes later lacks everybody from before. Once the window has passed the
      empty one, these producers have expired. Source: UnifiedLog.rebuildProducerState, KIP-952.

    That its writer's `producer.id.expiration.ms` was not below ours cannot be seen in a file. Whom its writer had forgotten
    by its own clock is missing, as in any broker that loads it. The trap that stays: a broker
    that started on a log of one segment without snapshots leaves no empty file behind; only a full replay shows that.
    """

    def __init__(
        self, files: SnapshotFiles, log_start: int, bases: Collection[int], windows: Mapping[int, int]
    ) -> None:
        """Args:
        log_start: base of the log's first segment.
        bases: those above it, and the end of the last segment.
        windows: where the window of each snapshot begins.
        """
        self._files = files
        self._windows = windows
        there = set(files.snapshot_offsets)
        attached = there - stray_offsets(there, (log_start, *bases))
        self._offsets = sorted(attached.intersection(windows))
        self._at_log_start = sorted(there.intersection({log_start}))
        self._table = cache(self._read)
        self._empty: list[int] = []
        self._empty_from: int | None = None

    def newest(self, from_offset: int, below_offset: int) -> ProducerTable | None:
        """The newest one in `[from_offset, below_offset)`."""
        from_index, below_index = (bisect_left(self._offsets, offset) for offset in (from_offset, below_offset))
        tables = (self.trusted(offset) for offset in reversed(self._offsets[from_index:below_index]))
        return next((table for table in tables if table is not None), None)

    def next(self, from_offset: int) -> ProducerTable | None:
        """The oldest one at or above an offset."""
        tables = (self.trusted(offset) for offset in self._offsets[bisect_left(self._offsets, from_offset) :])
        return next((table for table in tables if table is not None), None)

    def trusted(self, offset: int) -> ProducerTable | None:
        """The state that the snapshot there holds; None if it is not trusted."""
        table = self._table(offset)
        if table is None or not len(table) or not _is_below(table):
            return None
        window = self._windows[offset]
        empty = self._empty_at_or_above(window)
        return None if bisect_left(empty, offset) > bisect_left(empty, window) else table

    def _empty_at_or_above(self, offset: int) -> Sequence[int]:
        if self._empty_from is None or offset < self._empty_from:
            there = (each for each in (*self._at_log_start, *self._offsets) if each >= offset)
            self._empty = [each for each in there if (table := self._table(each)) is not None and not len(table)]
            self._empty_from = offset
        return self._empty

    def _read(self, offset: int) -> ProducerTable | None:
        try:
            return ProducerTable.from_snapshot(offset, self._files.snapshot(offset)[0])
        except (CorruptSnapshot, PartitionError, SegmentChanged):
            return None


def _is_below(table: ProducerTable) -> bool:
    offsets: Sequence[str] = ("last_offset", "current_txn_first_offset")
    return all(int(table.rows[name].max(initial=-1)) < table.end_offset for name in offsets)
