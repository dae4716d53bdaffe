"""`snapshots check`: compares every snapshot found with the state that replay gives."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from producer_state.compare import Allowance, Comparison, Conformance, compare_snapshots
from producer_state.snapshot import CorruptSnapshot
from producer_state.table import Expiration, ProducerTable
from sidecar.engine_ports import TaskEngine
from sidecar.errors import OF_ONE_PARTITION, PartitionError, VerificationMismatch
from sidecar.reporting.advice import advised
from sidecar.reporting.progress import Watcher
from sidecar.snapshots.folding import fold
from sidecar.snapshots.jobs import Forgetting, Misplaced, PartitionJob, StateAt, Stopped
from sidecar.snapshots.planning import plan_full
from sidecar.snapshots.resolve_paths import PartitionLog, Targets


@dataclass(frozen=True, slots=True)
class Verdict:
    """`problem`: why the file is no snapshot, "" if it is one; then `comparison` says the rest. `entry_count`: its producers.

    `older_transactions`: producers with a transaction open that began below where the replay did, and its first offset; the state
    lacks them.
    """

    comparison: Comparison | None
    entry_count: int = 0
    problem: str = ""
    older_transactions: Mapping[int, int] = field(default_factory=dict)

    @property
    def is_wrong(self) -> bool:
        """Whether a broker that loads it does not know what the log says."""
        return self.comparison is None or self.comparison.conformance is Conformance.WRONG

    def describe(self) -> str:
        return self.problem if self.comparison is None else self.comparison.describe()


def judge(log: PartitionLog, state: StateAt, forgetting: Forgetting) -> Verdict:
    """Compare the snapshot at the state's offset with the state.

    A broker leaves out who is expired by its clock when it writes. That is not later than any loader's clock, so the
    snapshot's time is taken for it; where that was lost (an older one), the newest timestamp in the log is.

    Raises the errors of `PartitionLog.snapshot`.
    """
    data, stored_ms = log.snapshot(state.table.end_offset)
    try:
        theirs = ProducerTable.from_snapshot(state.table.end_offset, data)
    except CorruptSnapshot as error:
        return Verdict(None, problem=f"{error}; brokers skip such a file and load an older one")
    written_ms = max(state.log_time_ms, stored_ms) if forgetting.as_of_ms is None else forgetting.as_of_ms
    start_offset = 0 if state.start.has_snapshot else state.start.offset
    allowance = Allowance(
        now_ms=min(written_ms, forgetting.now_ms),
        expiration_ms=forgetting.producer_id_expiration_ms,
        exact=not state.cleaned,
        log_start_offset=start_offset,
        deleted_below=log.log_start_offset,
        first_offset=log.first_offset,
    )
    ours = state.table.unexpired(Expiration(0, None))
    comparison = compare_snapshots(theirs.entries(), ours.entries(), allowance)
    if comparison.conformance is Conformance.WRONG:  # It may lack what `heal` leaves out, too.
        comparison = compare_snapshots(theirs.entries(), log.without_decided(ours).entries(), allowance)
    older = lacking(state.table, theirs.open_transactions(start_offset), log.first_offset)
    return Verdict(comparison, len(theirs), "", older)


def lacking(table: ProducerTable, open_since: Mapping[int, int], log_start: int) -> dict[int, int]:
    """The transactions that a snapshot proves to have begun below the replay, that no marker has ended, and that a state lacks.

    It lacks none of which it has all that is left in the log: then no record of it is given out as committed.

    Args:
        open_since: producers, and the first offsets of their transactions.
    """
    found: dict[int, int] = {}
    for producer_id, first_offset in open_since.items():
        entry = table.get(producer_id)
        ours = None if entry is None else entry.current_txn_first_offset
        is_ended = ours is None and entry is not None and entry.coordinator_epoch >= 0
        is_known = ours is not None and (ours <= first_offset or first_offset < log_start)
        if not is_ended and not is_known:
            found[producer_id] = first_offset
    return found


class Result(StrEnum):
    """EQUAL, PERMISSIBLE and WRONG as in `Conformance`. CORRUPT: not a snapshot, or of an offset at which nothing ends.

    STRAY: wrong or corrupt, but a broker that starts deletes it unread. UNKNOWN: nothing below it remains to replay, or the replay
    did not get that far. MISSING: a segment base without any.
    """

    EQUAL = "equal"
    PERMISSIBLE = "permissible"
    WRONG = "wrong"
    CORRUPT = "corrupt"
    STRAY = "stray"
    UNKNOWN = "unknown"
    MISSING = "missing"


MISLEADING: Final = frozenset({Result.WRONG, Result.CORRUPT})
_DELETED: Final = "a broker deletes it unread when it starts"


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

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self.log.topic_partition),
            "directory": self.log.place,
            "snapshots": [asdict(snapshot) for snapshot in self.snapshots],
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All partitions ascending, and what could not be listed."""

    partitions: tuple[Checking, ...]
    problems: tuple[str, ...]

    @property
    def missing(self) -> int:
        return sum(found.result is Result.MISSING for each in self.partitions for found in each.snapshots)

    @property
    def exit_code(self) -> int:
        """4 if a snapshot is wrong, else 3 if one is missing or something could not be checked, else 0."""
        if any(found.result in MISLEADING for each in self.partitions for found in each.snapshots):
            return VerificationMismatch.exit_code
        if self.problems or self.missing or any(partition.problem for partition in self.partitions):
            return PartitionError.exit_code
        return 0


