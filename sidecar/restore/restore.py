"""The whole of a restore: plan, fetch in parallel, finish each partition, and only then give the directories their names."""

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event

from sidecar.archive.state import PartitionState
from sidecar.clock import Clock
from sidecar.errors import OF_ONE_PARTITION, PartitionError, StagingFull
from sidecar.host.log_dir_lock import LogDirLock
from sidecar.host.placing import sync_directory
from sidecar.logformat.files import is_there
from sidecar.logformat.names import LOCK
from sidecar.ports import ObjectStore
from sidecar.reporting.advice import advised
from sidecar.reporting.progress import Progress, ProgressCounter
from sidecar.restore.decisions import decide, decided_before, seal_of
from sidecar.restore.finishing import enter_into_checkpoints, finish_partition, require_readable
from sidecar.restore.lineage_selection import READERS, read_histories
from sidecar.restore.outcome import PartitionOutcome, Unreadable, foretold
from sidecar.restore.plan import SegmentPlan
from sidecar.restore.prechecks import (
    empty_before_ms,
    narrow_gap,
    open_at_end,
    plan_in_time,
    refuse_open_transactions,
    refuse_time_before_all,
)
from sidecar.restore.request import RestoreRequest
from sidecar.restore.segments import PartitionRestore, fetch_segment
from sidecar.restore.staging import StagedPartition, forget, translating, unfinished, what_stays
from sidecar.restore.target import CommandNote, Target, place_of, read_target, within
from sidecar.topic_policy import TopicPolicy

WORKERS = 4
"""Number of segments fetched in parallel. Each has a chunk and a window of its log in memory, and its small parts."""


class Run:
    """The three steps, in this order, under the log dir's lock."""

    def __init__(
        self,
        store: ObjectStore,
        request: RestoreRequest,
        outcomes: Sequence[PartitionOutcome],
        workers: int,
        progress: Callable[[Progress], None],
    ) -> None:
        self._request = request
        self._note = CommandNote(request.log_dir, request.topic)
        self._workers = workers
        self._progress = progress
        self._counter = ProgressCounter(None, 0, 0)
        self._stop = Event()
        self._jobs = [
            (
                outcome,
                PartitionRestore(
                    store,
                    outcome.plan,
                    outcome.decisions,
                    StagedPartition(request.log_dir, outcome.plan.topic_partition),
                    self._stop,
                    lambda size_bytes: self._counter.moved(size_bytes),
                ),
            )
            for outcome in outcomes
            if not outcome.is_done
        ]

    def fetch(self) -> None:
        """Fetch every segment that an earlier run has not. Raises StagingFull, StoreError."""
        # All of them before the first byte: a broker that is started too early refuses to, whichever was finished.
        missing = [(*job, plan) for job in self._jobs for plan in self._begun(*job)]
        missing_bytes = sum(plan.size_bytes for *_, plan in missing)
        self._counter = ProgressCounter(self._progress, len(missing), missing_bytes)
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="restore")
        try:
            waiting = [pool.submit(self._fetch_one, *found) for found in missing]
            for future in wait(waiting, return_when=FIRST_EXCEPTION).done:
                future.result()
        finally:
            self._stop.set()
            pool.shutdown(cancel_futures=True)

    def _begun(self, outcome: PartitionOutcome, work: PartitionRestore) -> list[SegmentPlan]:
        """Make the partition's directory, or go on in it; the segments that are missing there."""
        if outcome.problem:
            work.staged.hold()
            return []
        try:
            missing = work.begin()
        except PartitionError as error:
            outcome.problem = advised(error)
            return []
        outcome.segments_resumed = len(work.restored)
        return missing

    def _fetch_one(self, outcome: PartitionOutcome, work: PartitionRestore, plan: SegmentPlan) -> None:
        if self._stop.is_set() or outcome.problem:
            return
        try:
            fetch_segment(work, plan)
        except OF_ONE_PARTITION as error:
            outcome.problem = outcome.problem or advised(error)
            return
        self._counter.done(0, f"{work.plan.topic_partition} {plan.segment.base_offset}")

    def finish(self) -> None:
        """Write what each partition needs besides its segments. Raises StagingFull, StoreError."""
        for outcome, work in self._jobs:
            if outcome.problem:
                continue
            try:
                outcome.log = finish_partition(work, self._request.open_transactions)
            except OF_ONE_PARTITION as error:
                outcome.problem = advised(error)

    def swap_in(self) -> None:
        """Checkpoints first: an entry for a log that is not there yet does no harm, a log without its entry would."""
        whole = [(outcome, work) for outcome, work in self._jobs if outcome.log is not None]
        logs = {outcome.plan.topic_partition: outcome.log for outcome, _ in whole if outcome.log is not None}
        if logs:
            enter_into_checkpoints(self._request.log_dir, logs)
            self._note.add(
                {
                    work.plan.topic_partition: (
                        work.staged.directory_id,
                        seal_of(work.decisions, self._request, work.plan, work.staged.files()),
                    )
                    for _, work in whole
                }
            )
        for outcome, work in whole:
            try:
                work.staged.swap_in()
            except PartitionError as error:
                outcome.log, outcome.problem = None, advised(error)
        for directory in self._note.finished():
            forget(directory)


