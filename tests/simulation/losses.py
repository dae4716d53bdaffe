"""Whether each loss is reported, once, and only what is lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sidecar.archive.actions import Add, LossReason, Lost
from sidecar.archive.commit import Commit
from sidecar.model import TopicPartition
from sidecar.partition.domain_events import OffsetsLost
from tests.simulation.cluster import Partition
from tests.simulation.findings import Finding
from tests.simulation.invariants import Checker


@dataclass(slots=True)
class LossReports:
    """Of all sidecars. A step is calm where no call failed, no process ended, and no late request took hold.

    Where it is not, a loss may be reported again: better twice than never. Where a process ended, or a request took hold late, it
    may also be reported by the commit alone. Before there is a commit, two leaders may see the same go, and their sidecars know
    nothing of each other.
    """

    _reported: dict[tuple[TopicPartition, int, int], tuple[int, int]] = field(default_factory=dict)
    """By what is lost: how many steps were not calm until it was reported, -1 where that step was not or a leader had it since; and
    by which sidecar.
    """
    _not_calm: int = 0

    def check(
        self,
        events: Iterable[tuple[int, OffsetsLost]],
        archives: Mapping[TopicPartition, Checker],
        committed: Mapping[TopicPartition, list[Lost]],
        *,
        is_calm: bool,
        is_whole: bool,
    ) -> None:
        """After a step. Raises Finding.

        Args:
            events: each with the number of the sidecar that reports it.
            archives: those that can be judged.
            committed: the losses that commits of this step say, and are to be reported in it.
            is_whole: no process ended in the step, and no late request took hold.
        """
        self._not_calm += not is_calm
        for broker, event in events:
            self._take(event, broker, is_calm=is_calm)
            self._require_lost(event, broker, archives.get(event.topic_partition))
        if is_whole:
            for topic_partition, losses in committed.items():
                for lost in losses:
                    span = topic_partition, lost.base_offset, lost.end_offset
                    if lost.reason == LossReason.NOT_ON_DISK and span not in self._reported:
                        raise Finding("loss-not-reported", f"{topic_partition}: {lost}")

    def elected(self, cluster: Partition) -> None:
        """A leader's sidecar can archive what its disk still has, and its broker assigns what lies above again.

        A later loss of these offsets is another one. Followers learn the log start with a fetch, and delete below it later.
        Source: ReplicaFetcherThread.processPartitionData, UnifiedLog.deleteLogStartOffsetBreachedSegments.
        """
        for span, (_, by) in self._reported.items():
            if span[0] == cluster.topic_partition and span[2] > cluster.led.segments[0].base_offset:
                self._reported[span] = -1, by

    def _take(self, event: OffsetsLost, broker: int, *, is_calm: bool) -> None:
        span = event.topic_partition, event.from_offset, event.to_offset
        not_calm, by = self._reported.get(span, (-1, broker))
        if is_calm and not_calm == self._not_calm and (event.is_recorded or by == broker):
            raise Finding("loss-reported-twice", f"{event}")
        self._reported[span] = (self._not_calm if is_calm else -1), broker

    @staticmethod
    def _require_lost(event: OffsetsLost, broker: int, archive: Checker | None) -> None:
        """A sidecar may take for lost what one of an earlier leader, or of the next one, has archived since it read the archive."""
        if archive is not None and not event.is_recorded:
            log = archive.cluster.replicas[broker]
            for batch in log.batches():
                is_there = batch.base_offset < event.to_offset and event.from_offset < batch.end_offset
                if is_there and batch.end_offset > log.log_start_offset:
                    raise Finding("false-loss-report", f"{event}: broker {broker} has {batch}")
        state = None if archive is None else archive.state
        for segment in () if state is None else state.segments:
            is_archived = segment.base_offset < event.to_offset and event.from_offset < segment.end_offset
            writer = None if archive is None else archive.writers.get(segment.segment_id)
            if is_archived and writer is not None and writer.broker_id == broker:
                raise Finding("false-loss-report", f"{event}: {segment} is archived")

    def spans(self, topic_partition: TopicPartition) -> list[tuple[int, int]]:
        """What was reported of a partition."""
        return [(begin, end) for found, begin, end in self._reported if found == topic_partition]

    def forget(self, topic_partition: TopicPartition) -> None:
        """The topic was created again: its offsets are others."""
        self._reported = {span: found for span, found in self._reported.items() if span[0] != topic_partition}


def require_not_truncated(checker: Checker, commit: Commit) -> None:
    """Nothing is added above a loss that the archive ends with, where a later leader assigned its last offset again.

    `commit`: is about to be stored. What a leader after its writer does then, its writer cannot know. Raises Finding.
    """
    state = checker.state
    loss = None if state is None or state.next_number != commit.number else state.loss_at_end
    if state is None or loss is None or not any(isinstance(action, Add) for action in commit.actions):
        return
    log, writer = checker.cluster.replicas[commit.writer.broker_id], commit.writer
    for batch in log.batches() if log.log_start_offset < loss.end_offset else ():
        is_last = batch.base_offset < loss.end_offset <= batch.end_offset
        if is_last and state.leader_epoch < batch.leader_epoch <= writer.leader_epoch:
            raise Finding("truncation-passed-over", f"{loss}, and broker {writer.broker_id} has {batch}")
