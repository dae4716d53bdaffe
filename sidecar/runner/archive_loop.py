"""The loop that archives: one thread owns all partitions, pools run their steps, and each step's result is one event.

It takes the events from the queue, and hands them on to the checks (`checks`) and the copy tasks (`copy_tasks`). Nothing here
waits for the store, the broker or a large read.
"""

import math
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, Self

from sidecar.compactor.before_upload import BeforeUpload
from sidecar.discovery.scan import Scan
from sidecar.errors import SidecarError
from sidecar.partition.plan import PartitionPlan
from sidecar.runner.checks import Checks, CycleReport
from sidecar.runner.context import RunContext
from sidecar.runner.copy_tasks import CopyTasks, Done, Work
from sidecar.runner.outcomes import Outcomes
from sidecar.runner.partition_archiver import PartitionArchiver
from sidecar.runner.step_threads import Event, Pool, Step, StepExecutor, StepThreads, Then, event_of

TICK_S: Final = 0.5
"""So often a waiting loop sees whether it is to stop."""


class ArchiveLoop:
    """Archives partition after partition; keeps what it learned of each. A context: its threads end with it."""

    def __init__(
        self,
        context: RunContext,
        scan: Scan,
        before_upload: BeforeUpload | None = None,
        done: Done = lambda _partition, _segment: None,
        executor: Callable[[int], StepExecutor] = StepThreads,
    ) -> None:
        """Args:
        before_upload: holds segments back that are to be compacted first. Default: nothing is.
        done: called after each commit, for each of its segments.
        executor: begins what runs the steps, given `run.workers`.
        """
        self._context = context
        self._outcomes = Outcomes(context)
        self.tasks = CopyTasks(
            context, self._run, self._outcomes, self._planned, lambda found: self.checks.plan_again(found), done
        )
        self.checks = Checks(context, self._run, self.tasks, self._outcomes, scan, before_upload, self._post)
        self._new_executor = executor
        self._executor: StepExecutor | None = None

    def adopt(self, scan: Scan, before_upload: BeforeUpload) -> None:
        """From the next check on: use other directories, or other rules. The known state of archives stays."""
        self.tasks.ready = {}  # The next check plans it again, by these rules.
        self.checks.adopt(scan, before_upload)

    # Events.

    def __enter__(self) -> Self:
        self._executor = self._new_executor(self._context.policy.workers)
        self.tasks.is_stopping = False
        return self

    def __exit__(self, kind: type[BaseException] | None, *_exception: object) -> None:
        """End them. Where the process ends, tasks commit what is uploaded, and begin nothing else."""
        # Anything else may have left an event half handled: the journal keeps what is uploaded for the next start.
        is_whole = kind is None or issubclass(kind, SidecarError)
        if not is_whole:
            self._context.stop.set()
        self.tasks.drop_plannings()
        try:
            if is_whole:
                self.tasks.stop()
                self.drive(lambda: not self.tasks)
        finally:
            executor, self._executor = self._executor, None
            if executor is not None:
                executor.close()
            self.tasks.close()
            self.checks.drop()
            if kind is not None or self._context.stop.is_set():
                self._context.pinned.release()

    def drive(self, until: Callable[[], bool], timeout_s: float = math.inf) -> None:
        """Take events until something holds, or for so long. Raises what a step raised that is no SidecarError."""
        executor, end_s = self._open(), self._context.clock.monotonic_s() + timeout_s
        while not until():
            left_s = end_s - self._context.clock.monotonic_s()
            event = executor.next_event(max(0.0, min(TICK_S, left_s)))
            if event is not None:
                event()
            elif left_s <= TICK_S:
                return
            if self._context.stop.is_set():
                self.tasks.stop()
            self.checks.end_late()

    def _open(self) -> StepExecutor:
        if self._executor is None:
            raise RuntimeError("the event loop is not open")
        return self._executor

    def _run(self, step: Step, then: Then, pool: Pool) -> Future[None]:
        return self._open().submit(pool, partial(event_of, step, then))

    def _post(self, event: Event) -> None:
        if (executor := self._executor) is not None:
            executor.post(event)

    @property
    def is_busy(self) -> bool:
        """Whether a step is under way, or a plan waits for one."""
        tasks = self.tasks
        return bool(tasks.executors or tasks.plannings or tasks.ready) or self.checks.is_under_way

    # Once, or for ever.

    def run_once(self, done: Done | None = None) -> CycleReport:
        """Check, plan, and archive until nothing is left to be done."""
        return self.work(*self.plan(), done)

    def plan(self) -> tuple[list[Work], CycleReport]:
        """Check and decide: what can be done, earliest local deletion first, and a report of the rest. Waits for every plan."""
        with self._opened():
            report = self.cycle(only_plans=True)
            return self.tasks.ordered(self.checks.work), report

    def work(self, work: list[Work], report: CycleReport, done: Done | None = None) -> CycleReport:
        """Archive what was planned, and what is planned behind it. One partition's fault never stops another's work."""
        with self._opened():
            self.tasks.is_once, self.tasks.done, self.checks.only_plans = True, done or self.tasks.done, False
            self.checks.take_on(report, work, work)
            return self.finish()

    def _opened(self) -> AbstractContextManager[object]:
        return self if self._executor is None else nullcontext()

    def begin_check(self, *, only_plans: bool = False) -> None:
        """Begin to check everything. Tasks go on, and begin; `only_plans`: none does, and the check waits for every plan."""
        self._outcomes.due_s, self.tasks.is_once, self.checks.only_plans = math.inf, False, only_plans
        self.checks.begin()

    def cycle(self, *, only_plans: bool = False) -> CycleReport:
        """Check everything; see `begin_check`. Raises what keeps the disks from being checked."""
        self.begin_check(only_plans=only_plans)
        self.drive(lambda: not self.checks.is_under_way)
        return self._report()

    def due_in_s(self) -> float:
        """When the next check will have something to do, for all that is known now."""
        return max(0.0, self._outcomes.due_s - self._context.clock.monotonic_s())

    def finish(self) -> CycleReport:
        """Let all that is under way come to its end, without another check."""
        self.drive(lambda: not self.is_busy)
        report = self._report()
        report.outcomes = self._outcomes.ascending()
        self.checks.show(report)
        return report

    def _report(self) -> CycleReport:
        if isinstance(self.checks.report, SidecarError):
            raise self.checks.report
        return self.checks.report

    # What is handed on.

    def _planned(self, archiver: PartitionArchiver, plan: PartitionPlan | SidecarError) -> None:
        if not self.checks.takes(archiver, plan):
            self.tasks.take(archiver, plan)
        self.tasks.admit()
