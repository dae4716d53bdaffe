"""Where a segment may be split: at batches that were seen, never where an index says so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sidecar.compaction.scan import TransactionEvents
from sidecar.logformat.batches import BatchColumns


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `[begin, end)` of a segment, whole batches, and the transactional and control batches among them."""

    begin: int
    end: int
    batch_count: int
    events: TransactionEvents


class Cutter:
    """Cuts the batches of a segment into pieces of a size."""

    def __init__(self, split_bytes: int) -> None:
        self._split_bytes = split_bytes
        self._pieces: list[Piece] = []
        self._begin = self._end = self._batches = 0
        self._events: list[TransactionEvents] = []

    def add(self, columns: BatchColumns) -> None:
        """Take the next batches."""
        while len(columns):
            rows = int(np.searchsorted(columns.position, self._begin + self._split_bytes))
            taken = columns[:rows]
            if len(taken):
                self._events.append(TransactionEvents.of(taken, self._batches))
                self._batches += len(taken)
                self._end = int(taken.position[-1]) + int(taken.size_bytes[-1])
            if rows < len(columns):
                self._cut()
            columns = columns[rows:]

    def _cut(self) -> None:
        self._pieces.append(Piece(self._begin, self._end, self._batches, TransactionEvents.joined(self._events)))
        self._begin, self._batches, self._events = self._end, 0, []

    def finish(self) -> tuple[Piece, ...]:
        """All pieces, after the last batch."""
        if self._end > self._begin:
            self._cut()
        return tuple(self._pieces)
