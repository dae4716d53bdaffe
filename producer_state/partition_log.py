"""A partition as reconstruction reads it: segments, their digests on demand, and the snapshots that lie about."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from producer_state.digest import SegmentDigest
from producer_state.snapshot import CorruptSnapshot
from producer_state.table import Expiration, ProducerTable


@dataclass(frozen=True, slots=True)
class Segment:
    """A rolled segment `[base_offset, end_offset)`.

    `max_timestamp_ms`: the largest of any batch, as the last entry of a sound time index says; None if not known.
    Never a file's modification time: it says nothing about what producers wrote.
    """

    base_offset: int
    end_offset: int
    max_timestamp_ms: int | None = None


class SegmentUnreadable(Exception):
    """A `PartitionLog` cannot digest a segment, and nothing below it is to be read: what it would have told stays unknown."""


class PartitionLog(Protocol):
    """What reconstruction asks for, and it asks for as little as it can."""

    @property
    def segments(self) -> Sequence[Segment]:
        """Ascending, each beginning where the one before ends, at least one."""
        ...

    @property
    def snapshot_offsets(self) -> Collection[int]:
        """Of the `<offset>.snapshot` files that may be built on. To judge a snapshot by its log, leave it out."""
        ...

    def digest(self, segment: Segment) -> SegmentDigest:
        """The segment's digest, stored or computed now. A segment may be asked for more than once.

        Raises SegmentUnreadable where `holes.answer` shall do without.
        """
        ...

    def snapshot(self, offset: int) -> bytes:
        """The bytes of one of `snapshot_offsets`."""
        ...


@dataclass(frozen=True, slots=True)
class Refused:
    """A snapshot that cannot be built on, and why."""

    offset: int
    reason: str


def trusted_table(
    log: PartitionLog, offset: int, expiration: Expiration, high_watermark: int | None
) -> ProducerTable | Refused:
    """The state that a snapshot holds, if it can be believed.

    That its writer's `producer.id.expiration.ms` was not below ours cannot be seen in the file: the caller vouches.
    An empty one is believed only if no segment below it holds a producer's batch that is not expired: a broker that finds
    no snapshots after a clean shutdown writes empty ones without reading its log.
    """
    if high_watermark is not None and offset > high_watermark:
        return Refused(offset, f"above the high watermark {high_watermark}")
    try:
        table = ProducerTable.from_snapshot(offset, log.snapshot(offset))
    except CorruptSnapshot as error:
        return Refused(offset, str(error))
    if len(table) == 0:
        for segment in reversed([segment for segment in log.segments if segment.end_offset <= offset]):
            if segment.max_timestamp_ms is None or expiration.keeps(segment.max_timestamp_ms):
                newest_ms = log.digest(segment).coverage.max_producer_timestamp_ms
                if newest_ms >= 0 and expiration.keeps(newest_ms):
                    where = f"[{segment.base_offset}, {segment.end_offset})"
                    return Refused(offset, f"empty, though a producer wrote at {newest_ms} ms in {where}")
    return table
