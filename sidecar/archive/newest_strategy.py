"""By which strategy the newest compaction of a partition decided."""

from __future__ import annotations

from sidecar.archive.state import PartitionState
from sidecar.compaction_strategy import StrategyInUse


def newest_strategy(state: PartitionState) -> StrategyInUse | None:
    """That of the clean range; where there is none, that of the newest compacted segment; None where nothing is compacted.

    Segments are compacted without a clean range where `before_upload` did it, or where the range was cut off at its start.
    """
    found = state.clean or next((segment for segment in reversed(state.segments) if segment.strategy is not None), None)
    if found is None or found.strategy is None:
        return None
    return StrategyInUse(found.strategy, found.strategy_parameters.get("header", ""))
