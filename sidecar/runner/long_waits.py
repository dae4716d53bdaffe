"""Rolled segments that wait for minutes for one and the same reason: logged once, and once when it is over."""

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from typing import Final

from sidecar.clock import Clock
from sidecar.event_log import EVENTS
from sidecar.model import TopicPartition
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.wait_reason import Away, WaitReason, render

LONG_WAIT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class _Wait:
    """Since when the segment from an offset on waits for this reason."""

    base_offset: int
    reason: WaitReason
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
        now_s = self._clock.monotonic_s()
        before, self._waits = self._waits, {}
        for plan in plans:
            known = before.pop(plan.files.topic_partition, None) if before else None
            if known is not None or plan.waiting:
                self._see(plan, known, now_s)
        self._waits |= {partition: wait for partition, wait in before.items() if partition in present}

    def _see(self, plan: PartitionPlan, known: _Wait | None, now_s: float) -> None:
        wait = _wait_of(plan, now_s)
        if known is not None and (wait is None or (wait.base_offset, wait.reason) != (known.base_offset, known.reason)):
            if known.is_reported:
                _tell_over(plan, known, now_s)
            known = None
        if wait is None:
            return
        if known is not None:
            wait = replace(wait, since_s=known.since_s, is_reported=known.is_reported)
        if not wait.is_reported and now_s - wait.since_s >= LONG_WAIT_S:
            _tell(plan, wait, now_s)
            wait = replace(wait, is_reported=True)
        self._waits[plan.files.topic_partition] = wait


def _wait_of(plan: PartitionPlan, now_s: float) -> _Wait | None:
    is_another_brokers = not plan.facts.names_no_other_leader
    if not plan.waiting or plan.reason is None or plan.is_on_purpose or plan.error is not None or is_another_brokers:
        return None
    return _Wait(plan.waiting[0].base_offset, plan.reason, now_s)


def _tell(plan: PartitionPlan, wait: _Wait, now_s: float) -> None:
    EVENTS.warning(
        "segments_delayed",
        partition=str(plan.files.topic_partition),
        from_offset=wait.base_offset,
        segments=len(plan.waiting),
        reason=render(wait.reason),
        waited_s=round(now_s - wait.since_s),
        effect="segments from there on that are not archived yet wait, but retention continues",
    )


def _tell_over(plan: PartitionPlan, wait: _Wait, now_s: float) -> None:
    EVENTS.info(
        "segments_wait_over",
        partition=str(plan.files.topic_partition),
        from_offset=wait.base_offset,
        reason=render(wait.reason),
        waited_s=round(now_s - wait.since_s),
        now=str(plan.error or render(plan.reason) or "nothing waits"),
    )