@dataclass(slots=True)
class RestoreReport:
    """Partitions in ascending order. `free_bytes`: on the target's disk before the start.

    `unreadable`: no plan could be made. `not_archived`: the topic has them, or had, and the archive holds nothing. `unfinished`:
    staging directories of the topic that other runs left, and this one was not asked to go on with. `policy`: the topic's in the
    target's cluster; nothing is known of it if it was not queried. `no_room`: why the disk is too small, "" if it is not.
    """

    log_dir: Path
    free_bytes: int
    outcomes: list[PartitionOutcome] = field(default_factory=list)
    unreadable: tuple[Unreadable, ...] = ()
    not_archived: list[int] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    policy: TopicPolicy = field(default_factory=TopicPolicy)
    no_room: str = ""

    @property
    def exit_code(self) -> int:
        """0, or 3 if a partition was not restored, or there is no room."""
        if self.no_room:
            return StagingFull.exit_code
        stopped = self.unreadable or self.not_archived or any(outcome.problem for outcome in self.outcomes)
        return PartitionError.exit_code if stopped else 0


def plan_restore(store: ObjectStore, clock: Clock, request: RestoreRequest) -> RestoreReport:
    """What a restore would do, without a change anywhere. Raises as `restore` does before it fetches, but not for `no_room`."""
    read_target(request.log_dir, request.topic)
    if not request.log_dir.exists():
        return _planned(store, clock, request)
    with LogDirLock(request.log_dir, read_only=True, after_crash_too=True):
        return _planned(store, clock, request)


