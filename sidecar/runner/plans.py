"""Plans that are being made, of partitions that have no copy task meanwhile: a step of each is under way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sidecar.errors import SidecarError
from sidecar.partition.plan import PartitionPlan
from sidecar.runner.partition_archiver import PartitionArchiver, Planning
from sidecar.runner.step_threads import Pool, Run


class Plans:
    """Of the loop's thread. `returning`: partitions that are planned again right after their task: each keeps a worker's place."""

    def __init__(self, run: Run, planned: Callable[[PartitionArchiver, PartitionPlan | SidecarError], None]) -> None:
        """Args: planned: takes each plan, or why there is none."""
        self._run, self._planned = run, planned
        self._plannings: dict[PartitionArchiver, Planning] = {}
        self.returning: set[PartitionArchiver] = set()

    def __contains__(self, archiver: PartitionArchiver) -> bool:
        return archiver in self._plannings

    def __len__(self) -> int:
        return len(self._plannings)

    def begin(self, archiver: PartitionArchiver, *, lists: bool = False, returns: bool = False) -> None:
        """Have a plan made. Args: lists: see `PartitionArchiver.planning`. returns: it has had a task just now."""
        if returns:
            self.returning.add(archiver)
        self._plannings[archiver] = archiver.planning(lists=lists)
        self._go_on(archiver, None, None)

    def drop(self, archiver: PartitionArchiver) -> None:
        """Its directory is gone."""
        self._plannings.pop(archiver, None)
        self.returning.discard(archiver)

    def close(self) -> None:
        """Drop all of them: the answers of steps that are under way come to nothing."""
        for planning in self._plannings.values():
            planning.close()
        self._plannings, self.returning = {}, set()

    def _go_on(self, archiver: PartitionArchiver, result: Any, error: SidecarError | None) -> None:
        planning = self._plannings.get(archiver)
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
        self.drop(archiver)
        self._planned(archiver, plan)
