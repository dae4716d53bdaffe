"""What a partition lacks, what must be judged in it, and what became of it all."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from producer_state.snapshot import CorruptSnapshot, read_rows
from sidecar.errors import PartitionError, VerificationMismatch
from sidecar.reporting.advice import advised
from sidecar.snapshots import Replay
from sidecar.snapshots.disk_partition import DiskPartition
from sidecar.snapshots.jobs import Forgetting, PartitionJob
from sidecar.snapshots.planning import plan_job
from sidecar.snapshots.starts import Start


@dataclass(frozen=True, slots=True)
class HealPlan:
    """Offsets ascending. `missing`: no snapshot exists there. Of those that do: `empty` names no producer, `corrupt` is none,
    and `witnesses` name some, which the replay must find too.

    `replaceable`: which of the empty (if proven wrong) and the corrupt ones may be replaced.
    `bare`: no snapshot is there, and none is missing. A broker that starts then writes an empty one at the log's end, and replays
    nothing. `log_end`: where it would, None if it was not read yet. Source: UnifiedLog.rebuildProducerState.
    """

    log: DiskPartition
    missing: tuple[int, ...] = ()
    empty: tuple[int, ...] = ()
    corrupt: tuple[int, ...] = ()
    witnesses: tuple[int, ...] = ()
    replaceable: frozenset[int] = frozenset()
    bare: bool = False
    log_end: int | None = None

    @property
    def existing(self) -> frozenset[int]:
        """Snapshots that are there and that a replay can judge."""
        return frozenset((*self.empty, *self.corrupt, *self.witnesses))

    def job(self, replay: Replay, forgetting: Forgetting) -> PartitionJob:
        """What must be read.

        Replay.FULL judges all snapshots; Replay.WINDOW those that lie on its way, all empty ones that may be replaced, and else
        those that may hide producers of their window.

        Raises the errors of `plan_job`.
        """
        at_end = () if self.log_end is None else (self.log_end,)
        wanted = {*self.missing, *at_end, *self.replaceable}
        if replay is Replay.FULL:
            return plan_job(self.log, {*wanted, *self.existing}, replay, forgetting)
        suspected = [offset for offset in self._may_be_wrong(forgetting) if offset not in wanted]
        return plan_job(self.log, wanted, replay, forgetting, self.existing, suspected)

    def _may_be_wrong(self, forgetting: Forgetting) -> list[int]:
        """The empty snapshots with a segment below them that is young enough to hold producers whom a broker must know now."""
        if not self.empty:
            return []
        now = forgetting.expiration_now
        young = (
            segment.base_offset
            for segment in self.log.spans()
            if segment.max_timestamp_ms is None or now.keeps(segment.max_timestamp_ms)
        )
        first_young = next(young, None)
        return [offset for offset in self.empty if first_young is not None and offset > first_young]


@dataclass(slots=True)
class Healing:
    """What became of a plan. `verified`: witnesses that agree; `mismatches`: snapshots that do not, and how.

    `withheld`: not written, as the next witness above contradicts the replay, or a transaction can be open there of which the
    replay does not know. `proven_wrong`: empty ones that hide producers.
    `replayed`: its log was read; without that nothing is known of `verified`, `mismatches` and `exact`.
    `exact` False: the replay may know less than the broker did; `note` says why if it is not a cleaner that had been there.
    `starts`: where replays of the snapshots that were made began. `compared`: snapshots that the replay has judged.
    `read_bytes`: of its segments.
    """

    plan: HealPlan
    created: list[int] = field(default_factory=list)
    replaced: list[int] = field(default_factory=list)
    verified: list[int] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)
    withheld: list[int] = field(default_factory=list)
    proven_wrong: list[int] = field(default_factory=list)
    exact: bool = True
    replayed: bool = False
    starts: list[Start] = field(default_factory=list)
    compared: set[int] = field(default_factory=set)
    read_bytes: int = 0
    note: str = ""
    problem: str = ""

    @contextmanager
    def noting_problem(self) -> Iterator[None]:
        """Keep the first PartitionError of the partition."""
        try:
            yield
        except PartitionError as error:
            self.problem = self.problem or advised(error)

    @property
    def not_compared(self) -> list[int]:
        """Existing snapshots that no replay compares."""
        return sorted({*self.plan.empty, *self.plan.witnesses} - self.compared)

    @property
    def empty_not_compared(self) -> list[int]:
        return [offset for offset in self.plan.empty if offset not in self.compared]

    @property
    def wrong_empty(self) -> list[int]:
        """Empty snapshots that hide producers and are still there."""
        return [offset for offset in self.proven_wrong if offset not in self.replaced]

    @property
    def corrupt(self) -> list[int]:
        """Files that no broker can read and that are still there."""
        return [offset for offset in self.plan.corrupt if offset not in self.replaced]

    @property
    def misleads(self) -> bool:
        """Whether a snapshot that contradicts the log, or that is none, is left."""
        return bool(self.mismatches or self.wrong_empty or self.corrupt)


def plan_healing(
    log: DiskPartition, log_start_offset: int | None, *, replace_empty: bool, replace_corrupt: bool, replayed: bool
) -> HealPlan:
    """Check names, and the existing snapshots.

    Raises PartitionError for a directory without segments or with an unfinished compaction, for a snapshot that cannot be
    read, and for a log without snapshots that does not end with a whole batch.

    Args:
        log_start_offset: as checkpointed, None if it is the first segment's base. At its start a broker deletes
            snapshots that are not above it, and so nothing is made there. It deletes strays, too: they are not checked.
        replayed: the log will be read. Else its end is not searched.
    """
    if log.files.unstable:
        raise PartitionError(
            f"{log.place}: a compaction was interrupted here (.swap files); start the broker, which "
            "completes it, stop the broker cleanly, and run again"
        )
    lowest = max(log.first_offset, log_start_offset or 0)
    bases, offsets = log.bases, set(log.snapshot_offsets)
    missing = tuple(base for base in bases if base not in offsets and base > lowest)
    strays = log.strays
    found: dict[str, list[int]] = {"empty": [], "corrupt": [], "witnesses": []}
    for offset in sorted(offsets - strays):
        if offset > lowest:
            found[_kind_of(log, offset)].append(offset)
    kinds = {kind: tuple(of_kind) for kind, of_kind in found.items()}
    replaceable = (*found["empty"] * replace_empty, *found["corrupt"] * replace_corrupt)
    has_batches = log.files.active_base_offset is not None and (bool(bases) or log.active_bytes > 0)
    bare = not missing and offsets == strays and has_batches
    log_end = log.end_offset() if bare and replayed else None
    if log_end is not None and log_end <= lowest:
        bare, log_end = False, None
    return HealPlan(log, missing, **kinds, replaceable=frozenset(replaceable), bare=bare, log_end=log_end)


def _kind_of(log: DiskPartition, offset: int) -> str:
    try:
        return "witnesses" if len(read_rows(log.snapshot(offset)[0])) else "empty"
    except CorruptSnapshot:
        return "corrupt"


@dataclass(frozen=True, slots=True)
class HealReport:
    """Every checked partition, ascending, and what could not be checked. `warnings` change no exit code."""

    healings: tuple[Healing, ...]
    problems: tuple[str, ...]
    dry_run: bool
    replay: Replay = Replay.WINDOW
    warnings: tuple[str, ...] = ()

    @property
    def worth_showing(self) -> list[Healing]:
        """Those in which something was missing or wrong."""
        return [
            healing
            for healing in self.healings
            if healing.plan.missing
            or healing.created
            or healing.replaced
            or healing.misleads
            or healing.problem
            or (self.dry_run and healing.plan.bare)
        ]

    @property
    def exit_code(self) -> int:
        """0, 3 if a partition was not healed completely, 4 if a snapshot is left that disagrees with the replay or is none.

        A dry run leaves to be healed what is missing: 3.
        """
        if any(healing.misleads for healing in self.healings):
            return VerificationMismatch.exit_code
        to_heal = self.dry_run and any(healing.plan.missing for healing in self.healings)
        if to_heal or self.problems or any(healing.problem for healing in self.healings):
            return PartitionError.exit_code
        return 0

    def as_json(self) -> dict[str, Any]:
        """One object, for `--json`. Partitions in which all is well are only counted."""
        counts = {
            "partitions": len(self.healings),
            "created": sum(len(healing.created) for healing in self.healings),
            "missing": sum(len(healing.plan.missing) for healing in self.healings),
            "read_bytes": sum(healing.read_bytes for healing in self.healings),
            "not_compared": sum(len(healing.not_compared) for healing in self.healings),
            "replaced": sum(len(healing.replaced) for healing in self.healings),
        }
        return {
            "kind": "snapshots_heal",
            "version": 1,
            "dry_run": self.dry_run,
            "replay": self.replay,
            "counts": counts,
            "partitions": [_row(healing) for healing in self.worth_showing],
            "problems": list(self.problems),
            "warnings": list(self.warnings),
            "exit_code": self.exit_code,
        }


def _row(healing: Healing) -> dict[str, Any]:
    log = healing.plan.log
    return {
        **asdict(log.topic_partition),
        "directory": log.place,
        "missing": list(healing.plan.missing),
        "log_end": healing.plan.log_end,
        "created": sorted(healing.created),
        "replaced": sorted(healing.replaced),
        "replayed": healing.replayed,
        "replayed_from": [{"offset": start.offset, "start": start.kind} for start in healing.starts],
        "read_bytes": healing.read_bytes,
        "not_compared": healing.not_compared,
        "verified": healing.verified if healing.replayed else None,
        "mismatches": healing.mismatches if healing.replayed else None,
        "withheld": healing.withheld,
        "wrong_empty": healing.wrong_empty,
        "corrupt": healing.corrupt,
        "exact": healing.exact if healing.replayed else None,
        "note": healing.note,
        "problem": healing.problem,
    }
