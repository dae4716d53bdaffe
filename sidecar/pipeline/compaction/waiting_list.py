"""The partitions that `run` may compact: what is known of each, and when it has to be looked at again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sidecar.clock import Clock
from sidecar.config import CompactionPolicy
from sidecar.errors import PartitionError
from sidecar.model import ObjectKey, PartitionFiles, TopicPartition
from sidecar.pipeline.compaction.policy import Assessment, most_dirty_first


@dataclass(frozen=True, slots=True)
class LedPartition:
    """A partition that this broker leads under `leader_epoch`, and whose archive below `root` ends at `end_offset`.

    `files`: its directory as it was listed, by which leadership is asked for again; None where nobody asks.
    """

    topic_partition: TopicPartition
    root: ObjectKey
    leader_epoch: int
    end_offset: int
    files: PartitionFiles | None = None


@dataclass(slots=True)
class Waiting:
    """`assessment`: None until it was looked at. `due_since_ms`: None while it is not due.

    `compacted_from`: the first dirty offset when it was last compacted; the next one must lie above it.
    """

    led: LedPartition
    policy: CompactionPolicy
    assessment: Assessment | None = None
    due_since_ms: int | None = None
    compacted_from: int | None = None


class WaitingList:
    """All partitions whose topics are compacted. An archive that has not changed is not looked at twice."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[TopicPartition, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def replace(self, partitions: Iterable[tuple[LedPartition, CompactionPolicy]]) -> None:
        """These are led here now, and no others. What is known of them stays unless their archive or policy is another."""
        before = self._waiting
        self._waiting = {}
        for led, policy in partitions:
            known = before.get(led.topic_partition)
            entry = Waiting(led, policy)
            if known is not None and known.led.root == led.root:
                entry.due_since_ms, entry.compacted_from = known.due_since_ms, known.compacted_from
                if known.led.end_offset == led.end_offset and known.policy == policy:
                    entry.assessment = known.assessment
            self._waiting[led.topic_partition] = entry

    def to_look_at(self) -> list[Waiting]:
        """Those whose assessment is not there, or may have changed with time."""
        now_ms = self._clock.now_ms()
        return [entry for entry in self._waiting.values() if _is_stale(entry.assessment, now_ms)]

    def assessed(self, entry: Waiting, assessment: Assessment) -> None:
        """A look is over. Raises PartitionError where the last compaction has changed nothing: the next would not either."""
        entry.assessment = assessment
        if assessment.trigger is None:
            entry.due_since_ms = None
            return
        if entry.due_since_ms is None:
            entry.due_since_ms = self._clock.now_ms()
        stuck, entry.compacted_from = entry.compacted_from, None
        if stuck is not None and assessment.first_dirty_offset <= stuck:
            raise PartitionError(
                f"{entry.led.topic_partition}: was compacted, but its first dirty offset is {assessment.first_dirty_offset} "
                f"still: an open transaction, or a fault"
            )

    def compacted(self, partition: TopicPartition) -> None:
        """What it was due for is done."""
        if (entry := self._waiting.get(partition)) is not None and entry.assessment is not None:
            entry.compacted_from = entry.assessment.first_dirty_offset
            entry.assessment, entry.due_since_ms = None, None

    def changed(self, partition: TopicPartition) -> None:
        """Its archive is another than it was when it was looked at."""
        if (entry := self._waiting.get(partition)) is not None:
            entry.assessment = None

    def remove(self, partition: TopicPartition) -> None:
        """Not ours any more, until a later round says so again."""
        self._waiting.pop(partition, None)

    def partitions(self) -> frozenset[TopicPartition]:
        """All of them."""
        return frozenset(self._waiting)

    def of(self, partition: TopicPartition) -> Waiting | None:
        """What is known of one."""
        return self._waiting.get(partition)

    def due(self) -> dict[TopicPartition, Assessment]:
        """Those that are due, most dirty first."""
        known = {name: entry.assessment for name, entry in self._waiting.items() if entry.assessment is not None}
        return {name: known[name] for name in most_dirty_first(known)}

    def oldest_due_ms(self) -> int | None:
        """Since when the first of those that are due has been."""
        since = [entry.due_since_ms for entry in self._waiting.values() if entry.due_since_ms is not None]
        return min(since, default=None)

    def cleanable_bytes(self) -> int:
        """Bytes that may be compacted and never were."""
        return sum(entry.assessment.cleanable_bytes for entry in self._waiting.values() if entry.assessment is not None)


def _is_stale(assessment: Assessment | None, now_ms: int) -> bool:
    return assessment is None or (assessment.look_again_ms is not None and assessment.look_again_ms <= now_ms)
