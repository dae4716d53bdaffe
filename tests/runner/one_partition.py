"""One partition without the loop: its plan and its task, step after step in this thread."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future

from sidecar.errors import SidecarError
from sidecar.model import PartitionFiles
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.status import PartitionOutcome
from sidecar.runner.context import RunContext
from sidecar.runner.copy_executor import CopyExecutor
from sidecar.runner.partition_archiver import PartitionArchiver
from sidecar.runner.step_threads import Event, Pool, Step, Then, event_of


def planned(context: RunContext, archiver: PartitionArchiver, files: PartitionFiles) -> PartitionPlan:
    """Its plan after a check that found these files."""
    archiver.see(files, context.facts.partition(files))
    planning = archiver.planning()
    try:
        step = next(planning)
        while True:
            try:
                result = step()
            except SidecarError as error:
                step = planning.throw(error)
            else:
                step = planning.send(result)
    except StopIteration as ended:
        plan: PartitionPlan = ended.value
        return plan


def archived(context: RunContext, archiver: PartitionArchiver, plan: PartitionPlan) -> PartitionOutcome:
    """How the copy task of a plan ends."""
    events: deque[Event] = deque()

    def run(step: Step, then: Then, pool: Pool = Pool.STEPS) -> Future[None]:
        assert pool in {Pool.STEPS, Pool.UPLOADS}
        events.append(event_of(step, then))
        return Future()

    archiver.task_begins(plan, 1)
    executor = CopyExecutor(context, archiver, plan, run=run, committed=lambda _segment: None, ended=lambda: None)
    executor.begin(context.clock.monotonic_s() + context.policy.task_s)
    while events:
        events.popleft()()
    archiver.task_ended(plan, executor.outcome, executor.blocker)
    return executor.outcome
