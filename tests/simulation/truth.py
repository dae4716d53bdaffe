"""What a log really held: the batches that ever were below the high watermark, and how transactions ended."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Final

from producer_state.snapshot import ProducerEntry
from tests.simulation.batches import Batch, apply

_BASE_OFFSET: Final = attrgetter("base_offset")


@dataclass(slots=True, eq=False)
class Truth:
    """Of a partition: every leader that was elected cleanly has all of it.

    `line`: committed batches, ascending. `deleted_before_offset`: how far DeleteRecords went. `ends`: by the number of a
    transaction, its marker. `lost`: contents of batches that unclean elections have lost. `reopened`: transactions of which they
    have lost the marker. `cleaned`: contents of batches that a broker's cleaner has taken. `_replayed`: so many batches of the
    line have given `_producers`.
    """

    line: list[Batch] = field(default_factory=list)
    ends: dict[int, Batch] = field(default_factory=dict)
    deleted_before_offset: int = 0
    lost: set[int] = field(default_factory=set)
    reopened: set[int] = field(default_factory=set)
    cleaned: set[int] = field(default_factory=set)
    _replayed: int = 0
    _producers: dict[int, ProducerEntry] = field(default_factory=dict)

    @property
    def end_offset(self) -> int:
        """Exclusive."""
        return self.line[-1].end_offset if self.line else 0

    def commit(self, batch: Batch) -> None:
        """The batch is below the high watermark now."""
        self.line.append(batch)
        if batch.is_marker:
            self.ends[batch.transaction] = batch

    def truncate(self, end_offset: int) -> None:
        """Everything from an offset on is lost."""
        if end_offset >= self.end_offset:
            return
        while self.line and self.line[-1].end_offset > end_offset:
            batch = self.line.pop()
            self._replayed = 0
            self.lost.add(batch.content)
            if batch.is_marker:
                del self.ends[batch.transaction]
                self.reopened.add(batch.transaction)

    def was_lost(self, batches: Iterable[Batch]) -> bool:
        """Whether unclean elections have lost one of these."""
        return bool(self.lost) and any(batch.raw_content in self.lost for batch in batches)

    def commits(self, transaction: int) -> bool:
        """Whether a transaction was committed, as far as it has ended."""
        marker = self.ends.get(transaction)
        return marker is not None and bool(marker.commits)

    def producers_below(self, end_offset: int) -> Mapping[int, ProducerEntry]:
        """What a replay of all batches that begin below an offset gives. It goes on from where the last one ended."""
        if not self._replayed or self.line[self._replayed - 1].base_offset >= end_offset:
            self._replayed, self._producers = 0, {}
        for batch in islice(self.line, self._replayed, None):
            if batch.base_offset >= end_offset:
                break
            apply(self._producers, batch)
            self._replayed += 1
        return self._producers

    def between(self, base_offset: int, end_offset: int) -> list[Batch]:
        """Batches that begin in `[base_offset, end_offset)`."""
        begin = bisect_left(self.line, base_offset, key=_BASE_OFFSET)
        return self.line[begin : bisect_left(self.line, end_offset, begin, key=_BASE_OFFSET)]
