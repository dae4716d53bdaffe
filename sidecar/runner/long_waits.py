"""Rolled segments that wait for minutes for one and the same reason: logged once, and once when it is over."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Final

from sidecar.clock import Clock
from sidecar.event_log import EVENTS
from sidecar.model import TopicPartition
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.wait_reason import Away, WaitReason, render

LONG_WAIT_S: Final = 300.0


@dataclass(slots=True)
class _Wait:
    """Since when the segment from an offset on waits for this reason."""

    base_offset: int
    reason: WaitReason | None
    since_s: float
    is_reported: bool = False


class LongWaits:
    """What partitions wait for, check by check. Of one thread.

    Left out are normal waits (another broker leads, the settings delay segments), and those with events of their own: an
    error, and that the broker is away.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: dict[TopicPartition, _Wait] = {}

    def looked(self, plans: Iterable[PartitionPlan], away: Away | None, present: Container[TopicPartition]) -> None:
        """All partitions were checked. `present`: also those without a plan: they failed, now or not long ago.

        `away`: why the broker cannot be asked, None if it can be. Until it can, nothing is known to wait or to go on.
        """
        if away:
            return
        before, self._waits = self._waits, {}
        for plan in plans:
            known = before.pop(plan.files.topic_partition, None) if before else None
            if known is not None or plan.waiting:
                self._see(plan, known, self._clock.monotonic_s())
        self._waits |= {partition: wait for partition, wait in before.items() if partition in present}

    def _see(self, plan: PartitionPlan, known: _Wait | None, now_s: float) -> None:
        is_normal = plan.is_on_purpose or plan.error is not None or not plan.facts.names_no_other_leader
        is_waiting = bool(plan.waiting) and plan.reason is not None and not is_normal
        wait = _Wait(plan.waiting[0].base_offset, plan.reason, now_s) if is_waiting else None
        if (
            known is not None
            and wait is not None
            and (wait.base_offset, wait.reason) == (known.base_offset, known.reason)
        ):
            wait.since_s, wait.is_reported = known.since_s, known.is_reported
        elif known is not None and known.is_reported:
            EVENTS.info(
                "segments_wait_over",
                partition=str(plan.files.topic_partition),
                from_offset=known.base_offset,
                reason=render(known.reason),
                waited_s=round(now_s - known.since_s),
                now=str(plan.error or render(plan.reason) or "nothing waits"),
            )
        if wait is None:
            return
        self._waits[plan.files.topic_partition] = wait
        if not wait.is_reported and now_s - wait.since_s >= LONG_WAIT_S:
            wait.is_reported = True
            EVENTS.warning(
                "segments_delayed",
                partition=str(plan.files.topic_partition),
                from_offset=wait.base_offset,
                segments=len(plan.waiting),
                reason=render(wait.reason),
                waited_s=round(now_s - wait.since_s),
                effect="segments from there on that are not archived yet wait, but retention continues",
            )
