"""What a partition lacks."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.errors import PartitionError
from sidecar.pipeline.snapshots.disk_partition import DiskPartition
from sidecar.pipeline.snapshots.folding import PartitionJob
from sidecar.pipeline.snapshots.planning import plan_job


@dataclass(frozen=True, slots=True)
class HealPlan:
    """Offsets ascending. `missing`: no snapshot stands there. `suspects`: an empty one does, which the replay will judge.

    `witnesses`: those that a broker wrote and that the replay passes by: it must give the same.
    """

    log: DiskPartition
    missing: tuple[int, ...]
    suspects: tuple[int, ...] = ()
    witnesses: tuple[int, ...] = ()

    def job(self) -> PartitionJob:
        """Raises the errors of `plan_job`."""
        builds_on = set(self.log.snapshot_offsets) - set(self.suspects)
        return plan_job(self.log, {*self.missing, *self.suspects, *self.witnesses}, builds_on=builds_on)


@dataclass(slots=True)
class Healing:
    """What became of a plan. `verified`: witnesses that agree; `mismatches`: those that do not, and how.

    `wrong_empty`: empty snapshots that hide producers and were left alone. `exact` False: a cleaner had been there.
    """

    plan: HealPlan
    created: list[int] = field(default_factory=list)
    replaced: list[int] = field(default_factory=list)
    verified: list[int] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)
    wrong_empty: list[int] = field(default_factory=list)
    exact: bool = True
    problem: str = ""


def plan_healing(log: DiskPartition, log_start_offset: int | None, *, replace_empty: bool) -> HealPlan:
    """Look at names and sizes only. Raises PartitionError for a directory without segments, or with an unfinished compaction.

    Args:
        log_start_offset: as checkpointed, None if it is the first segment's base. At its start a broker deletes
            snapshots that are not above it, and so nothing is made there.
    """
    if log.files.unstable:
        raise PartitionError(
            f"{log.place}: a compaction was interrupted here (.swap or .cleaned files); start the broker, which ends it, "
            f"stop it cleanly, and run again"
        )
    lowest = max(log.first_offset, log_start_offset or 0)
    present = set(log.snapshot_offsets)
    bases = log.bases
    missing = tuple(base for base in bases if base not in present and base > lowest)
    suspects: tuple[int, ...] = ()
    if replace_empty:
        suspects = tuple(
            offset for offset in log.snapshot_offsets if offset > lowest and log.has_empty_snapshot(offset)
        )
    wanted = sorted({*missing, *suspects})
    if not wanted:
        return HealPlan(log, ())
    # The first one above what is made is passed on purpose: it proves the whole replay below it.
    above = [base for base in bases if base in present and base > wanted[-1]][:1]
    between = [base for base in bases if base in present and wanted[0] < base < wanted[-1]]
    return HealPlan(log, missing, suspects, tuple(sorted({*between, *above} - set(suspects))))
