"""How many segments of each plan one round takes on; the rest is planned again by the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sidecar.pipeline.partition import PartitionArchiver
from sidecar.pipeline.plan import PartitionPlan

Work = tuple[PartitionArchiver, PartitionPlan]


def within_queue(work: Sequence[Work], room: int) -> list[Work]:
    """The same work with no more than `room` segments; plans that lose none stay the same objects.

    Nobody waits for another's backlog: each may have its share first, what is left goes to the most urgent, who come first.
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
            reason = "the queue is full; the next round goes on"
            plan = replace(plan, segments=kept, waiting=(*later, *plan.waiting), reason=reason, look_again_ms=0)
        cut.append((archiver, plan))
    return cut
