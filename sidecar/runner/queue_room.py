"""What of its plans one round takes on: whose turn it is at all, and with how many segments; the next round plans the rest."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from sidecar.clock import Clock
from sidecar.partition.outcome import PartitionOutcome
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.wait_reason import Wait
from sidecar.pipeline.partition import NEVER, PartitionArchiver

Work = tuple[PartitionArchiver, PartitionPlan]

SOON_MS = 3_600_000
"""What retention takes within an hour goes before what can wait."""


def turn_order(clock: Clock, item: Work) -> tuple[int, tuple[int, int, str, int]]:
    """What retention takes soon, by its deadline; then whose last turn is longest ago: no backlog keeps others waiting."""
    archiver, plan = item
    is_soon = plan.deadline_ms is not None and plan.deadline_ms - clock.now_ms() < SOON_MS
    return (NEVER - 1 if is_soon else archiver.last_turn, plan.deletion_order)


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
            waiting = (*later, *plan.waiting)
            plan = replace(plan, segments=kept, waiting=waiting, reason=Wait.NOT_ADMITTED, look_again_ms=0)
        cut.append((archiver, plan))
    return cut


def turns_and_idle(work: Iterable[Work], unfinished: Container[str]) -> tuple[list[Work], list[PartitionOutcome]]:
    """Work that takes a turn, and the outcomes of what needs none. `unfinished`: roots of which attempts are left."""
    turns: list[Work] = []
    idle: list[PartitionOutcome] = []
    for archiver, plan in work:
        outcome = archiver.idle_outcome(plan, unfinished)
        if outcome is None:
            turns.append((archiver, plan))
        else:
            idle.append(outcome)
    return turns, idle
