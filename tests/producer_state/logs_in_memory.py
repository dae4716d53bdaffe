"""Partition logs in memory, and what a full replay of them gives."""

from __future__ import annotations

from collections.abc import Sequence

from producer_state.table import Expiration, ProducerTable
from tests.producer_state.plain_rules import State, apply_all
from tests.producer_state.random_logs import NOW_MS, WINDOW_MS, Batch, RandomLog, facts_of

EXPIRATION = Expiration(NOW_MS, WINDOW_MS)
FRESH = NOW_MS - 1000
OLD = NOW_MS - WINDOW_MS


def a_log(*segments: Sequence[Batch], end: int | None = None, bases: Sequence[int] = ()) -> RandomLog:
    """Segments of batches; a segment's base is its first batch's, unless bases are given."""
    batches = [batch for segment in segments for batch in segment]
    starts = list(bases) or [segment[0].base_offset for segment in segments]
    boundaries = (*starts, batches[-1].last_offset + 1 if end is None else end)
    return RandomLog(tuple(batches), boundaries, facts_of(batches))


def full_replay(log: RandomLog, end_offset: int) -> ProducerTable:
    state: State = {}
    apply_all(state, log.between(log.boundaries[0], end_offset))
    return ProducerTable.from_entries(end_offset, state.values())
