"""One partition without the loop: its plan and its task, step after step in this thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from sidecar.errors import SidecarError
from sidecar.model import PartitionFiles
from sidecar.partition.outcome import PartitionOutcome
from sidecar.partition.plan import PartitionPlan
from sidecar.runner.context import RunContext
from sidecar.runner.copy_executor import CopyExecutor
from sidecar.runner.partition_archiver import PartitionArchiver


def planned(tools: RunContext, archiver: PartitionArchiver, files: PartitionFiles) -> PartitionPlan:
    """Its plan after a check that found these files."""
    archiver.see(files, tools.facts.partition(files))
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


def archived(tools: RunContext, archiver: PartitionArchiver, plan: PartitionPlan) -> PartitionOutcome:
    """How the copy task of a plan ends."""
    events: deque[Callable[[], None]] = deque()

    def run(
        step: Callable[[], Any], then: Callable[[Any, SidecarError | None], None], *, is_upload: bool = False
    ) -> Future[None]:
        assert is_upload in {True, False}
        try:
            events.append(partial(then, step(), None))
        except SidecarError as error:
            events.append(partial(then, None, error))
        return Future()

    archiver.task_begins(plan, 1)
    executor = CopyExecutor(tools, archiver, plan, run=run, committed=lambda _segment: None, ended=lambda: None)
    executor.begin(tools.clock.monotonic_s() + tools.policy.task_s)
    while events:
        events.popleft()()
    archiver.task_ended(plan, executor.outcome, executor.blocker)
    return executor.outcome
