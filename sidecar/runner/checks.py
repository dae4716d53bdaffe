"""Checks of all partitions: each asks the broker, lists the log directories, and has every partition planned that has no task.

Tasks go on while checks come. A partition with a task gets a provisional plan, which only pins files.
"""

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from sidecar.commits.continuity import named_by_cluster
from sidecar.compactor.before_upload import BeforeUpload
from sidecar.compactor.candidate_queue import LedPartition
from sidecar.discovery.scan import Scan, ScanProblem, ScanResult
from sidecar.errors import CorruptFile, LineageUnknown, PartitionError, SegmentChanged, SidecarError
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.domain_events import (
    BrokerFactsRead,
    CycleEnded,
    DirectoryUnreadable,
    PartitionChecked,
    PartitionsChecked,
)
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.status import PartitionOutcome, PartitionStatus
from sidecar.ports import FactsState
from sidecar.runner.context import RunContext
from sidecar.runner.copy_tasks import CopyTasks, Work
from sidecar.runner.long_waits import LongWaits
from sidecar.runner.outcomes import Outcomes
from sidecar.runner.partition_archiver import PartitionArchiver
from sidecar.runner.partition_status import status_of_unreadable
from sidecar.runner.step_threads import Pool, Post, Run

LATE_S: Final = 10.0
"""A check ends without the plans that take longer: they follow when they are made."""

Seen: TypeAlias = tuple[PartitionFiles, PartitionFacts | SidecarError]


@dataclass(slots=True)
class CycleReport:
    """What one check found. `outcomes` ascend by partition; `problems` are what could not even be listed.

    `backed_off`: how partitions ended that failed not long ago, whether they were left alone this time or are tried again.
    `led`: partitions with an archive that this broker leads. `is_empty`: no partition was listed, nor is one left alone.
    `is_complete`: False where nothing could be checked. `scan_s`: how long it took.
    """

    outcomes: list[PartitionOutcome] = field(default_factory=list)
    problems: tuple[ScanProblem, ...] = ()
    backed_off: list[PartitionOutcome] = field(default_factory=list)
    led: list[LedPartition] = field(default_factory=list)
    is_empty: bool = False
    scan_s: float = 0.0
    is_complete: bool = True
    broker: FactsState = field(default_factory=lambda: FactsState(None))

    @property
    def found_nothing(self) -> bool:
        return self.is_complete and self.is_empty and not (self.broker.away or self.problems)

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


@dataclass(slots=True)
class Check:
    """A check that is not over.

    `awaited`: partitions whose plan is still being made; `planned`: those whose plan is made. `relisted`: those whose directory is
    listed again after their task, under what the leader said before this check. `cut_off`: those without a plan through no fault
    of their own, such as an outage of the store: what has rolled is pinned until it is over.
    """

    began_s: float
    relisted: set[PartitionArchiver]
    report: CycleReport = field(default_factory=CycleReport)
    present: Mapping[TopicPartition, PartitionFiles] = field(default_factory=dict)
    statuses: list[PartitionStatus] = field(default_factory=list)
    planned: set[PartitionArchiver] = field(default_factory=set)
    awaited: set[PartitionArchiver] = field(default_factory=set)
    cut_off: set[PartitionArchiver] = field(default_factory=set)
    is_listed: bool = False

    def plan_of(self, archiver: PartitionArchiver) -> PartitionPlan | None:
        """The plan that this check has of a partition, None where it has none, or its task has begun."""
        return archiver.plan if archiver in self.planned else None


