"""Turns the states of one partition into the files that it lacks."""

from __future__ import annotations

from typing import Final

from sidecar.errors import PartitionError
from sidecar.pipeline.snapshots.folding import Ended, Event, Forgetting, Misplaced, PartitionJob, StateAt, Stopped
from sidecar.pipeline.snapshots.heal_plan import Healing
from sidecar.pipeline.snapshots.heal_writer import HealWriter, NewSnapshot
from sidecar.pipeline.snapshots.judging import judge, unexpired_now

WRITE_AT_BYTES: Final = 8 * 1024 * 1024
"""A partition's snapshots are written at its end, or when they have become this much."""


class Healer:
    """Takes the events of a job. `writer` None: only look."""

    def __init__(self, healing: Healing, job: PartitionJob, forgetting: Forgetting, writer: HealWriter | None) -> None:
        self._healing = healing
        self._job = job
        self._forgetting = forgetting
        self._writer = writer
        self._ready: list[NewSnapshot] = []
        self._ready_bytes = 0

    def take(self, event: Event) -> None:
        """The next event. Raises LogDirRefused once the log dir is no longer ours."""
        match event:
            case StateAt():
                self._take_state(event)
            case Misplaced(offset, reason):
                self._problem(f"{self._healing.plan.log.snapshot_path(offset)}: {reason}")
            case Stopped(offset, reason):
                self._problem(f"{reason}; snapshots above offset {offset} cannot be made")
            case Ended():
                self._write()

    def _take_state(self, state: StateAt) -> None:
        offset, plan = state.table.end_offset, self._healing.plan
        self._healing.exact = self._healing.exact and state.exact
        if offset in plan.missing:
            self._add(state, replaces_empty=False)
        elif plan.log.has_empty_snapshot(offset):
            self._take_empty(state)
        elif offset in plan.witnesses:
            self._compare(state)

    def _take_empty(self, state: StateAt) -> None:
        offset = state.table.end_offset
        if not len(unexpired_now(state, self._forgetting)):
            return
        if offset in self._healing.plan.suspects and self._writer is not None:
            self._add(state, replaces_empty=True)
        else:
            self._healing.wrong_empty.append(offset)

    def _compare(self, state: StateAt) -> None:
        offset = state.table.end_offset
        try:
            verdict = judge(self._healing.plan.log, self._job, state, self._forgetting)
        except PartitionError as error:
            self._problem(str(error))
            return
        if verdict.is_wrong:
            self._healing.mismatches.append(f"{offset}: {verdict.describe()}")
        else:
            self._healing.verified.append(offset)

    def _add(self, state: StateAt, *, replaces_empty: bool) -> None:
        if self._writer is None:
            return
        content = self._forgetting.snapshot_table(state).to_snapshot()
        self._ready.append(NewSnapshot(state.table.end_offset, content, replaces_empty))
        self._ready_bytes += len(content)
        if self._ready_bytes >= WRITE_AT_BYTES:
            self._write()

    def _write(self) -> None:
        if self._ready and self._writer is not None:
            self._writer.write(self._healing, self._ready)
        self._ready, self._ready_bytes = [], 0

    def _problem(self, what: str) -> None:
        self._healing.problem = self._healing.problem or what