def restore(
    store: ObjectStore,
    clock: Clock,
    request: RestoreRequest,
    *,
    workers: int = WORKERS,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> RestoreReport:
    """Restore, or go on with a restore that was interrupted.

    A partition whose objects or commits are damaged is left unfinished and reported; the others are restored.

    Raises:
        LogDirRefused: a broker uses the directory, or something exists at the place of a partition.
        CorruptFile, PartitionError: a needed file of the log dir cannot be read; checked before the first byte, too.
        SettingsError, LineageUnknown: what may not be guessed was not said.
        StagingFull: no space; checked before anything is made, too.
        StoreError: the store failed.

    Whatever ends a restore that has begun has a note that names the unfinished directories, and what to do. What is complete in
    them stays.
    """
    # First, because a lock file is made only in what can be a log dir.
    read_target(request.log_dir, request.topic)
    if not is_there(request.log_dir / LOCK):  # Where there is no room, neither is made.
        _require_room(_planned(store, clock, request))
    if not request.log_dir.exists():
        with translating(request.log_dir):
            request.log_dir.mkdir(exist_ok=True)  # Two that begin at once: the lock decides.
        sync_directory(request.log_dir.parent)
    with LogDirLock(request.log_dir, after_crash_too=True) as lock, ExitStack() as failing:
        report = _planned(store, clock, request)
        failing.push(partial(_note_what_stays, request))
        _require_room(report)
        for found in report.unreadable:
            StagedPartition(request.log_dir, found.topic_partition).hold()
        run = Run(store, request, report.outcomes, workers, progress)
        run.fetch()
        run.finish()
        lock.require_held()
        run.swap_in()
    _foretell(report, clock)  # The records have grown older by the hours that it may have taken.
    return report


def _note_what_stays(request: RestoreRequest, _kind: object, error: BaseException | None, _trace: object) -> None:
    with suppress(PartitionError):  # The disk itself may have failed, which `error` says.
        if error is not None and (names := unfinished(request.log_dir, request.topic)):
            error.add_note(what_stays(request.log_dir, names))


def _planned(store: ObjectStore, clock: Clock, request: RestoreRequest) -> RestoreReport:
    target = within(read_target(request.log_dir, request.topic), request.cluster)
    histories = read_histories(store, clock, request)
    with ThreadPoolExecutor(READERS, thread_name_prefix="restore-check") as pool:
        checked = list(pool.map(partial(_checked, store, target, request), histories.states))
    outcomes = [outcome for outcome, _ in checked]
    refuse_time_before_all(request, outcomes)
    refuse_open_transactions({outcome.plan.topic_partition: count for outcome, count in checked})
    if not all(outcome.is_done for outcome in outcomes):
        require_readable(request.log_dir)  # They get their entries last, after hours maybe.
    disk = request.log_dir if request.log_dir.exists() else request.log_dir.parent
    own = {outcome.plan.topic_partition for outcome in outcomes} | {
        found.topic_partition for found in histories.unreadable
    }
    report = RestoreReport(
        log_dir=request.log_dir,
        free_bytes=shutil.disk_usage(disk).free,
        outcomes=outcomes,
        unreadable=histories.unreadable,
        not_archived=[]
        if request.partitions
        else histories.not_archived({*target.partitions, *(request.cluster.leader_epochs if request.cluster else ())}),
        unfinished=[name for name, found in unfinished(request.log_dir, request.topic).items() if found not in own],
        policy=request.cluster.policy if request.cluster else TopicPolicy(),
    )
    _foretell(report, clock)
    report.no_room = _no_room(store, request, report)
    return report


def _no_room(store: ObjectStore, request: RestoreRequest, report: RestoreReport) -> str:
    needed_bytes = 0
    for outcome in report.outcomes:
        if outcome.is_done or outcome.problem:
            continue
        staged = StagedPartition(request.log_dir, outcome.plan.topic_partition)
        # The run reports it of that partition alone.
        with suppress(PartitionError):
            needed_bytes += PartitionRestore(store, outcome.plan, outcome.decisions, staged).needed_bytes()
    if needed_bytes <= report.free_bytes:
        return ""
    return (
        f"{request.log_dir}: the restore needs {needed_bytes} bytes, {report.free_bytes} are free on the disk. Nothing was "
        "fetched. Free space and run the same command again, or restore fewer partitions (--partition N)"
    )


def _require_room(report: RestoreReport) -> None:
    if report.no_room:
        raise StagingFull(report.no_room)


def _checked(
    store: ObjectStore, target: Target, request: RestoreRequest, state: PartitionState
) -> tuple[PartitionOutcome, int]:
    """What is to become of a partition, by its plan and what is known before anything is fetched; and see `open_at_end`."""
    plan = plan_in_time(store, request, state)
    place = place_of(target, plan.topic_partition, request.other_log_dirs)
    empty_ms = empty_before_ms(store, request, plan)
    if place.seal is not None:
        plan, decisions = decided_before(plan, target, place.seal, request)
        return PartitionOutcome(plan, decisions, is_done=True, empty_before_ms=empty_ms), 0
    outcome = PartitionOutcome(plan, decide(plan, target, place, request), empty_before_ms=empty_ms)
    outcome.problem = narrow_gap(store, plan)
    return outcome, open_at_end(store, request, outcome)


def _foretell(report: RestoreReport, clock: Clock) -> None:
    for outcome in report.outcomes:
        outcome.retention = foretold(outcome.plan, report.policy, clock.now_ms())
