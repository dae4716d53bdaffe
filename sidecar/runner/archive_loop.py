"""The loop that archives: one thread owns all partitions, pools run their steps, and each step's result is one event.

A check lists the log directories after the broker was asked. It gives each partition a plan, pins what is planned, and admits
plans as copy tasks. Tasks go on while later checks come. Nothing here waits for the store, the broker or a large read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import structlog

from sidecar.commits.commit_log import CommitConflict
from sidecar.commits.continuity import named_by_cluster
from sidecar.compactor.before_upload import BeforeUpload
from sidecar.compactor.candidate_queue import LedPartition
from sidecar.discovery.scan import ScanResult
from sidecar.errors import PartitionError, SidecarError
from sidecar.model import ArchivedSegment, PartitionFiles, TopicPartition
from sidecar.partition.domain_events import (
    BrokerFactsRead,
    CycleEnded,
    CycleProgressed,
    DirectoryUnreadable,
    PartitionChecked,
    PartitionFailed,
    PartitionsChecked,
)
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.outcome import PartitionOutcome
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.status import PartitionStatus
from sidecar.partition.wait_reason import Wait, render
from sidecar.runner.context import RunContext
from sidecar.runner.copy_executor import CopyExecutor
from sidecar.runner.cycle_report import CycleReport
from sidecar.runner.last_listed import LastListed
from sidecar.runner.long_waits import LongWaits
from sidecar.runner.partition_archiver import PartitionArchiver, Planning
from sidecar.runner.partition_status import status_of_unreadable
from sidecar.runner.step_threads import Event, Pool, StepExecutor, StepThreads
from sidecar.scheduler.admission import NEVER, admission_order, within_queue

_log = structlog.get_logger(__name__)

TICK_S: Final = 0.5
"""So often a waiting loop sees whether it is to stop."""
LATE_S: Final = 10.0
"""A check ends without the plans that take longer: they follow when they are made."""
CONFLICTS_IN_A_ROW: Final = 20
"""Another writer may win so many commits before a partition backs off."""

Work: TypeAlias = tuple[PartitionArchiver, PartitionPlan]
Done: TypeAlias = Callable[[TopicPartition, ArchivedSegment], None]
Seen: TypeAlias = tuple[PartitionFiles, PartitionFacts | SidecarError]


@dataclass(frozen=True, slots=True)
class _Backoff:
    """A partition that failed: it is left alone until `until_s`, so that its fault does not cost every check."""

    until_s: float
    outcome: PartitionOutcome


@dataclass(frozen=True, slots=True)
class _Task:
    archiver: PartitionArchiver
    plan: PartitionPlan
    executor: CopyExecutor


@dataclass(slots=True)
class _Check:
    """A check that is not over. `awaited`: partitions whose plan is still being made."""

    began_s: float
    report: CycleReport = field(default_factory=CycleReport)
    present: Mapping[TopicPartition, PartitionFiles] = field(default_factory=dict)
    statuses: list[PartitionStatus] = field(default_factory=list)
    work: dict[TopicPartition, PartitionPlan] = field(default_factory=dict)
    awaited: set[TopicPartition] = field(default_factory=set)
    is_listed: bool = False


class ArchiveLoop:
    """Archives partition after partition; keeps what it learned of each. A context: its threads end with it."""

    def __init__(
        self,
        tools: RunContext,
        scan: Callable[[], ScanResult],
        before_upload: BeforeUpload | None = None,
        done: Done = lambda _partition, _segment: None,
        executor: Callable[[int], StepExecutor] = StepThreads,
    ) -> None:
        """Build it.

        Args:
            before_upload: holds segments back that are to be compacted first. Default: nothing is.
            done: called after each commit, for each of its segments.
            executor: begins what runs the steps, given `run.workers`.
        """
        self._tools = tools
        self._scan, self._before_upload = scan, before_upload
        self._archivers: dict[TopicPartition, PartitionArchiver] = {}
        self._present: frozenset[TopicPartition] = frozenset()
        self._backoffs: dict[TopicPartition, _Backoff] = {}
        self._tasks: dict[TopicPartition, _Task] = {}
        self._plannings: dict[TopicPartition, Planning] = {}
        self._returning: set[TopicPartition] = set()
        self._relisted: set[TopicPartition] = set()
        self._ready: dict[TopicPartition, Work] = {}
        self._conflicts: dict[TopicPartition, int] = {}
        self._outcomes: dict[TopicPartition, PartitionOutcome] = {}
        self._check: _Check | None = None
        self._checked: CycleReport | SidecarError = CycleReport(is_complete=False)
        self._admits, self._is_once = True, False
        self._done = done
        self._served = NEVER
        self._due_s = math.inf
        self._room = tools.policy.max_queue
        self._waits, self._last_listed = LongWaits(tools.clock), LastListed()
        self._new_executor = executor
        self._executor: StepExecutor | None = None

    def adopt(self, scan: Callable[[], ScanResult], before_upload: BeforeUpload) -> None:
        """From the next check on: look elsewhere, or hold back by other rules. What is known of archives stays."""
        self._scan, self._before_upload = scan, before_upload
        for archiver in self._archivers.values():
            archiver.before_upload = before_upload

    # Threads.

    def __enter__(self) -> Self:
        """Begin the threads."""
        self._executor = self._new_executor(self._tools.policy.workers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End them. Where the process ends, tasks commit what is uploaded, and begin nothing else."""
        executor, self._executor = self._executor, None
        if kind is not None and not issubclass(kind, SidecarError):
            self._tools.stop.set()
        for planning in self._plannings.values():
            planning.close()
        try:
            # Anything else may have left an event half handled: the journal keeps what is uploaded for the next start.
            if kind is None or issubclass(kind, SidecarError):
                self._executor = executor
                for task in list(self._tasks.values()):
                    task.executor.stop()
                self.drive(lambda: not self._tasks)
        finally:
            self._executor = None
            if executor is not None:
                executor.close()
            for task in self._tasks.values():
                task.executor.close()
            self._tasks, self._plannings, self._ready, self._check = {}, {}, {}, None
            self._returning.clear()
            if kind is not None or self._tools.stop.is_set():
                self._tools.held.release()

    def _run(
        self,
        pool: Pool,
        step: Callable[[], Any],
        then: Callable[[Any, SidecarError | None], None],
    ) -> Future[None]:
        if self._executor is None:
            raise RuntimeError("the loop has no threads: it is not open")
        return self._executor.submit(pool, partial(_event_of, step, then))

    def _run_of_task(
        self, step: Callable[[], Any], then: Callable[[Any, SidecarError | None], None], *, is_upload: bool = False
    ) -> Future[None]:
        return self._run(Pool.UPLOADS if is_upload else Pool.STEPS, step, then)

    def drive(self, until: Callable[[], bool], timeout_s: float = math.inf) -> None:
        """Take events until something holds, or for so long. Raises what a step raised that is no SidecarError."""
        end_s = self._tools.clock.monotonic_s() + timeout_s
        while not until():
            if self._executor is None:
                raise RuntimeError("the loop has no threads: it is not open")
            left_s = end_s - self._tools.clock.monotonic_s()
            event = self._executor.next_event(max(0.0, min(TICK_S, left_s)))
            if event is not None:
                event()
            elif left_s <= TICK_S:
                return
            if self._tools.stop.is_set():
                self._stop()
            self._end_late_check()

    def _end_late_check(self) -> None:
        """Archives of which no store answers keep no other partition waiting, and nothing from being pinned."""
        check = self._check
        if check is not None and check.is_listed:
            is_late = self._tools.clock.monotonic_s() - check.began_s >= LATE_S
            if is_late or self._tools.is_store_silent():
                self._end_check(check)

    def _stop(self) -> None:
        for archiver, plan in self._ready.values():
            self._note_outcome(archiver, archiver.not_reached(plan, Wait.DRAINING))
        self._ready = {}
        for task in list(self._tasks.values()):
            task.executor.stop()

    @property
    def is_busy(self) -> bool:
        """Whether a step is under way, or a plan waits for one."""
        return bool(self._tasks or self._plannings or self._ready or self._check)

    # Once, or for ever.

    def run_once(self, done: Done | None = None) -> CycleReport:
        """Check, plan, and archive until nothing is left to be done."""
        return self.work(*self.plan(), done)

    def plan(self) -> tuple[list[Work], CycleReport]:
        """Check and decide: what can be done, earliest local deletion first, and a report of the rest."""
        self._admits = False
        with ExitStack() as opened:
            if self._executor is None:
                opened.enter_context(self)
            report = self.cycle()
            self.drive(lambda: not self._plannings)
            return list(self._ready.values()), report

    def work(self, work: list[Work], report: CycleReport, done: Done | None = None) -> CycleReport:
        """Archive what was planned, and what is planned behind it. One partition's fault never stops another's work."""
        self._admits, self._is_once, self._done = True, True, done or self._done
        with ExitStack() as opened:
            if self._executor is None:
                opened.enter_context(self)
            self._hold(work)
            self._take_on(report, work)
            return self.finish()

    def cycle(self) -> CycleReport:
        """Check everything; tasks go on, and begin if they may. Raises what keeps the disks from being checked."""
        self.begin_check()
        self.drive(lambda: self._check is None)
        if isinstance(self._checked, SidecarError):
            raise self._checked
        return self._checked

    def due_in_s(self) -> float:
        """When the next check will have something to do, for all that is known now."""
        return max(0.0, self._due_s - self._tools.clock.monotonic_s())

    def finish(self) -> CycleReport:
        """Let all that is under way come to its end, without another check."""
        self.drive(lambda: not self.is_busy)
        if isinstance(self._checked, SidecarError):
            raise self._checked
        report = self._checked
        report.outcomes = sorted(self._outcomes.values(), key=lambda outcome: outcome.files.topic_partition)
        report.led = self._led()
        report.look_again_s = self.due_in_s()
        self._tools.emit(CycleEnded(self._stopped(report), self._tools.journal.count()))
        return report

    # Checks.

    def begin_check(self) -> None:
        """Ask the broker, and list the log directories; then plan."""
        check = self._check = _Check(self._tools.clock.monotonic_s())
        self._due_s, self._is_once = math.inf, False
        self._relisted = set(self._returning)
        self._run(Pool.CHECKS, partial(self._look, self._scan), partial(self._listed, check))

    def _look(self, scan: Callable[[], ScanResult]) -> tuple[ScanResult, list[Seen]]:
        """A step: what lies in the directories, under what the broker said just before."""
        facts = self._tools.facts
        try:
            facts.refresh()
        finally:
            # At once: listing may take its time, and there is none where this is the broker of another cluster.
            state = facts.state()
            self._tools.emit(BrokerFactsRead(state.read_ms, bool(state.away), len(state.missing_rights)))
        found = scan()
        return found, [self._with_facts(named_by_cluster(facts, files)) for files in found.partitions]

    def _with_facts(self, files: PartitionFiles) -> Seen:
        try:
            return files, self._tools.facts.partition(files)
        except PartitionError as error:
            return files, error

    def _listed(self, check: _Check, result: tuple[ScanResult, list[Seen]] | None, error: SidecarError | None) -> None:
        if check is not self._check:
            return  # An error has ended it, and another one is under way: what it found is older.
        if result is None:
            self._check, self._checked = None, error or self._checked
            return
        found, seen = result
        for problem in found.problems:
            self._tools.emit(DirectoryUnreadable(str(problem.path), problem.error))
        check.report.problems = found.problems
        check.present = {files.topic_partition: files for files, _ in seen}
        self._forget_absent(check, found)
        now_s = self._tools.clock.monotonic_s()
        for files, facts in seen:
            tp = files.topic_partition
            if tp in self._backoffs and self._backoffs[tp].until_s > now_s:
                continue
            archiver = self._archivers.get(tp)
            if archiver is None:
                archiver = self._archivers[tp] = PartitionArchiver(self._tools, files, self._before_upload)
            self._see(check, archiver, files, facts)
        check.is_listed = True
        self._end_if_whole(check)

    def _forget_absent(self, check: _Check, found: ScanResult) -> None:
        """Partitions that are gone; and those that are left alone this time are shown as they were."""
        present, report = check.present, check.report
        left_alone = self._last_listed.left_alone(found, dict(present))
        here = {**present, **{tp: outcome.files for tp, outcome in left_alone.items()}}
        unreadable = {p.topic_partition: p.error for p in found.problems if p.topic_partition is not None}
        self._present, report.is_empty = frozenset(here), not here
        known = here.keys() | unreadable.keys() | self._tasks.keys()
        self._archivers = {tp: archiver for tp, archiver in self._archivers.items() if tp in known}
        self._plannings = {tp: planning for tp, planning in self._plannings.items() if tp in known}
        self._returning &= known
        self._ready = {tp: item for tp, item in self._ready.items() if tp in known}
        check.awaited &= self._plannings.keys()
        self._backoffs = {tp: backoff for tp, backoff in self._backoffs.items() if tp in here}
        # What vanished while it was listed may be gone for good: the next check shows.
        check.statuses += [
            status_of_unreadable(tp, error)
            for tp, error in unreadable.items()
            if not error.retryable and tp not in self._tasks
        ]
        now_s = self._tools.clock.monotonic_s()
        for tp, backoff in self._backoffs.items():
            if backoff.until_s > now_s:
                report.resting.append(backoff.outcome)
                self._due_s = min(self._due_s, backoff.until_s)
            elif tp not in left_alone:
                report.retried.append(backoff.outcome)
        resting = {outcome.files.topic_partition: outcome for outcome in report.resting} | left_alone
        for tp, outcome in resting.items():
            archiver = self._archivers[tp]
            if tp not in self._tasks and archiver.rests(here[tp], is_listed=tp in present):
                check.statuses.append(archiver.status(here[tp], None, outcome))

    def _see(
        self, check: _Check, archiver: PartitionArchiver, files: PartitionFiles, facts: PartitionFacts | SidecarError
    ) -> None:
        tp = files.topic_partition
        is_idle = tp not in self._tasks and tp not in self._plannings
        if tp in self._relisted:
            # The leader was asked before that listing, and this one may be older: it settles no doubt, and shows nothing new.
            if is_idle and tp not in check.work:
                self._plan(archiver, lists=True)
            elif tp in self._plannings:
                check.awaited.add(tp)
            return
        if not isinstance(facts, PartitionFacts):
            if tp not in self._tasks:
                self._not_planned(check, archiver, files, facts)
            return
        plan = archiver.standing_plan(files, facts) if is_idle else None
        if plan is not None:
            check.work[tp] = plan
            return
        try:
            archiver.see(files, facts)
        except SidecarError as error:
            if is_idle:
                self._not_planned(check, archiver, files, error)
            return
        if is_idle:
            self._plan(archiver)
        elif tp in self._plannings:
            check.awaited.add(tp)

    def _plan(self, archiver: PartitionArchiver, *, lists: bool = False) -> None:
        tp = archiver.topic_partition
        if lists:
            self._relisted.add(tp)
        if self._check is not None:
            self._check.awaited.add(tp)
        self._plannings[tp] = archiver.planning(lists=lists)
        self._go_on_planning(archiver, None, None)

    def _go_on_planning(self, archiver: PartitionArchiver, result: Any, error: SidecarError | None) -> None:
        tp = archiver.topic_partition
        planning = self._plannings.get(tp)
        if planning is None or self._archivers.get(tp) is not archiver:
            return  # Its directory is gone.
        try:
            step = planning.send(result) if error is None else planning.throw(error)
        except StopIteration as ended:
            del self._plannings[tp]
            self._planned(archiver, ended.value)
        except SidecarError as failed:
            del self._plannings[tp]
            self._planned(archiver, failed)
        else:
            # It has a worker's place, and must not wait behind thousands of archives that are opened at a start.
            pool = Pool.STEPS if tp in self._returning else Pool.PLANS
            self._run(pool, step, partial(self._go_on_planning, archiver))

    def _planned(self, archiver: PartitionArchiver, plan: PartitionPlan | SidecarError) -> None:
        tp, check = archiver.topic_partition, self._check
        if check is not None and tp in check.awaited:
            if isinstance(plan, PartitionPlan):
                check.work[tp] = plan
                if tp in self._ready:
                    # It may still begin before the check ends, but by this plan.
                    (admitted,) = within_queue([plan], len(self._ready[tp][1].segments))
                    self._ready[tp] = archiver, admitted
            else:
                self._not_planned(check, archiver, archiver.files, plan)
            check.awaited.discard(tp)
            self._end_if_whole(check)
        elif isinstance(plan, PartitionPlan):
            self._note_due(plan.look_again_ms)
            (admitted,) = within_queue([plan], self._room)
            self._room -= len(admitted.segments)
            if plan.segments and not admitted.segments:
                self._note_outcome(archiver, archiver.not_reached(plan, Wait.NOT_ADMITTED))
                self._due_s = self._tools.clock.monotonic_s()
            else:
                self._queue([(archiver, admitted)])
        elif self._admits or isinstance(self._checked, SidecarError):
            self._note_outcome(archiver, PartitionOutcome(archiver.files, error=plan))
        else:
            # Not noted: `work` does that, if it comes to that.
            self._checked.outcomes.append(PartitionOutcome(archiver.files, error=plan))
        self._returning.discard(tp)
        self._admit()

    def _end_if_whole(self, check: _Check) -> None:
        if check.is_listed and not check.awaited:
            self._end_check(check)

    def _not_planned(
        self, check: _Check, archiver: PartitionArchiver, files: PartitionFiles, error: SidecarError
    ) -> None:
        self._ready.pop(archiver.topic_partition, None)
        outcome = PartitionOutcome(files, error=error)
        check.report.outcomes.append(outcome)
        check.statuses.append(archiver.status(files, None, outcome))

    def _end_check(self, check: _Check) -> None:
        """All plans are made: show, pin and queue them."""
        tools, report = self._tools, check.report
        work: list[Work] = []
        under_way = {archiver for tp, archiver in self._archivers.items() if tp in self._tasks or tp in self._plannings}
        for tp, archiver in self._archivers.items():
            plan = archiver.provisional_plan() if archiver in under_way else check.work.get(tp)
            if plan is not None:
                check.statuses.append(archiver.status(check.present.get(tp, plan.files), plan, None))
                work.append((archiver, plan))
        tools.emit(PartitionsChecked(tuple(check.statuses), frozenset(self._archivers)))
        state = tools.facts.state()
        report.broker_away, report.missing_rights = state.away, state.missing_rights
        idle = [plan for archiver, plan in work if archiver.task_plan is None]
        self._waits.looked(idle, state.away, self._archivers)
        for plan in idle:
            self._note_due(plan.look_again_ms)
        work.sort(key=self._order)
        admitted = within_queue([plan for _, plan in work], tools.policy.max_queue)
        work = [(archiver, plan) for (archiver, _), plan in zip(work, admitted, strict=True)]
        self._room = tools.policy.max_queue - sum(len(plan.segments) for _, plan in work)
        report.scan_s = tools.clock.monotonic_s() - check.began_s
        self._check, self._checked, self._outcomes = None, report, {}
        ready = [item for item in work if item[0].topic_partition in check.work and item[0] not in under_way]
        self._ready = {item[0].topic_partition: item for item in ready}
        if self._admits:
            self._hold(work)
            self._take_on(report, ready)
            report.led = self._led()
            report.look_again_s = self.due_in_s()
            tools.emit(CycleEnded(self._stopped(report), tools.journal.count(), tools.is_store_silent()))

    def _take_on(self, report: CycleReport, work: list[Work]) -> None:
        for outcome in report.outcomes:
            self._note_outcome(self._archivers[outcome.files.topic_partition], outcome)
        self._ready = {}
        self._queue(work)
        self._admit()

    def _note_due(self, look_again_ms: int | None) -> None:
        if look_again_ms:
            self._due_s = min(self._due_s, self._tools.clock.monotonic_s() + look_again_ms / 1000)

    def _led(self) -> list[LedPartition]:
        led = (archiver.led for archiver in self._archivers.values())
        return sorted((found for found in led if found is not None), key=lambda found: found.topic_partition)

    # Pins.

    def _hold(self, work: list[Work]) -> None:
        """Pin what is planned: what has no file any more, then the most urgent, then what earlier checks have left."""
        for archiver, plan in work:
            if archiver.task_plan is None:
                archiver.held.expect(plan, archiver.tail.expected(plan))
        left = [
            (task.archiver, rest) for task in self._tasks.values() if (rest := task.archiver.task_left()) is not None
        ]
        work = [*left, *work]
        archivers = self._archivers.values()
        gone = chain.from_iterable(archiver.held.gone_logs for archiver in archivers)
        tails = (archiver.held.tail for archiver in archivers)
        expected = ((deadline_ms, log) for deadline_ms, log in filter(None, tails))
        busy = ((_deadline_ms(t.plan), log) for t in self._tasks.values() for log in t.archiver.held.logs)
        planned = ((_deadline_ms(plan), segment.log) for _, plan in work for segment in plan.segments)
        urgent = (log for _, log in sorted(chain(busy, planned, expected), key=itemgetter(0)))
        before = chain.from_iterable(archiver.held.logs for archiver in archivers)
        self._tools.held.keep(chain(gone, urgent, before))
        for archiver, plan in work:
            archiver.held.planned(plan)

    # Tasks.

    def _queue(self, work: list[Work]) -> None:
        """Have plans become tasks, except those that had nothing to do the last time either."""
        unfinished = self._tools.journal.roots() if work else frozenset()
        for archiver, plan in work:
            outcome = archiver.idle_outcome(plan, unfinished)
            if outcome is None:
                self._ready[archiver.topic_partition] = archiver, plan
            else:
                self._outcomes[archiver.topic_partition] = _merged(
                    self._outcomes.get(archiver.topic_partition), outcome
                )
                self._backoffs.pop(archiver.topic_partition, None)
        self._ready = dict(sorted(self._ready.items(), key=lambda row: self._order(row[1])))

    def _order(self, item: Work) -> tuple[int, tuple[int, int, str, int]]:
        archiver, plan = item
        return admission_order(plan, archiver.last_served, self._tools.clock.now_ms())

    def _admit(self) -> None:
        # A partition that is planned again right after its task keeps its place: it may be the one that retention takes next.
        while self._admits and len(self._tasks) + len(self._returning) < self._tools.policy.workers:
            # What is planned again just now has a step under way, to which its archive belongs.
            tp = next((tp for tp in self._ready if tp not in self._plannings), None)
            if tp is None:
                return
            self._begin(*self._ready.pop(tp))

    def _begin(self, archiver: PartitionArchiver, plan: PartitionPlan) -> None:
        tp = archiver.topic_partition
        if self._check is not None:
            self._check.work.pop(tp, None)  # What was planned of it is of the archive before this task.
        if not plan.segments and not (plan.facts.leads and archiver.known.state is not None):
            # What an earlier leadership left behind is for the broker that leads now, or for our next task.
            outcome = PartitionOutcome(plan.files, waiting=len(plan.waiting), reason=plan.reason, error=plan.error)
            archiver.task_begins(plan, self._served)
            archiver.task_ended(plan, outcome, None)
            self._note_outcome(archiver, outcome)
            return
        self._served += 1
        archiver.task_begins(plan, self._served)
        executor = CopyExecutor(
            self._tools,
            archiver,
            plan,
            run=self._run_of_task,
            committed=partial(self._committed, archiver, plan),
            ended=partial(self._task_ended, archiver),
        )
        self._tasks[tp] = _Task(archiver, plan, executor)
        executor.begin(self._tools.clock.monotonic_s() + self._tools.policy.task_s)

    def _committed(self, archiver: PartitionArchiver, plan: PartitionPlan, segment: ArchivedSegment) -> None:
        self._tools.emit(archiver.backlog(archiver.files))
        self._tools.emit(CycleProgressed(self._stopped(), archived=True))
        self._done(plan.files.topic_partition, segment)

    def _task_ended(self, archiver: PartitionArchiver) -> None:
        task = self._tasks.pop(archiver.topic_partition)
        outcome, plan = task.executor.outcome, task.plan
        archiver.task_ended(plan, outcome, task.executor.blocker)
        tp, is_stopping = archiver.topic_partition, self._tools.stop.is_set()
        conflicts = self._conflicts.pop(tp, 0) + 1 if isinstance(outcome.error, CommitConflict) else 0
        if 0 < conflicts <= CONFLICTS_IN_A_ROW and not is_stopping:
            self._outcomes[tp] = _merged(self._outcomes.get(tp), replace(outcome, error=None))
            self._conflicts[tp] = conflicts
            self._plan_again(archiver)
        else:
            if plan.segments or plan.hole or outcome.error is not None:
                self._tools.emit(PartitionChecked(archiver.status(outcome.files, plan, outcome)))
            self._note_outcome(archiver, outcome)
            # Only where it gets on: what was planned in vain would be planned in vain again. Nor what is not chosen any more; nor,
            # by `work`, what rolled since: that might never end.
            gets_on = outcome.archived and outcome.error is None and (not self._is_once or outcome.look_again_ms == 0)
            if gets_on and not is_stopping and tp in self._present:
                self._plan_again(archiver)
        self._admit()

    def _plan_again(self, archiver: PartitionArchiver) -> None:
        self._returning.add(archiver.topic_partition)
        self._plan(archiver, lists=True)

    def _note_outcome(self, archiver: PartitionArchiver, outcome: PartitionOutcome) -> None:
        tp = archiver.topic_partition
        self._outcomes[tp] = merged = _merged(self._outcomes.get(tp), outcome)
        self._note_due(outcome.look_again_ms)
        self._backoffs.pop(tp, None)
        if outcome.error is not None:
            until_s = self._tools.clock.monotonic_s() + self._tools.policy.retry_wait_s
            self._backoffs[tp], self._due_s = _Backoff(until_s, merged), min(self._due_s, until_s)
            self._tools.emit(PartitionFailed(tp, outcome.error))
        elif outcome.reason is not None:
            _log.debug("partition_waits", partition=str(tp), reason=render(outcome.reason))
        self._tools.emit(CycleProgressed(self._stopped()))

    def _stopped(self, report: CycleReport | None = None) -> int:
        """Partitions and directories that need a person or another try, for all that is known so far."""
        report = report or (self._checked if isinstance(self._checked, CycleReport) else CycleReport())
        return len(report.problems) + len(self._backoffs)


def _merged(before: PartitionOutcome | None, outcome: PartitionOutcome) -> PartitionOutcome:
    """The outcome of several tasks of a partition, one after the other."""
    if before is None or before.error is not None:
        return outcome
    return replace(
        outcome,
        archived=[*before.archived, *outcome.archived],
        conformance=before.conformance + outcome.conformance,
    )


def _deadline_ms(plan: PartitionPlan) -> float:
    return math.inf if plan.deadline_ms is None else plan.deadline_ms


def _event_of(step: Callable[[], Any], then: Callable[[Any, SidecarError | None], None]) -> Event:
    """Run a step, and have the loop's thread hear of its result. What is no SidecarError is raised there."""
    try:
        result = step()
    except SidecarError as error:
        return partial(then, None, error)
    except BaseException as error:  # noqa: BLE001 - the loop's thread raises it
        return partial(_raise, error)
    return partial(then, result, None)


def _raise(error: BaseException) -> None:
    raise error
