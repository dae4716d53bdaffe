"""Offsets that were gone before they were archived: recorded, and told aloud."""

from __future__ import annotations

from typing import Final

import structlog

from sidecar.pipeline.tools import Tools
from sidecar.ports import PartitionFacts

_log = structlog.get_logger(__name__)

OFFSETS_LOST: Final = "OffsetsLost"
NOT_ON_DISK: Final = "no longer on the broker's disk when it was to be archived"


def tell_lost(tools: Tools, facts: PartitionFacts, hole: tuple[int, int]) -> None:
    """`[from, to)` has been recorded: nobody may find that out by reading the archive only."""
    _log.error(
        "offsets_lost",
        partition=str(facts.topic_partition),
        from_offset=hole[0],
        to_offset=hole[1],
        log_start_offset=facts.cluster_start_offset,
        reason=NOT_ON_DISK,
        action="find out why uploads were late, or who removed files; status and verify will go on to name the hole",
    )
    tools.metrics.broker.offsets_lost(hole[1] - hole[0])
    lost = f"offsets {hole[0]} to {hole[1] - 1} were recorded as LOST: {NOT_ON_DISK}"
    tools.board.failed(str(facts.topic_partition), OFFSETS_LOST, lost)
