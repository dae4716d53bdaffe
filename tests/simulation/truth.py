"""What a log really held: the batches that ever were below the high watermark, and how transactions ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.batches import Batch


@dataclass(slots=True, eq=False)
class Truth:
    """Of one incarnation of a topic's partition.

    `line`: committed batches, ascending, of the line that the present leader has. `ever`: by content, also those of lines that
    an unclean election ended. `diverged_at`: the lowest offset at which such a line ended, None while there was only one.
    `deleted_before_offset`: how far DeleteRecords went. `retained_from_offset`: the highest log start that retention made.
    `ends`: by the number of a transaction, its marker.
    """

    incarnation: int
    line: list[Batch] = field(default_factory=list)
    ever: dict[int, Batch] = field(default_factory=dict)
    ends: dict[int, Batch] = field(default_factory=dict)
    cleaned: set[int] = field(default_factory=set)
    diverged_at: int | None = None
    deleted_before_offset: int = 0
    start_offset: int = 0

    @property
    def end_offset(self) -> int:
        """Exclusive."""
        return self.line[-1].end_offset if self.line else 0

    def commit(self, batch: Batch) -> None:
        """The batch is below the high watermark now."""
        self.line.append(batch)
        self.ever[batch.content] = batch
        if batch.is_marker:
            self.ends[batch.transaction] = batch

    def diverge(self, end_offset: int) -> None:
        """An unclean election: the leader lacks all committed batches from an offset on."""
        if end_offset >= self.end_offset:
            return
        at = end_offset
        while self.line and self.line[-1].end_offset > end_offset:
            gone = self.line.pop()
            at = min(at, gone.base_offset)
            if gone.is_marker:
                self.ends.pop(gone.transaction, None)
        self.diverged_at = at if self.diverged_at is None else min(at, self.diverged_at)

    def between(self, base_offset: int, end_offset: int) -> Iterator[Batch]:
        """Batches of the line that begin in `[base_offset, end_offset)`."""
        return (batch for batch in self.line if base_offset <= batch.base_offset < end_offset)

    def is_one_line(self, end_offset: int) -> bool:
        """Whether only one line ever had offsets below an offset."""
        return self.diverged_at is None or end_offset <= self.diverged_at
