"""Makes plans of partitions that have no copy task, begins tasks of those that were admitted, and decides what follows each."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, Final, TypeAlias

from sidecar.commits.commit_log import CommitConflict
from sidecar.errors import SidecarError
from sidecar.event_log import EVENTS
from sidecar.model import ArchivedSegment, FileIdentity, TopicPartition
from sidecar.partition.domain_events import CycleProgressed, PartitionChecked, PinsChecked
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.status import PartitionOutcome
from sidecar.partition.wait_reason import Wait
from sidecar.runner.context import RunContext
from sidecar.runner.copy_executor import CopyExecutor
from sidecar.runner.outcomes import Outcomes
from sidecar.runner.partition_archiver import PartitionArchiver, Planning
from sidecar.runner.step_threads import Pool, Run
from sidecar.scheduler.admission import NEVER, admission_order, pin_order, within_queue

CONFLICTS_IN_A_ROW: Final = 20
"""Another writer may win so many commits before a partition backs off."""
PARTITIONS_LOGGED_MAX: Final = 10

Work: TypeAlias = tuple[PartitionArchiver, PartitionPlan]
Done: TypeAlias = Callable[[TopicPartition, ArchivedSegment], None]


class CopyTasks:
    """Of the loop's thread. A partition has one task or one planning at a time, never both: a step of each is under way.

    `executors`: of the tasks under way. `plannings`: plans that are being made. `returning`: partitions that are planned again
    right after their task: each keeps a worker's place. `ready`: plans that wait for a worker, the most urgent first.
    `is_stopping`: no task begins. `is_once`: what rolls while a task goes on is left to another run: this one might never end.
    `done`: called after each commit, for each of its segments.
    """

    def __init__(
        self,
        context: RunContext,
        run: Run,
        outcomes: Outcomes,
        planned: Callable[[PartitionArchiver, PartitionPlan | SidecarError], None],
        again: Callable[[PartitionArchiver], None],
        done: Done,
    ) -> None:
        """Args: planned: takes each plan, or why there is none. again: has a partition planned again whose task got on."""
        self._context, self._run, self._outcomes = context, run, outcomes
        self._planned, self._again, self.done = planned, again, done
        self.plannings: dict[PartitionArchiver, Planning] = {}
        self.returning: set[PartitionArchiver] = set()
        self.executors: dict[PartitionArchiver, CopyExecutor] = {}
        self.ready: dict[PartitionArchiver, PartitionPlan] = {}
        self.is_stopping = self.is_once = self._is_short_of_pins = False
        self._served = NEVER
        self._room = context.policy.max_queue

    def __contains__(self, archiver: PartitionArchiver) -> bool:
        return archiver in self.executors

    def __len__(self) -> int:
        return len(self.executors)

    # Planning.

    def plan(self, archiver: PartitionArchiver, *, lists: bool = False, returns: bool = False) -> None:
        """Have a plan made. Args: lists: see `PartitionArchiver.planning`. returns: it has had a task just now."""
        if returns:
            self.returning.add(archiver)
        self.plannings[archiver] = archiver.planning(lists=lists)
        self._go_on(archiver, None, None)

    def _go_on(self, archiver: PartitionArchiver, result: Any, error: SidecarError | None) -> None:
        planning = self.plannings.get(archiver)
        if planning is None:
            return
        try:
            step = planning.send(result) if error is None else planning.throw(error)
        except StopIteration as ended:
            plan: PartitionPlan | SidecarError = ended.value
        except SidecarError as failed:
            plan = failed
        else:
            # It has a worker's place, and must not wait behind thousands of archives that are opened at a start.
            pool = Pool.STEPS if archiver in self.returning else Pool.PLANS
            self._run(step, partial(self._go_on, archiver), pool)
            return
        self._drop_planning(archiver)
        self._planned(archiver, plan)

    def _drop_planning(self, archiver: PartitionArchiver) -> None:
        self.plannings.pop(archiver, None)
        self.returning.discard(archiver)

    # What comes in.

    def ordered(self, work: Iterable[Work]) -> list[Work]:
        """The most urgent first."""
        now_ms = self._context.clock.now_ms()
        return sorted(work, key=lambda item: admission_order(item[1], item[0].last_served, now_ms))

    def take_on(self, work: Iterable[Work]) -> None:
        """Archive what a check has planned, instead of what earlier ones had; no more segments than the queue takes."""
        ordered = self.ordered(work)
        plans = within_queue([plan for _, plan in ordered], self._context.policy.max_queue)
        self._room = self._context.policy.max_queue - sum(len(plan.segments) for plan in plans)
        self.ready = {}
        self._queue((archiver, plan) for (archiver, _), plan in zip(ordered, plans, strict=True))
        self.admit()

    def take(self, archiver: PartitionArchiver, plan: PartitionPlan | SidecarError) -> None:
        """Archive a plan that no check waits for."""
        if isinstance(plan, SidecarError):
            self._outcomes.note(PartitionOutcome(archiver.files, error=plan))
            return
        self._outcomes.due_in(plan.recheck_in_ms)
        (admitted,) = within_queue([plan], self._room)
        self._room -= len(admitted.segments)
        if plan.segments and not admitted.segments:
            self._outcomes.note(archiver.not_reached(plan, Wait.NOT_ADMITTED))
            self._outcomes.due(self._context.clock.monotonic_s())
        else:
            self._queue([(archiver, admitted)])

    def replan(self, archiver: PartitionArchiver, plan: PartitionPlan) -> None:
        """What waits for a worker may begin before the check ends that made this plan, but by this one."""
        if archiver in self.ready:
            (self.ready[archiver],) = within_queue([plan], len(self.ready[archiver].segments))

    def _queue(self, work: Iterable[Work]) -> None:
        """Have plans become tasks, except those that had nothing to do the last time either."""
        unfinished = self._context.journal.roots()
        for archiver, plan in work:
            outcome = archiver.idle_outcome(plan, unfinished)
            if outcome is None:
                self.ready[archiver] = plan
            else:
                self._outcomes.settle(outcome)
        self.ready = dict(self.ordered(self.ready.items()))

    # Tasks.

    def admit(self) -> None:
        # A partition that is planned again right after its task keeps its place: it may be the one that retention takes next.
        while not self.is_stopping and len(self.executors) + len(self.returning) < self._context.policy.workers:
            # What is planned again just now has a step under way, to which its archive belongs.
            archiver = next((archiver for archiver in self.ready if archiver not in self.plannings), None)
            if archiver is None:
                return
            self._begin(archiver, self.ready.pop(archiver))

    def _begin(self, archiver: PartitionArchiver, plan: PartitionPlan) -> None:
        if not plan.segments and not (plan.facts.leads and archiver.known.state is not None):
            # What an earlier leadership left behind is for the broker that leads now, or for our next task.
            outcome = archiver.outcome_without_task(plan)
            archiver.task_begins(plan, self._served)
            archiver.task_ended(plan, outcome, None)
            self._outcomes.note(outcome)
            return
        self._served += 1
        archiver.task_begins(plan, self._served)
        committed, ended = partial(self._committed, archiver), partial(self._ended, archiver)
        executor = CopyExecutor(self._context, archiver, plan, run=self._run, committed=committed, ended=ended)
        self.executors[archiver] = executor
        executor.begin(self._context.clock.monotonic_s() + self._context.policy.task_s)

    def _committed(self, archiver: PartitionArchiver, segment: ArchivedSegment) -> None:
        self._context.emit(archiver.backlog(archiver.files))
        self._context.emit(CycleProgressed(self._outcomes.stopped, archived=True))
        self.done(archiver.topic_partition, segment)

    def _ended(self, archiver: PartitionArchiver) -> None:
        executor = self.executors.pop(archiver)
        outcome, plan = executor.outcome, executor.plan
        archiver.task_ended(plan, outcome, executor.blocker)
        is_conflict = isinstance(outcome.error, CommitConflict)
        is_stopping = self.is_stopping or self._context.stop.is_set()
        # One more than that is a failure, and the next one the first again.
        archiver.conflicts = archiver.conflicts + 1 if is_conflict and archiver.conflicts < CONFLICTS_IN_A_ROW else 0
        if archiver.conflicts and not is_stopping:
            self._outcomes.add(replace(outcome, error=None))
            self._again(archiver)
        else:
            if plan.segments or plan.hole or outcome.error is not None:
                self._context.emit(PartitionChecked(archiver.status(outcome.files, plan, outcome)))
            self._outcomes.note(outcome)
            # Only where it gets on: what was planned in vain would be planned in vain again.
            gets_on = outcome.archived and outcome.error is None and (not self.is_once or outcome.recheck_in_ms == 0)
            if gets_on and not is_stopping:
                self._again(archiver)
        self.admit()

    # Pins.

    def hold(self, archivers: Sequence[PartitionArchiver], work: list[Work]) -> None:
        """Pin what is planned, or was by earlier checks: what has no file any more, then what retention deletes first."""
        for archiver, plan in work:
            if archiver.task_plan is None:
                archiver.pinned.expect(plan, archiver.tail.expected(plan))
        left = [(archiver, rest) for archiver in self.executors if (rest := archiver.task_left()) is not None]
        work = [*left, *self.ordered(work)]
        # What goes at the same time, or never, for all that is known: in the order in which partitions become tasks.
        everyone = dict.fromkeys(chain((archiver for archiver, _ in work), archivers, self.executors))
        planned: defaultdict[PartitionArchiver, list[FileIdentity]] = defaultdict(list)
        for archiver, plan in work:
            if plan.segments:
                planned[archiver] += [segment.log for segment in plan.segments]
        # Not for idle partitions: a deadline may take the read of an index.
        orders = [
            pin_order(archiver.deadline_ms(archiver.files), logs, planned.get(archiver, ()))
            for archiver in everyone
            if (logs := archiver.pinned.logs) or archiver in planned
        ]
        tails = [pin_order(tail[0], [tail[1]]) for archiver in everyone if (tail := archiver.pinned.tail) is not None]
        urgent = (log for *_, log in sorted(chain(*orders, *tails), key=itemgetter(0, 1, 2)))
        gone = chain.from_iterable(archiver.pinned.gone_logs for archiver in everyone)
        beyond_limit = frozenset(self._context.pinned.keep(chain(gone, urgent)))
        unpinned = Counter(log.directory for log in beyond_limit)
        for archiver, plan in work:
            archiver.pinned.planned(plan, beyond_limit)
        counts = ((archiver.topic_partition, unpinned[archiver.files.directory]) for archiver in archivers)
        policy = self._context.facts.policy
        self._report_unpinned({tp: count for tp, count in counts if count and not policy(tp.topic).deletes_nothing})

    def _report_unpinned(self, unpinned: Mapping[TopicPartition, int]) -> None:
        self._context.emit(PinsChecked(unpinned))
        was_short, self._is_short_of_pins = self._is_short_of_pins, bool(unpinned)
        if self._is_short_of_pins and not was_short:
            EVENTS.warning(
                "segments_not_pinned",
                segments=sum(unpinned.values()),
                pinned=self._context.pinned.limit,
                partitions=[str(partition) for partition, _ in Counter(unpinned).most_common(PARTITIONS_LOGGED_MAX)],
                effect="the broker's retention may delete these segments before they are archived",
                action="raise the open-file limit of the process, or the retention of the topics; /status counts "
                "unpinned_segments of each partition",
            )
        elif was_short and not self._is_short_of_pins:
            EVENTS.info("all_segments_pinned")

    # The end.

    def drop(self, archiver: PartitionArchiver) -> None:
        """Its directory is gone. A task goes on."""
        self.ready.pop(archiver, None)
        self._drop_planning(archiver)

    def drop_plannings(self) -> None:
        """The answers of their steps that are under way come to nothing."""
        for planning in self.plannings.values():
            planning.close()
        self.plannings, self.returning = {}, set()

    def stop(self) -> None:
        """Commit what is uploaded, and begin nothing else."""
        self.is_stopping = True
        for archiver, plan in self.ready.items():
            self._outcomes.note(archiver.not_reached(plan, Wait.DRAINING))
        self.ready = {}
        for executor in list(self.executors.values()):
            executor.stop()

    def close(self) -> None:
        """Close the files of tasks that could not end. Only where no step is under way any more."""
        for executor in self.executors.values():
            executor.close()
        self.executors, self.ready = {}, {}
