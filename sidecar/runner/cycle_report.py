"""What one check of all partitions found, and what came of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sidecar.compactor.candidate_queue import LedPartition
from sidecar.discovery.scan import ScanProblem
from sidecar.errors import SidecarError, StoreError
from sidecar.partition.outcome import PartitionOutcome
from sidecar.partition.wait_reason import Away
from sidecar.reporting.health_reporter import CycleConditions


@dataclass(slots=True)
class CycleReport:
    """What one check found. `outcomes` ascend by partition; `problems` are what could not even be listed.

    `backed_off`: how partitions ended that failed not long ago, whether they were left alone this time or are tried again.
    `is_empty`: no partition was listed, nor is one left alone.
    `led`: partitions with an archive that this broker leads. `is_complete`: False where nothing could be checked.
    `broker_away`: why the broker could not be asked, None if it could. `missing_rights`: what it does not let us ask.
    `unseen_replicas`: see `FactsState`.
    `look_again_s`: when the next check will have something to do for all that is known now. `scan_s`: how long the look at
    the disks took.
    """

    outcomes: list[PartitionOutcome] = field(default_factory=list)
    problems: tuple[ScanProblem, ...] = ()
    backed_off: list[PartitionOutcome] = field(default_factory=list)
    led: list[LedPartition] = field(default_factory=list)
    is_empty: bool = False
    look_again_s: float = math.inf
    scan_s: float = 0.0
    is_complete: bool = True
    broker_away: Away | None = None
    missing_rights: tuple[str, ...] = ()
    unseen_replicas: str = ""

    @property
    def found_nothing(self) -> bool:
        """Whether all was checked, and there was no partition."""
        return self.is_complete and self.is_empty and not (self.broker_away or self.problems)

    @property
    def conditions(self) -> CycleConditions:
        """What the check met that may keep the process from its work."""
        found = [*self.outcomes, *self.backed_off]
        outcomes = sorted(found, key=lambda outcome: outcome.files.topic_partition)
        return CycleConditions(
            tuple(str(outcome.error) for outcome in outcomes if isinstance(outcome.error, StoreError)),
            tuple(str(problem.error) for problem in self.problems if problem.topic_partition is None),
            self.broker_away,
            self.missing_rights,
            tuple(str(problem.error) for problem in self.problems),
            self.unseen_replicas,
        )

    @property
    def errors(self) -> list[SidecarError]:
        """Everything that needs a person or another try."""
        found = [outcome.error for outcome in self.outcomes if outcome.error is not None]
        return [*(problem.error for problem in self.problems), *found]

    @property
    def exit_code(self) -> int:
        """0 if all went well; the common code of all errors if nothing else was done; else 3, partial."""
        codes = {error.exit_code for error in self.errors}
        if not codes:
            return 0
        worked = any(outcome.error is None for outcome in self.outcomes)
        return codes.pop() if len(codes) == 1 and not worked else 3
