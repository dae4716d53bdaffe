"""The turns of one round, each in a thread of its own: archive one partition's plan, and tell how that goes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, TypeAlias

from sidecar.commits.commit_log import CommitConflict
from sidecar.errors import SidecarError
from sidecar.model import ArchivedSegment, PartitionFiles, TopicPartition
from sidecar.partition.domain_events import CycleProgressed, PartitionChecked
from sidecar.partition.outcome import PartitionOutcome
from sidecar.partition.plan import PartitionPlan
from sidecar.pipeline.partition import PartitionArchiver
from sidecar.pipeline.tools import Tools
from sidecar.runner.round_report import RoundReport

CONFLICTS_IN_A_ROW: Final = 20
"""Another writer may win so many commits before a partition is left to the next round."""

Done: TypeAlias = Callable[[TopicPartition, ArchivedSegment], None]


@dataclass(frozen=True, slots=True)
class RoundTurns:
    """What the turns of one round have in common.

    `number`: of the round. `end_s`: on the monotonic clock; no turn with segments begins after it.
    """

    tools: Tools
    report: RoundReport
    uploads: Executor
    done: Done
    number: int
    end_s: float

    def take(self, archiver: PartitionArchiver, plan: PartitionPlan) -> PartitionOutcome:
        """Archive what is planned, and again on top of what others have committed meanwhile."""
        if plan.segments:
            if self.tools.clock.monotonic_s() >= self.end_s:
                return archiver.not_reached(plan)
            archiver.last_turn = self.number
        outcome = self._planned_anew(archiver, plan.files) if plan.is_provisional else self._archived(archiver, plan)
        for _ in range(CONFLICTS_IN_A_ROW):
            if not isinstance(outcome.error, CommitConflict) or self.tools.stop.is_set():
                break
            before = outcome
            outcome = self._planned_anew(archiver, plan.files)
            outcome.archived[:0] = before.archived
            outcome.conformance.update(before.conformance)
        if plan.segments or plan.hole or outcome.error is not None:
            self.tools.emit(PartitionChecked(archiver.status(outcome.files, plan, outcome)))
        return outcome

    def _planned_anew(self, archiver: PartitionArchiver, files: PartitionFiles) -> PartitionOutcome:
        try:
            # In this order: what the leader says of its log start counts for a directory that was listed later.
            facts = self.tools.facts.partition(files)
            return self._archived(archiver, archiver.plan(self.tools.disk.listed_again(files), facts))
        except SidecarError as error:
            return PartitionOutcome(files, error=error)

    def _archived(self, archiver: PartitionArchiver, plan: PartitionPlan) -> PartitionOutcome:
        def committed(segment: ArchivedSegment) -> None:
            self.tools.emit(archiver.backlog(plan.files))
            self.tools.emit(CycleProgressed(self.report.stopped, archived=True))
            self.done(plan.files.topic_partition, segment)

        return archiver.archive(plan, self.uploads, committed, round_end_s=self.end_s)
