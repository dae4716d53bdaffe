"""What a partition is doing, told from its plan."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from sidecar.model import SegmentFiles
from sidecar.ports import PartitionFacts


class PartitionCondition(StrEnum):
    """What a partition is doing, as of the last round."""

    READY = "ready"
    WAITING = "waiting"
    IDLE = "idle"
    NOT_LED = "not_led"
    STOPPED = "stopped"


class PlannedPartition(Protocol):
    """What is asked of a partition's plan: `segments` may be archived now, `waiting` not yet."""

    @property
    def facts(self) -> PartitionFacts:
        """Leadership and stable end."""
        ...

    @property
    def segments(self) -> tuple[SegmentFiles, ...]:
        """To be archived now."""
        ...

    @property
    def waiting(self) -> tuple[SegmentFiles, ...]:
        """Rolled, but not allowed yet."""
        ...


def condition_of(plan: PlannedPartition) -> PartitionCondition:
    """What a partition that could be planned is doing: never STOPPED."""
    if not plan.facts.leads:
        return PartitionCondition.NOT_LED
    if plan.segments:
        return PartitionCondition.READY
    return PartitionCondition.WAITING if plan.waiting else PartitionCondition.IDLE
