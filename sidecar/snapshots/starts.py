"""Where a replay may begin, and which snapshots it may begin from."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from producer_state.exactness import knows_beginning
from producer_state.facts import Int64Column
from producer_state.snapshot import CorruptSnapshot, ProducerEntry, Rows, rows_of
from producer_state.table import ProducerTable
from sidecar.errors import PartitionError

if TYPE_CHECKING:
    from sidecar.snapshots.resolve_paths import PartitionLog

TABLES_KEPT: Final = 2
"""A snapshot may name many thousands of producers: what is planned are offsets, and a table is read when it is used."""


class StartKind(StrEnum):
    LOG_START = "log start"
    SNAPSHOT = "snapshot"
    WINDOW = "window"


@dataclass(frozen=True, slots=True)
class Start:
    """Where a replay begins: the base of a segment. `PartitionJob.table_at` gives the state there.

    `beginning_known`: see `exactness`. `has_snapshot`: a snapshot names producers here.
    `log_time_ms`: the largest timestamp below it, as far as known (-1: none).
    """

    offset: int
    kind: StartKind
    beginning_known: bool
    has_snapshot: bool
    log_time_ms: int = -1

    @classmethod
    def at_log_start(cls, table: ProducerTable) -> Start:
        """The log's first segment, with what the snapshot there says."""
        return cls(table.end_offset, StartKind.LOG_START, knows_beginning(table), len(table) > 0)


class _Kind(Enum):
    """What a file is worth. USELESS: it cannot be read, or names what lies at or above its own offset."""

    SOUND = auto()
    EMPTY = auto()
    USELESS = auto()


class TrustedSnapshots:
    """The snapshots from which a window replay may begin. One rule; a snapshot is trusted if all of these hold:

    - It belongs to a segment's base (or to the end of the last one): brokers delete others unread.
    - Its checksum is right, it names at least one producer, and nothing in it lies at or above its own offset.
    - No empty snapshot is inside its window. A broker that starts cleanly and finds no snapshots writes empty ones
      without reading the log, and what it writes later lacks everybody from before. Once the window has passed the
      empty one, these producers have expired. Source: UnifiedLog.rebuildProducerState, KIP-952.

    That its writer's `producer.id.expiration.ms` was not below ours cannot be seen in a file. Whom its writer had forgotten
    by its own clock is missing, as in any broker that loads it.

    Traps that stay, and that only a full replay shows:

    - A broker that started on a log of one segment without snapshots leaves no empty file behind.
    - A transaction that a broker forgot by an empty snapshot below the window is missing in all it wrote since.
    """

    def __init__(self, log: PartitionLog, windows: Mapping[int, int]) -> None:
        """Args: windows: where the window of each snapshot begins."""
        self._log = log
        self._windows = windows
        there = set(log.snapshot_offsets)
        self._offsets = sorted((there - log.strays).intersection(windows))
        self._at_log_start = sorted(there.intersection({log.first_offset}))
        self.table = lru_cache(TABLES_KEPT)(self._read)
        self._kind = cache(self._judged)
        self._empty: list[int] = []
        self._empty_from: int | None = None

    def newest(self, from_offset: int, below_offset: int) -> int | None:
        """Offset of the newest one in `[from_offset, below_offset)`."""
        from_index, below_index = (bisect_left(self._offsets, offset) for offset in (from_offset, below_offset))
        return self._first_trusted(reversed(self._offsets[from_index:below_index]))

    def next(self, from_offset: int) -> int | None:
        """Offset of the oldest one at or above an offset."""
        return self._first_trusted(self._offsets[bisect_left(self._offsets, from_offset) :])

    def _first_trusted(self, offsets: Iterable[int]) -> int | None:
        return next((offset for offset in offsets if self._is_trusted(offset)), None)

    def _is_trusted(self, offset: int) -> bool:
        if self._kind(offset) is not _Kind.SOUND:
            return False
        window = self._windows[offset]
        empty = self._empty_at_or_above(window)
        return bisect_left(empty, offset) <= bisect_left(empty, window)

    def _empty_at_or_above(self, offset: int) -> Sequence[int]:
        if self._empty_from is None or offset < self._empty_from:
            there = (each for each in (*self._at_log_start, *self._offsets) if each >= offset)
            self._empty = [each for each in there if self._kind(each) is _Kind.EMPTY]
            self._empty_from = offset
        return self._empty

    def _judged(self, offset: int) -> _Kind:
        table = self.table(offset)
        if table is None:
            return _Kind.USELESS
        if not len(table):
            return _Kind.EMPTY
        highest = max(int(table.rows[name].max()) for name in ("last_offset", "current_txn_first_offset"))
        return _Kind.SOUND if highest < offset else _Kind.USELESS

    def _read(self, offset: int) -> ProducerTable | None:
        try:
            return ProducerTable.from_snapshot(offset, self._log.snapshot(offset)[0])
        except (CorruptSnapshot, PartitionError):
            return None


def open_below(witness: ProducerTable, offset: int) -> tuple[Rows, Int64Column]:
    """What a snapshot says of the transactions that began below an offset, which lies below the snapshot, and are open since.

    Returns their producers as they were at the offset, and those of them that have written since: of their last batch below
    the offset the snapshot says nothing, and it is left blank.
    """
    undecided = witness.in_transaction().rows
    rows = undecided[undecided["current_txn_first_offset"] < offset]
    late = rows["last_offset"] >= offset
    rows[late] = without_batch(rows[late])
    return rows, rows["producer_id"][late]


def without_batch(rows: Rows) -> Rows:
    """A copy of the rows in which no last batch is known."""
    found, blank = rows.copy(), rows_of([ProducerEntry(0)])[0]
    for name in ("last_sequence", "last_offset", "offset_delta", "last_timestamp_ms"):
        found[name] = blank[name]
    return found


def with_rows(table: ProducerTable, rows: Rows) -> ProducerTable:
    """The table with these producers in the place of what it says of them."""
    others = table.rows[~np.isin(table.rows["producer_id"], rows["producer_id"])]
    both = np.concatenate([others, rows])
    return ProducerTable(table.end_offset, both[np.argsort(both["producer_id"])])
