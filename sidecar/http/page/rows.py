"""One row per partition: what state it is in, in which order rows need attention, and the texts of its cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sidecar.http.figures import PartitionFigures
from sidecar.http.page.bar import Piece, bar_text, pieces_of
from sidecar.http.page.ranges import OffsetRange, is_at_risk, ranges_of


class State(StrEnum):
    """How a partition is, worst first."""

    AT_RISK = "at_risk"
    HOLE = "hole"
    STOPPED = "stopped"
    UPLOADING = "uploading"
    WAITING = "waiting"
    ARCHIVED = "archived"
    NOT_LED = "not_led"

    @property
    def label(self) -> str:
        """For people."""
        return self.value.replace("_", " ").capitalize()

    @property
    def rank(self) -> int:
        """0 for what needs a person most."""
        return _RANKS[self]


_RANKS = {state: rank for rank, state in enumerate(State)}
TROUBLE = (State.AT_RISK, State.HOLE, State.STOPPED)
"""States that need a person."""


@dataclass(frozen=True, slots=True)
class Row:
    """A partition as the table shows it. `deadline_ms`: when the broker deletes the first segment that is not archived."""

    name: str
    topic: str
    partition: int
    state: State
    ranges: tuple[OffsetRange, ...]
    archived_bytes: int
    archived_segments: int
    pending_bytes: int
    pending_segments: int
    deadline_ms: int | None
    reason: str
    error: str | None

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The rectangles of its bar."""
        return pieces_of(self.ranges)

    @property
    def bar_text(self) -> str:
        """The bar in words."""
        return f"{self.name}: {bar_text(self.ranges)}"


def row_of(figures: PartitionFigures, clean_ends: Mapping[tuple[str, int], int]) -> Row:
    """The row of one partition. `clean_ends`: end of what was compacted in the archive, by topic and partition."""
    look, extent = figures.look, figures.extent
    topic, partition = look.topic_partition.topic, look.topic_partition.partition
    return Row(
        name=str(look.topic_partition),
        topic=topic,
        partition=partition,
        state=state_of(figures),
        ranges=ranges_of(figures, clean_ends.get((topic, partition))),
        archived_bytes=extent.size_bytes,
        archived_segments=extent.segments,
        pending_bytes=look.pending_bytes,
        pending_segments=look.pending_segments,
        deadline_ms=look.deadline_ms if look.pending_segments else None,
        reason=look.reason,
        error=look.error,
    )


def state_of(figures: PartitionFigures) -> State:
    """The worst that is true of it."""
    look = figures.look
    if not look.leads:
        return State.NOT_LED
    if is_at_risk(look, None):
        return State.AT_RISK
    if look.error is not None:
        return State.HOLE if look.hole is not None else State.STOPPED
    if figures.uploads:
        return State.UPLOADING
    return State.WAITING if look.pending_segments else State.ARCHIVED
