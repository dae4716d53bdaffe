"""Whether each loss is reported, once, and only what is lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sidecar.archive.actions import LossReason, Lost
from sidecar.archive.state import PartitionState
from sidecar.model import TopicPartition
from sidecar.partition.domain_events import DomainEvent, OffsetsLost
from tests.simulation.findings import Finding


@dataclass(slots=True)
class LossReports:
    """Of all sidecars. A step is calm where no call failed, no process ended, and no late request took hold.

    Where it is not, a loss may be reported again: better twice than never. It may also be reported by the commit alone.
    """

    _reported: dict[tuple[TopicPartition, int, int], int] = field(default_factory=dict)
    """By what is lost: how many steps were not calm until it was reported; -1 where that step was not."""
    _not_calm: int = 0

    def check(
        self,
        events: Iterable[DomainEvent],
        states: Mapping[TopicPartition, PartitionState],
        committed: Mapping[TopicPartition, list[Lost]],
        *,
        is_calm: bool,
    ) -> None:
        """After a step. Raises Finding.

        Args:
            states: the archives that can be judged.
            committed: the losses that commits of this step say.
        """
        self._not_calm += not is_calm
        for event in events:
            if isinstance(event, OffsetsLost):
                self._take(event, states.get(event.topic_partition), is_calm=is_calm)
        if is_calm:
            for topic_partition, losses in committed.items():
                for lost in losses:
                    span = topic_partition, lost.base_offset, lost.end_offset
                    if lost.reason == LossReason.NOT_ON_DISK and span not in self._reported:
                        raise Finding("loss-not-reported", f"{topic_partition}: {lost}")

    def _take(self, event: OffsetsLost, state: PartitionState | None, *, is_calm: bool) -> None:
        span = event.topic_partition, event.from_offset, event.to_offset
        if is_calm and self._reported.get(span) == self._not_calm:
            raise Finding("loss-reported-twice", f"{event}")
        self._reported[span] = self._not_calm if is_calm else -1
        for segment in () if state is None else state.segments:
            if segment.base_offset < event.to_offset and event.from_offset < segment.end_offset:
                raise Finding("false-loss-report", f"{event}: {segment} is archived")

    def forget(self, topic_partition: TopicPartition) -> None:
        """The topic was created again: its offsets are others."""
        self._reported = {span: found for span, found in self._reported.items() if span[0] != topic_partition}