def check(
    targets: Targets[PartitionLog], engine: TaskEngine, forgetting: Forgetting, *, watcher: Watcher | None = None
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
            checking.problem = advised(error)
    for checking, event in fold(work, engine, watcher):
        match event:
            case StateAt() if event.table.end_offset in checking.log.snapshot_offsets:
                _compare(checking, event, forgetting)
            case Misplaced(offset, reason):
                what = f"no batch ends at the offset in its name: {reason}"
                checking.snapshots.append(CheckedSnapshot(offset, Result.CORRUPT, what))
            case Stopped(offset, reason):
                checking.problem = reason
                unread = [unread for unread in checking.log.snapshot_offsets if unread > offset]
                what = "the log cannot be replayed that far"
                checking.snapshots += [CheckedSnapshot(unread_offset, Result.UNKNOWN, what) for unread_offset in unread]
    for checking in checkings:
        checking.snapshots = sorted(_strays_named(checking), key=lambda snapshot: snapshot.offset)
    return CheckReport(tuple(checkings), targets.problems)


def _not_comparable(log: PartitionLog, first: int) -> list[CheckedSnapshot]:
    found = set(log.snapshot_offsets)
    at_start = "the log begins there: there is nothing below it to replay"
    below = [CheckedSnapshot(offset, Result.UNKNOWN, at_start) for offset in log.snapshot_offsets if offset <= first]
    # A broker that starts deletes what is not above its log's start.
    missing = [base for base in log.bases if base not in found and base > log.log_start_offset]
    return below + [CheckedSnapshot(offset, Result.MISSING) for offset in missing]


def _strays_named(checking: Checking) -> Iterator[CheckedSnapshot]:
    """The snapshots; none is wrong or corrupt that a broker deletes before it loads any."""
    log = checking.log
    for found in checking.snapshots:
        why = ""
        if found.result in MISLEADING and found.offset in log.strays:
            why = "it belongs to no segment"
        elif found.result in MISLEADING and found.offset <= log.log_start_offset:
            why = f"it is not above the log start {log.log_start_offset}"
        yield replace(found, result=Result.STRAY, what=f"{why}; {_DELETED} ({found.what})") if why else found


def _compare(checking: Checking, state: StateAt, forgetting: Forgetting) -> None:
    offset = state.table.end_offset
    try:
        verdict = judge(checking.log, state, forgetting)
    except OF_ONE_PARTITION as error:
        checking.snapshots.append(CheckedSnapshot(offset, Result.UNKNOWN, str(error)))
        checking.problem = checking.problem or advised(error)
        return
    result = Result.CORRUPT if verdict.comparison is None else Result(str(verdict.comparison.conformance))
    checking.snapshots.append(CheckedSnapshot(offset, result, verdict.describe(), verdict.entry_count))
