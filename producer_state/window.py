"""From which segment on a log must be read for the producers at a boundary.

A producer that a broker still knows has written a batch or marker younger than `producer.id.expiration.ms`, or has a
transaction open. So the window of a boundary begins at the base of the earliest segment below it whose newest timestamp
has not expired. Timestamps do not ascend: one old segment says nothing of the one below it.
Which clock: see `Expiration`. Source: ProducerStateManager.isProducerExpired, KIP-952.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

from producer_state.table import Expiration


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that begins at `base_offset` and ends where the next one begins.

    `max_timestamp_ms`: the largest of any batch, as the last entry of a sound time index says; None if not known.
    Never a file's modification time: it says nothing about what producers wrote.
    """

    base_offset: int
    max_timestamp_ms: int | None = None


def window_starts(
    segments: Sequence[Segment], boundaries: Collection[int], expiration_of: Callable[[int], Expiration]
) -> dict[int, int]:
    """Where the window of each boundary begins: always below it, so that the last segment under a boundary is read.

    Args:
        segments: ascending and adjacent. One whose newest timestamp is not known counts as not expired.
        boundaries: above the first segment's base.
        expiration_of: which producers the snapshot leaves out, from the newest timestamp below the boundary (ms, -1: none).
            Must not leave out fewer for a newer one.
    """
    starts: dict[int, int] = {}
    bases = [segment.base_offset for segment in segments]
    newest_below = newest_timestamps(segments)
    first = 0
    for boundary in sorted(boundaries):
        last = bisect_left(bases, boundary) - 1
        expiration = expiration_of(newest_below(boundary))
        while first < last and (newest_ms := segments[first].max_timestamp_ms) is not None:
            if expiration.keeps(newest_ms):
                break
            first += 1
        starts[boundary] = bases[first]
    return starts


def newest_timestamps(segments: Sequence[Segment]) -> Callable[[int], int]:
    """A function that gives the largest known timestamp of the segments that begin below an offset, -1 if there is none."""
    bases = [segment.base_offset for segment in segments]
    known = (-1 if segment.max_timestamp_ms is None else segment.max_timestamp_ms for segment in segments)
    newest = [-1, *accumulate(known, max)]
    return lambda offset: newest[bisect_left(bases, offset)]
