"""Which plans become tasks first, and with how many segments: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sidecar.partition.plan import PartitionPlan
from sidecar.partition.wait_reason import Wait
from sidecar.pipeline.partition import NEVER, PartitionArchiver

Work = tuple[PartitionArchiver, PartitionPlan]

SOON_MS = 3_600_000
"""What retention takes within an hour goes before what can wait."""


def admission_order(item: Work, now_ms: int) -> tuple[int, tuple[int, int, str, int]]:
    """What retention takes soon, by its deadline; then whose last task is longest ago: no backlog keeps others waiting."""
    archiver, plan = item
    is_soon = plan.deadline_ms is not None and plan.deadline_ms - now_ms < SOON_MS
    return (NEVER - 1 if is_soon else archiver.last_served, plan.deletion_order)


def within_queue(work: Sequence[Work], room: int) -> list[Work]:
    """The same work with no more than `room` segments; plans that lose none stay the same objects.

    Each partition may have its share first, whatever the backlog of others; what is left goes to the most urgent, who come first.
    """
    share = max(1, room // max(1, sum(bool(plan.segments) for _, plan in work)))
    shares = []
    for _, plan in work:
        shares.append(min(len(plan.segments), share, room))
        room -= shares[-1]
    cut: list[Work] = []
    for (archiver, plan), own in zip(work, shares, strict=True):
        more = min(len(plan.segments) - own, room)
        room -= more
        kept, later = plan.segments[: own + more], plan.segments[own + more :]
        if later:
            waiting = (*later, *plan.waiting)
            plan = replace(plan, segments=kept, waiting=waiting, reason=Wait.NOT_ADMITTED, look_again_ms=0)
        cut.append((archiver, plan))
    return cut
