"""Partition logs in memory, and what a full replay of them gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from producer_state.digest import SegmentDigest, digest_batches
from producer_state.partition_log import Segment
from producer_state.reconstruct import RebuiltState, reconstruct
from producer_state.table import Expiration, ProducerTable
from tests.producer_state.plain_rules import State, apply_all
from tests.producer_state.random_logs import (
    NOW_MS,
    WINDOW_MS,
    Batch,
    RandomLog,
    facts_of,
)

EXPIRATION = Expiration(NOW_MS, WINDOW_MS)


FRESH = NOW_MS - 1000


OLD = NOW_MS - WINDOW_MS


@dataclass
class LogInMemory:
    """A PartitionLog over batches, which remembers what was read."""

    log: RandomLog
    snapshots: dict[int, bytes] = field(default_factory=dict)
    with_time_index: bool = True
    read: list[int] = field(default_factory=list)

    @property
    def segments(self) -> Sequence[Segment]:
        return [Segment(base, end, self._max_timestamp_ms(base, end)) for base, end in self.log.segments()]

    def _max_timestamp_ms(self, base: int, end: int) -> int | None:
        facts = self.log.between(base, end)
        return int(facts.max_timestamp_ms.max(initial=-1)) if self.with_time_index else None

    @property
    def snapshot_offsets(self) -> list[int]:
        return list(self.snapshots)

    def digest(self, segment: Segment) -> SegmentDigest:
        self.read.append(segment.base_offset)
        facts = self.log.between(segment.base_offset, segment.end_offset)
        return digest_batches(facts, segment.base_offset, segment.end_offset)

    def snapshot(self, offset: int) -> bytes:
        return self.snapshots[offset]


def a_log(*segments: Sequence[Batch], end: int | None = None, bases: Sequence[int] = ()) -> LogInMemory:
    """Segments of batches; a segment's base is its first batch's, unless bases are given."""
    batches = [batch for segment in segments for batch in segment]
    starts = list(bases) or [segment[0].base_offset for segment in segments]
    boundaries = (*starts, batches[-1].last_offset + 1 if end is None else end)
    return LogInMemory(RandomLog(tuple(batches), boundaries, facts_of(batches)))


def full_replay(log: RandomLog, end_offset: int) -> ProducerTable:
    state: State = {}
    apply_all(state, log.between(log.boundaries[0], end_offset))
    return ProducerTable.from_entries(end_offset, state.values())


def one(log: LogInMemory, end_offset: int, *, later_markers: set[int] | None = None) -> RebuiltState:
    (state,) = reconstruct(log, [end_offset], EXPIRATION, later_markers=later_markers)
    return state
