"""Turns the states of one partition into the files that it lacks."""

from __future__ import annotations

from sidecar.errors import PartitionError
from sidecar.pipeline.snapshots.folding import Ended, Event, Forgetting, Misplaced, PartitionJob, StateAt, Stopped
from sidecar.pipeline.snapshots.heal_plan import Healing
from sidecar.pipeline.snapshots.heal_writer import HealWriter, NewSnapshot
from sidecar.pipeline.snapshots.held_snapshots import HeldSnapshots
from sidecar.pipeline.snapshots.judging import judge, unexpired_now
from sidecar.pipeline.snapshots.placing import CORRUPT_SUFFIX, EMPTY_SUFFIX


class Healer:
    """Takes the events of a job. `writer` None: only look.

    What the replay gives waits for the next witness above. If that one disagrees, either it or the replay is wrong, and
    nothing is written below it. Where none is left above, nothing more can be proven and it is written. A snapshot above
    an empty one that is wrong is no witness: the broker that wrote it had begun from the empty one.
    """

    def __init__(self, healing: Healing, job: PartitionJob, forgetting: Forgetting, writer: HealWriter | None) -> None:
        self._healing = healing
        self._job = job
        self._forgetting = forgetting
        self._writer = writer
        self._held = HeldSnapshots()
        healing.replayed = True
        if job.start.end_offset > 0 and not job.from_snapshot:
            healing.exact = False
            healing.note = (
                f"no snapshot with producers at the log's start {job.start.end_offset}: producers and transactions of "
                f"which only deleted segments told are not known"
            )

    def take(self, event: Event) -> None:
        """The next event. Raises LogDirRefused once the log dir is no longer ours, StagingFull."""
        match event:
            case StateAt():
                self._take_state(event)
            case Misplaced(offset, reason):
                self._healing.mismatches.append(f"{offset}: no batch ends there: {reason}")
            case Stopped(offset, reason):
                self._problem(f"{reason}; snapshots above offset {offset} cannot be made")
            case Ended():
                self._write()
                self.close()

    def close(self) -> None:
        """Forget what was not written."""
        self._held.close()

    def _take_state(self, state: StateAt) -> None:
        offset, plan = state.table.end_offset, self._healing.plan
        self._healing.exact = self._healing.exact and state.exact
        if offset in plan.missing:
            self._hold(state, "")
        elif offset == plan.log_end:
            # Where there are no producers, the empty one that a broker writes is right.
            if len(self._forgetting.snapshot_table(state)):
                self._hold(state, "")
        elif offset in plan.empty:
            if len(unexpired_now(state, self._forgetting)):
                self._healing.proven_wrong.append(offset)
                self._replace(state, EMPTY_SUFFIX)
        elif offset in plan.corrupt:
            self._replace(state, CORRUPT_SUFFIX)
        else:
            self._compare(state)

    def _replace(self, state: StateAt, aside_suffix: str) -> None:
        if state.table.end_offset in self._healing.plan.replaceable:
            self._hold(state, aside_suffix)

    def _compare(self, state: StateAt) -> None:
        offset = state.table.end_offset
        try:
            verdict = judge(self._healing.plan.log, self._job, state, self._forgetting)
        except PartitionError as error:
            self._problem(str(error))
            return
        if not verdict.is_wrong:
            self._healing.verified.append(offset)
            self._write()
            return
        what = f"{offset}: {verdict.describe()}"
        if self._healing.proven_wrong:
            what += f"; written by a broker that had begun from the empty snapshot {self._healing.proven_wrong[-1]}"
        elif withheld := self._held.drop():
            self._healing.withheld += withheld
            what += f"; not written below it: {' '.join(map(str, withheld))}"
        self._healing.mismatches.append(what)

    def _hold(self, state: StateAt, aside_suffix: str) -> None:
        if self._writer is not None:
            content = self._forgetting.snapshot_table(state).to_snapshot()
            self._held.add(NewSnapshot(state.table.end_offset, content, aside_suffix))

    def _write(self) -> None:
        if self._writer is not None:
            for group in self._held.take():
                self._writer.write(self._healing, group)

    def _problem(self, what: str) -> None:
        self._healing.problem = self._healing.problem or what
