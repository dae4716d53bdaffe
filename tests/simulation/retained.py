"""Which record of a key a compaction must retain: an oracle that shares nothing with the product."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from sidecar.archive.actions import Add, Clean, Reinstate
from sidecar.archive.commit import Commit
from tests.simulation.batches import NO_KEY, Batch

Rank = Callable[[Batch], tuple[Any, ...]]

RANKS: Final[Mapping[str, Rank]] = {
    "offset": lambda batch: (batch.base_offset,),
    "timestamp": lambda batch: (batch.timestamp_ms, batch.base_offset),
    "header": lambda batch: (batch.version is not None, batch.version or 0, batch.base_offset),
}
"""By strategy: of a key the highest one is retained. Among equals it is the later one; without a version it is the lowest."""


def retained(candidates: Iterable[Batch], strategy: str) -> dict[int, Batch]:
    """By key, the batch whose records are retained."""
    found: dict[int, Batch] = {}
    for batch in sorted(candidates, key=RANKS[strategy]):
        found[batch.key] = batch
    return found


def is_record(batch: Batch) -> bool:
    """Whether it has records that compaction decides on, committed or not."""
    return not batch.is_marker and batch.key != NO_KEY


def compaction_of(commit: Commit) -> tuple[set[tuple[str, str]], tuple[int, int]] | None:
    """By which strategy and header, and over which offsets, a commit says that it compacted; None where it did not."""
    said, spans = set[tuple[str, str]](), list[tuple[int, int]]()
    for action in commit.actions:
        if isinstance(action, Reinstate):
            return None  # An undo says what was clean before.
        if isinstance(action, Add):
            segment = action.segment
            spans.append((segment.base_offset, segment.end_offset))
            if segment.generation:
                said.add((str(segment.strategy), segment.strategy_parameters.get("header", "")))
        elif isinstance(action, Clean):
            said.add((action.strategy, action.strategy_parameters.get("header", "")))
            spans.append((action.base_offset, action.end_offset))
    return (said, (min(spans)[0], max(end for _, end in spans))) if said else None
