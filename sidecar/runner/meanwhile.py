"""While turns of a round last, which may be for as long as a store is silent, the disks are looked at all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, as_completed
from contextlib import suppress
from typing import Final, TypeAlias

from sidecar.model import TopicPartition
from sidecar.partition.outcome import PartitionOutcome
from sidecar.pipeline.tools import Tools
from sidecar.runner.queue_room import Work

TICK_S: Final = 0.5
LOOK_SHARE: Final = 5.0
"""Looks may take up a sixth of the time, however long one of them takes."""

Turn: TypeAlias = "Future[PartitionOutcome]"
Busy: TypeAlias = Mapping[TopicPartition, Work]
"""Partitions whose turn has not ended, which are another thread's."""
NOBODY: Final[Busy] = {}


def ended_turns(
    tools: Tools, turns: Mapping[Turn, Work], round_end_s: float, look: Callable[[Busy], None]
) -> Iterator[PartitionOutcome]:
    """The outcome of each turn as it ends.

    Args:
        round_end_s: on the monotonic clock; a turn that has not begun by then is left to the next round, and so is one that a
            silent store keeps from beginning: what of its partition rolls meanwhile would neither be planned nor held.
        look: called every `Policy.look_s`, with those that have not ended. Raises no SidecarError.
    """
    clock, left = tools.clock, dict(turns)
    due_s = clock.monotonic_s() + tools.policy.look_s
    while left:
        for turn in _ended_soon(left):
            del left[turn]
            yield turn.result()
        if tools.stop.is_set() or clock.monotonic_s() < due_s:
            continue
        for turn in _not_begun(tools, left, round_end_s):
            archiver, plan = left.pop(turn)
            yield archiver.not_reached(plan)
        began_s = clock.monotonic_s()
        if left:
            look({plan.files.topic_partition: (archiver, plan) for archiver, plan in left.values()})
        due_s = clock.monotonic_s() + max(tools.policy.look_s, LOOK_SHARE * (clock.monotonic_s() - began_s))


def _ended_soon(turns: Mapping[Turn, Work]) -> Iterator[Turn]:
    with suppress(TimeoutError):
        yield from as_completed(tuple(turns), timeout=TICK_S)


def _not_begun(tools: Tools, turns: Mapping[Turn, Work], round_end_s: float) -> list[Turn]:
    """Turns that will not begin in this round any more."""
    is_over, is_silent = tools.clock.monotonic_s() >= round_end_s, tools.is_store_silent()
    return [
        turn
        for turn, (_, plan) in turns.items()
        if plan.error is None and (is_silent or (is_over and plan.segments)) and turn.cancel()
    ]
