"""What a partition lacks."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.errors import PartitionError
from sidecar.model import PartitionFiles
from sidecar.pipeline.snapshots.folding import PartitionJob
from sidecar.pipeline.snapshots.planning import (
    EMPTY_SNAPSHOT_BYTES,
    log_start,
    plan_job,
    segment_bases,
    snapshot_path,
)


@dataclass(frozen=True, slots=True)
class HealPlan:
    """Offsets ascending. `missing`: no snapshot stands there. `suspects`: an empty one does, which the replay will judge.

    `witnesses`: those that a broker wrote and that the replay passes by: it must give the same.
    """

    files: PartitionFiles
    missing: tuple[int, ...]
    suspects: tuple[int, ...] = ()
    witnesses: tuple[int, ...] = ()

    def job(self) -> PartitionJob:
        """Raises the errors of `plan_job`."""
        builds_on = set(self.files.snapshot_offsets) - set(self.suspects)
        return plan_job(self.files, {*self.missing, *self.suspects, *self.witnesses}, builds_on=builds_on)


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


def plan_healing(files: PartitionFiles, log_start_offset: int | None, *, replace_empty: bool) -> HealPlan:
    """Look at names and sizes only. Raises PartitionError for a directory without segments, or with an unfinished compaction.

    Args:
        log_start_offset: as checkpointed, None if it is the first segment's base. At its start a broker deletes
            snapshots that are not above it, and so nothing is made there.
    """
    if files.unstable:
        raise PartitionError(
            f"{files.directory}: a compaction was interrupted here (.swap or .cleaned files); start the broker, which ends it, "
            f"stop it cleanly, and run again"
        )
    first = log_start(files)
    lowest = max(first, log_start_offset or 0)
    present = set(files.snapshot_offsets)
    bases = segment_bases(files)
    missing = tuple(base for base in bases if base not in present and base > lowest)
    suspects: tuple[int, ...] = ()
    if replace_empty:
        suspects = tuple(offset for offset in files.snapshot_offsets if offset > lowest and is_empty(files, offset))
    wanted = sorted({*missing, *suspects})
    if not wanted:
        return HealPlan(files, ())
    # The first one above what is made is passed on purpose: it proves the whole replay below it.
    above = [base for base in bases if base in present and base > wanted[-1]][:1]
    between = [base for base in bases if base in present and wanted[0] < base < wanted[-1]]
    return HealPlan(files, missing, suspects, tuple(sorted({*between, *above} - set(suspects))))


def is_empty(files: PartitionFiles, offset: int) -> bool:
    """Whether the snapshot there is as long as one without producers."""
    try:
        return snapshot_path(files, offset).stat().st_size == EMPTY_SNAPSHOT_BYTES
    except FileNotFoundError:
        return False
