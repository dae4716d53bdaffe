"""A plan by which nothing is to be done: it holds until what it was made from changes, however late that is."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.archive.state import PartitionState
from sidecar.model import PartitionFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.status import PartitionStatus


@dataclass(slots=True)
class StandingPlan:
    """What was found, and from what. Neither clock nor settings nor topic configurations have a part in it.

    `state`: the newest part of the archive, None where it is not open. `status`: what people are shown of it, once it was asked
    for. `is_settled`: a turn has found nothing left to do either.
    """

    plan: PartitionPlan
    state: PartitionState | None
    status: PartitionStatus | None = None
    is_settled: bool = False

    def holds(self, files: PartitionFiles, facts: PartitionFacts, state: PartitionState | None) -> bool:
        """Whether a plan made from these would be the same."""
        return (self.plan.files, self.plan.facts, self.state) == (files, facts, state)


def standing(plan: PartitionPlan, state: PartitionState | None) -> StandingPlan | None:
    """The plan as one that stands, None if it may change by itself: something waits for time, for a person or for a turn.

    Where this broker leads, nothing may wait: how long it may wait depends on the time and on the topic's retention.
    """
    if plan.segments or plan.hole is not None or plan.error is not None or plan.look_again_ms is not None:
        return None
    if plan.facts.leads and (plan.waiting or state is None):
        return None
    return StandingPlan(plan, state)
