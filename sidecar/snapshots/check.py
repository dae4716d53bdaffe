"""`snapshots check`: compares every snapshot found with the state that replay gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sidecar.engine_ports import TaskEngine
from sidecar.errors import PartitionError, VerificationMismatch
from sidecar.reporting.progress import Watcher
from sidecar.snapshots.counting import Counting
from sidecar.snapshots.folding import fold
from sidecar.snapshots.jobs import Forgetting, Misplaced, PartitionJob, StateAt, Stopped
from sidecar.snapshots.judging import Verdict, judge
from sidecar.snapshots.planning import PartitionLog, plan_full
from sidecar.snapshots.targets import Targets


class Result(StrEnum):
    """EQUAL, PERMISSIBLE and WRONG as in `Conformance`. CORRUPT: not a snapshot, or of an offset at which nothing ends.

    UNKNOWN: nothing below it is left to replay, or the replay did not get that far. MISSING: a segment base without any.
    """

    EQUAL = "equal"
    PERMISSIBLE = "permissible"
    WRONG = "wrong"
    CORRUPT = "corrupt"
    UNKNOWN = "unknown"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class CheckedSnapshot:
    """One snapshot and what is to be said of it."""

    offset: int
    result: Result
    what: str = ""
    producers: int | None = None


@dataclass(slots=True)
class Checking:
    """One partition; `snapshots` ascending by offset."""

    log: PartitionLog
    snapshots: list[CheckedSnapshot] = field(default_factory=list)
    problem: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether a snapshot misleads a broker."""
        return any(snapshot.result in {Result.WRONG, Result.CORRUPT} for snapshot in self.snapshots)

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "topic": self.log.topic_partition.topic,
            "partition": self.log.topic_partition.partition,
            "directory": self.log.place,
            "snapshots": [
                {
                    "offset": snapshot.offset,
                    "result": str(snapshot.result),
                    "what": snapshot.what,
                    "producers": snapshot.producers,
                }
                for snapshot in self.snapshots
            ],
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All partitions ascending, and what could not be listed."""

    partitions: tuple[Checking, ...]
    problems: tuple[str, ...]

    @property
    def missing(self) -> int:
        """How many snapshots are not there."""
        return sum(found.result is Result.MISSING for each in self.partitions for found in each.snapshots)

    @property
    def exit_code(self) -> int:
        """4 if a snapshot is wrong, else 3 if one is missing or something could not be checked, else 0."""
        if any(partition.is_wrong for partition in self.partitions):
            return VerificationMismatch.exit_code
        if self.problems or self.missing or any(partition.problem for partition in self.partitions):
            return PartitionError.exit_code
        return 0


def check(
    targets: Targets, engine: TaskEngine, forgetting: Forgetting, *, watcher: Watcher | None = None
) -> CheckReport:
    """Replay every partition from its log's start and compare at every snapshot, whatever its offset."""
    checkings = [Checking(log) for log in targets.partitions]
    work: list[tuple[Checking, PartitionJob]] = []
    for checking in checkings:
        log = checking.log
        try:
            first = log.first_offset
            checking.snapshots += _not_comparable(log, first)
            # Also where snapshots are missing: a segment may be, too.
            wanted = {offset for offset in (*log.snapshot_offsets, *log.bases) if offset > first}
            work.append((checking, plan_full(log, wanted)))
        except PartitionError as error:
            checking.problem = str(error)
    jobs = [job for _, job in work]
    for index, event in fold(jobs, engine, Counting(jobs, watcher)):
        checking, job = work[index]
        match event:
            case StateAt() if event.table.end_offset in checking.log.snapshot_offsets:
                _compare(checking, event, forgetting)
            case Misplaced(offset, reason):
                what = f"no batch ends at the offset of its name: {reason}"
                checking.snapshots.append(CheckedSnapshot(offset, Result.CORRUPT, what))
            case Stopped(offset, reason):
                checking.problem = reason
                unread = [
                    unread for unread in job.boundaries if unread > offset and unread in checking.log.snapshot_offsets
                ]
                what = "the log cannot be replayed that far"
                checking.snapshots += [CheckedSnapshot(unread_offset, Result.UNKNOWN, what) for unread_offset in unread]
    for checking in checkings:
        checking.snapshots.sort(key=lambda snapshot: snapshot.offset)
    return CheckReport(tuple(checkings), targets.problems)


def _not_comparable(log: PartitionLog, first: int) -> list[CheckedSnapshot]:
    found = set(log.snapshot_offsets)
    at_start = "the log begins there: nothing below it is left to replay"
    below = [CheckedSnapshot(offset, Result.UNKNOWN, at_start) for offset in log.snapshot_offsets if offset <= first]
    # A broker that starts deletes what is not above its log's start.
    missing = [base for base in log.bases if base not in found and base > log.log_start_offset]
    return below + [CheckedSnapshot(offset, Result.MISSING) for offset in missing]


def _compare(checking: Checking, state: StateAt, forgetting: Forgetting) -> None:
    offset = state.table.end_offset
    try:
        verdict = judge(checking.log, state, forgetting)
    except PartitionError as error:
        checking.snapshots.append(CheckedSnapshot(offset, Result.UNKNOWN, str(error)))
        return
    checking.snapshots.append(CheckedSnapshot(offset, _result(verdict), verdict.describe(), verdict.entry_count))


def _result(verdict: Verdict) -> Result:
    return Result.CORRUPT if verdict.comparison is None else Result(str(verdict.comparison.conformance))
