"""What came of partitions since the last check, which of them back off, and when the next check has something to do."""

import math
from collections.abc import Container
from dataclasses import dataclass, replace

from sidecar.errors import SegmentChanged
from sidecar.event_log import EVENTS
from sidecar.model import TopicPartition
from sidecar.partition.domain_events import CycleProgressed, PartitionFailed
from sidecar.partition.status import PartitionOutcome
from sidecar.runner.context import RunContext


@dataclass(frozen=True, slots=True)
class Backoff:
    """A partition that failed: it is left alone until `until_s`, so that its fault does not cost every check."""

    until_s: float
    outcome: PartitionOutcome


class Outcomes:
    """Of the loop's thread. `problems`: what the last check could not list. `due_s`: on the monotonic clock."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._found: dict[TopicPartition, PartitionOutcome] = {}
        self.backoffs: dict[TopicPartition, Backoff] = {}
        self.problems = 0
        self.due_s = math.inf

    def checked(self, problems: int) -> None:
        """A check has ended: what comes now is what came of it."""
        self._found, self.problems = {}, problems

    def resting(self, present: Container[TopicPartition]) -> dict[TopicPartition, PartitionOutcome]:
        """How partitions ended that back off yet. What is gone backs off no more."""
        self.backoffs = {tp: backoff for tp, backoff in self.backoffs.items() if tp in present}
        now_s = self._context.clock.monotonic_s()
        resting = {tp: backoff for tp, backoff in self.backoffs.items() if backoff.until_s > now_s}
        self.due(min((backoff.until_s for backoff in resting.values()), default=math.inf))
        return {tp: backoff.outcome for tp, backoff in resting.items()}

    def due(self, at_s: float) -> None:
        """A check has something to do then."""
        self.due_s = min(self.due_s, at_s)

    def due_in(self, wait_ms: int | None) -> None:
        """As `due`; None and 0 say nothing: what continues at once does not wait for a check."""
        if wait_ms:
            self.due(self._context.clock.monotonic_s() + wait_ms / 1000)

    def add(self, outcome: PartitionOutcome) -> None:
        """Of a partition that goes on; with what came of it before."""
        tp = outcome.files.topic_partition
        before = self._found.get(tp)
        if before is not None and before.error is None:
            archived = [*before.archived, *outcome.archived]
            outcome = replace(outcome, archived=archived, conformance=before.conformance + outcome.conformance)
        self._found[tp] = outcome

    def settle(self, outcome: PartitionOutcome) -> None:
        """Of a partition that had nothing to do, as before: no reader hears of it."""
        self.add(outcome)
        self.backoffs.pop(outcome.files.topic_partition, None)

    def note(self, outcome: PartitionOutcome) -> None:
        """What came of a partition; after an error it backs off.

        Not after the first file that changed since the listing, such as by the cleaner: the next check lists it again, at once.
        """
        tp, wait_s = outcome.files.topic_partition, self._context.policy.retry_wait_s
        before, now_s = self.backoffs.get(tp), self._context.clock.monotonic_s()
        self.settle(outcome)
        self.due_in(outcome.recheck_in_ms)
        has_changed_before = before is not None and isinstance(before.outcome.error, SegmentChanged)
        if isinstance(outcome.error, SegmentChanged) and wait_s and not has_changed_before:
            self.backoffs[tp] = Backoff(now_s, self._found[tp])
            self.due(now_s)
            EVENTS.debug("partition_retried", partition=str(tp), error=str(outcome.error))
        elif outcome.error is not None:
            self.backoffs[tp] = Backoff(now_s + wait_s, self._found[tp])
            self.due(now_s + wait_s)
            self._context.emit(PartitionFailed(tp, outcome.error))
        elif outcome.reason is not None:
            EVENTS.debug("partition_waits", partition=str(tp), reason=outcome.reason)
        self._context.emit(CycleProgressed(self.stopped))

    @property
    def stopped(self) -> int:
        """Partitions and directories that need a person or another try, for all that is known so far."""
        return self.problems + len(self.backoffs)

    def ascending(self) -> list[PartitionOutcome]:
        return sorted(self._found.values(), key=lambda outcome: outcome.files.topic_partition)
