"""Which plans become tasks first, and with how many segments; which files are pinned first."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from sidecar.model import FileIdentity
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.retention import AT_RISK_MS
from sidecar.partition.wait_reason import Wait

NEVER: Final = -1
"""Number of the last task of a partition that had none yet."""


def admission_order(plan: PartitionPlan, last_served: int, now_ms: int) -> tuple[int, tuple[int, int, str, int]]:
    """What retention takes within an hour, by its deadline; then whose last task is longest ago: no backlog keeps others waiting.

    Args:
        last_served: number of the partition's last task.
    """
    is_soon = plan.deadline_ms is not None and plan.deadline_ms - now_ms < AT_RISK_MS
    return (NEVER - 1 if is_soon else last_served, plan.deletion_order)


def pin_order(
    deadline_ms: int | None, pinned: Collection[FileIdentity], planned: Iterable[FileIdentity] = ()
) -> Iterator[tuple[float, bool, int, FileIdentity]]:
    """The files of one partition with a sort key over partitions: what retention deletes first comes first.

    Args:
        deadline_ms: when retention deletes the first of them, in wall-clock milliseconds; None for never.
        pinned: by earlier checks. planned: by this one; may have some of them again.

    Yields:
        Estimated deadline in milliseconds, whether it is newly planned, position in the log, file. Retention deletes a log from its
        start: each later segment goes later by as much as it was written later.
    """
    before, due_ms = set(pinned), -math.inf
    logs = sorted(before.union(planned), key=lambda log: log.name)
    for position, log in enumerate(logs):
        # Files that were copied may be older than one below them, which goes first all the same.
        written_ms = max(0, log.mtime_ms - logs[0].mtime_ms)
        due_ms = max(due_ms, math.inf if deadline_ms is None else deadline_ms + written_ms)
        yield due_ms, log not in before, position, log


def within_queue(plans: Sequence[PartitionPlan], room: int) -> list[PartitionPlan]:
    """The same plans with no more than `room` segments; those that lose none stay the same objects.

    Each partition may have its share first, whatever the backlog of others; what is left goes to the most urgent, who come first.
    """
    share = max(1, room // max(1, sum(bool(plan.segments) for plan in plans)))
    shares = []
    for plan in plans:
        shares.append(min(len(plan.segments), share, room))
        room -= shares[-1]
    cut: list[PartitionPlan] = []
    for plan, own in zip(plans, shares, strict=True):
        more = min(len(plan.segments) - own, room)
        room -= more
        kept, later = plan.segments[: own + more], plan.segments[own + more :]
        if later:
            waiting = (*later, *plan.waiting)
            plan = replace(plan, segments=kept, waiting=waiting, reason=Wait.NOT_ADMITTED, recheck_in_ms=0)
        cut.append(plan)
    return cut