class Checks:
    """Of the loop's thread. `report`: of the last check that ended, or why it could not be made. `work`: what it has planned.

    `only_plans`: a check waits for every plan, and begins no task.
    """

    def __init__(
        self,
        context: RunContext,
        run: Run,
        tasks: CopyTasks,
        outcomes: Outcomes,
        scan: Scan,
        before_upload: BeforeUpload | None,
        post: Post,
    ) -> None:
        self._context, self._run, self._tasks, self._outcomes = context, run, tasks, outcomes
        self.scan, self._before_upload, self._post = scan, before_upload, post
        self._archivers: dict[TopicPartition, PartitionArchiver] = {}
        self._present: Set[TopicPartition] = frozenset()
        self._check: Check | None = None
        self._late: set[PartitionArchiver] = set()
        self._waits = LongWaits(context.clock)
        self.report: CycleReport | SidecarError = CycleReport(is_complete=False)
        self.work: list[Work] = []
        self.only_plans = False

    def adopt(self, scan: Scan, before_upload: BeforeUpload) -> None:
        self.scan, self._before_upload = scan, before_upload
        for archiver in self._archivers.values():
            archiver.before_upload = before_upload

    @property
    def is_under_way(self) -> bool:
        return self._check is not None

    @property
    def archivers(self) -> list[PartitionArchiver]:
        return list(self._archivers.values())

    def led(self) -> list[LedPartition]:
        """Partitions as others may work on their archives; ascending."""
        led = (archiver.led for archiver in self._archivers.values())
        return sorted((found for found in led if found is not None), key=lambda found: found.topic_partition)

    def begin(self) -> None:
        check = self._check = Check(self._context.clock.monotonic_s(), set(self._tasks.returning))
        self._run(partial(self._look, self.scan, self._doubted()), partial(self._listed, check), Pool.CHECKS)

    def _doubted(self) -> frozenset[Path]:
        """Directories whose listing did not hold: another scan may believe it, where nothing has come or gone since."""
        failed = (backoff.outcome for backoff in self._outcomes.backoffs.values())
        changed = (outcome.files.directory for outcome in failed if isinstance(outcome.error, SegmentChanged))
        return frozenset(changed).union(a.files.directory for a in self._archivers.values() if a.pinned.is_outdated)

    def end_late(self) -> None:
        """Archives of which no store answers keep no other partition waiting, and nothing from being pinned."""
        check = self._check
        if check is not None and check.is_listed and not self.only_plans:
            is_late = self._context.clock.monotonic_s() - check.began_s >= LATE_S
            if is_late or self._context.is_store_silent():
                self._end(check)

    def drop(self) -> None:
        """The loop ends: what the check under way finds is for no reader."""
        self._check = None

    # Listing.

    def _look(self, scan: Scan, doubted: Collection[Path]) -> tuple[ScanResult, list[Seen]]:
        """A step: what lies in the directories, under what the broker said just before."""
        facts = self._context.facts
        try:
            facts.refresh()
        finally:
            # At once: listing may take its time, and there is none where this is the broker of another cluster.
            state = facts.state()
            self._context.emit(BrokerFactsRead(state.read_ms, bool(state.away), len(state.missing_rights)))
        found = scan(doubted)
        return found, [self._with_facts(named_by_cluster(facts, files)) for files in found.partitions]

    def _with_facts(self, files: PartitionFiles) -> Seen:
        try:
            return files, self._context.facts.partition(files)
        except PartitionError as error:
            return files, error

    def _listed(self, check: Check, result: tuple[ScanResult, list[Seen]] | None, error: SidecarError | None) -> None:
        if check is not self._check:
            return  # An error has ended it, and another one is under way: what it found is older.
        if result is None:
            self._check, self.report = None, error or self.report
            return
        found, seen = result
        for problem in found.problems:
            self._context.emit(DirectoryUnreadable(str(problem.path), problem.error))
        check.report.problems = found.problems
        check.present = {files.topic_partition: files for files, _ in seen}
        resting = self._left_alone(check, found)
        for files, facts in seen:
            tp = files.topic_partition
            if tp not in resting:
                if tp not in self._archivers:
                    self._archivers[tp] = PartitionArchiver(self._context, files, self._before_upload, self._post)
                self._see(check, self._archivers[tp], files, facts)
        check.is_listed = True
        self._end_if_whole(check)

    def _left_alone(self, check: Check, found: ScanResult) -> Mapping[TopicPartition, PartitionOutcome]:
        """Partitions that are not planned this time, and why; they are shown. Those that are gone are forgotten."""
        present, archivers = check.present, self._archivers
        failed = {problem.path: problem.error for problem in found.problems if problem.topic_partition is None}
        unreadable = {p.topic_partition: p.error for p in found.problems if p.topic_partition is not None}
        # A listing that failed does not say that they are gone.
        unlisted = {
            tp: PartitionOutcome(archiver.files, error=failed[archiver.files.log_dir])
            for tp, archiver in (archivers.items() if failed else ())
            if archiver.files.log_dir in failed and tp not in present and tp not in unreadable
        }
        self._present = present.keys() | unlisted.keys()
        check.report.is_empty = not self._present
        for tp, archiver in list(archivers.items()):
            if not (tp in self._present or tp in unreadable or archiver in self._tasks):
                archivers.pop(tp).pinned.vanished(archiver.files)
                check.awaited.discard(archiver)
                self._tasks.drop(archiver)
        resting = self._outcomes.resting(self._present)
        backoffs = self._outcomes.backoffs.items()
        check.report.backed_off = [b.outcome for tp, b in backoffs if tp in resting or tp not in unlisted]
        left_alone = {**resting, **unlisted}
        # What vanished while it was listed may be gone for good: the next check shows.
        check.statuses += [
            status_of_unreadable(tp, error)
            for tp, error in unreadable.items()
            if not (error.retryable or (tp in archivers and archivers[tp] in self._tasks))
        ]
        for tp, outcome in left_alone.items():
            archiver, is_listed = archivers[tp], tp in present
            files = present[tp] if is_listed else archiver.files
            if archiver not in self._tasks and archiver.skip(files, is_listed=is_listed):
                check.statuses.append(archiver.status(files, None, outcome))
                if is_listed and _is_outage(outcome.error, files):
                    check.cut_off.add(archiver)
        return left_alone

    # Planning.

    def _see(
        self, check: Check, archiver: PartitionArchiver, files: PartitionFiles, facts: PartitionFacts | SidecarError
    ) -> None:
        has_task, is_planned = archiver in self._tasks, archiver in self._tasks.plannings
        is_idle = not (has_task or is_planned)
        if archiver in check.relisted:
            # The leader was asked before that listing, and this one may be older: it settles no doubt, and shows nothing new.
            if is_idle and check.plan_of(archiver) is None:
                self._plan(check, archiver, lists=True)
        elif isinstance(facts, SidecarError):
            if not has_task:
                self._not_planned(check, archiver, files, facts)
            return
        elif is_idle and archiver.stays_idle(files, facts):
            check.planned.add(archiver)
        else:
            try:
                archiver.see(files, facts)
            except SidecarError as error:
                if is_idle:
                    self._not_planned(check, archiver, files, error)
                return
            if is_idle:
                self._plan(check, archiver)
        if is_planned:
            check.awaited.add(archiver)

    def _plan(self, check: Check, archiver: PartitionArchiver, *, lists: bool = False, returns: bool = False) -> None:
        check.awaited.add(archiver)
        self._tasks.plan(archiver, lists=lists, returns=returns)

    def plan_again(self, archiver: PartitionArchiver) -> None:
        """A partition has had a task, which got on. Not where it is not chosen any more."""
        if archiver.topic_partition not in self._present:
            return
        if self._check is None:
            self._tasks.plan(archiver, lists=True, returns=True)
        else:
            self._check.relisted.add(archiver)
            self._plan(self._check, archiver, lists=True, returns=True)

    def takes(self, archiver: PartitionArchiver, plan: PartitionPlan | SidecarError) -> bool:
        """Whether the check under way has waited for this plan."""
        check = self._check
        if check is None or archiver not in check.awaited:
            if archiver in self._late and isinstance(plan, PartitionPlan):
                # The check that ended without it has shown as waiting what is archived.
                self._context.emit(PartitionChecked(archiver.status(archiver.files, plan, None)))
                self._context.emit(archiver.backlog(archiver.files))
            self._late.discard(archiver)
            return False
        check.awaited.discard(archiver)
        if isinstance(plan, PartitionPlan):
            check.planned.add(archiver)
            self._tasks.replan(archiver, plan)
        else:
            self._not_planned(check, archiver, archiver.files, plan)
            if _is_outage(plan, archiver.files):
                check.cut_off.add(archiver)
        self._end_if_whole(check)
        return True

    def _not_planned(
        self, check: Check, archiver: PartitionArchiver, files: PartitionFiles, error: SidecarError
    ) -> None:
        self._tasks.ready.pop(archiver, None)
        end_offset = archiver.end_offset
        if end_offset is None and isinstance(error, LineageUnknown):
            end_offset = error.archived_end_offset
        waiting = len(archiver.pending(files))
        outcome = PartitionOutcome(files, end_offset=end_offset, waiting=waiting, error=error)
        check.report.outcomes.append(outcome)
        check.statuses.append(archiver.status(files, None, outcome))

    # The end.

    def _end_if_whole(self, check: Check) -> None:
        if check.is_listed and not check.awaited:
            self._end(check)

    def _end(self, check: Check) -> None:
        """All plans are made, or it is late: show them, and hand them on."""
        context, report = self._context, check.report
        work, pinned, ready = list[Work](), list[Work](), set[PartitionArchiver]()
        without_status = check.present.keys() - {status.topic_partition for status in check.statuses}
        for tp, archiver in self._archivers.items():
            planned = check.plan_of(archiver)
            is_busy = archiver in self._tasks or archiver in self._tasks.plannings
            # Else its task may have ended since the listing, without another plan.
            is_busy |= planned is None and tp in without_status
            is_cut_off = archiver in check.cut_off and not is_busy
            plan = archiver.provisional_plan() if is_busy or is_cut_off else planned
            if plan is None:
                continue
            pinned.append((archiver, plan))
            if not is_cut_off:  # Else its status has the error.
                work.append((archiver, plan))
                check.statuses.append(archiver.status(check.present.get(tp, plan.files), plan, None))
                ready |= set() if is_busy else {archiver}
        context.emit(PartitionsChecked(tuple(check.statuses), frozenset(self._archivers)))
        report.broker = context.facts.state()
        idle = [plan for archiver, plan in work if archiver.task_plan is None]
        self._waits.looked(idle, report.broker.away, self._archivers)
        for plan in idle:
            self._outcomes.due_in(plan.recheck_in_ms)
        report.scan_s = context.clock.monotonic_s() - check.began_s
        self._check, self._late, self.report = None, check.awaited, report
        self._outcomes.checked(len(report.problems))
        self.work = [item for item in work if item[0] in ready]
        if not self.only_plans:
            self.take_on(report, self.work, pinned)
            self.show(report)

    def take_on(self, report: CycleReport, work: list[Work], pinned: list[Work]) -> None:
        """Begin tasks of what a check has planned. `pinned`: with it, what of partitions with tasks is to be pinned."""
        self._tasks.hold(self.archivers, [(archiver, archiver.worth_pinning(plan)) for archiver, plan in pinned])
        for outcome in report.outcomes:
            self._outcomes.note(outcome)
        self._tasks.take_on(work)

    def show(self, report: CycleReport) -> None:
        """A check is over, or what came of it."""
        context, report.led = self._context, self.led()
        context.emit(CycleEnded(self._outcomes.stopped, context.journal.count(), context.is_store_silent()))


def _is_outage(error: SidecarError | None, files: PartitionFiles) -> bool:
    """Whether an error says nothing of the log, but of the store or the archive: its segments can be archived once that is over."""
    is_of_archive = isinstance(error, CorruptFile) and not error.file.startswith(str(files.log_dir))
    return is_of_archive or not isinstance(error, PartitionError | None)
