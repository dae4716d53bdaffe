"""Turns the states of one partition into the files that it lacks."""

from __future__ import annotations

from sidecar.errors import PartitionError
from sidecar.pipeline.snapshots.heal_plan import Healing
from sidecar.pipeline.snapshots.heal_writer import HealWriter, NewSnapshot
from sidecar.pipeline.snapshots.held_snapshots import HeldSnapshots
from sidecar.pipeline.snapshots.jobs import Ended, Event, Forgetting, Misplaced, PartitionJob, StateAt, Stopped
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
        self._forgetting = forgetting
        self._writer = writer
        self._held = HeldSnapshots()
        self._contradicted: set[int] = set()
        healing.replayed = True
        healing.not_compared = sorted(healing.plan.existing - job.boundaries)

    def take(self, event: Event) -> None:
        """The next event. Raises LogDirRefused once the log dir is no longer ours, StagingFull."""
        match event:
            case StateAt():
                self._take_state(event)
            case Misplaced(offset, reason):
                self._healing.mismatches.append(f"{offset}: no batch ends there: {reason}")
            case Stopped(_, reason):
                self._add_problem(f"{reason}; snapshots {event.unreachable} cannot be made")
                self._write()  # What lies above the damage proves nothing of what lies below it.
            case Ended():
                self._write()
                self.close()

    def close(self) -> None:
        """Forget what was not written."""
        self._held.close()

    def _take_state(self, state: StateAt) -> None:
        offset, plan = state.table.end_offset, self._healing.plan
        self._note_exactness(state)
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

    def _note_exactness(self, state: StateAt) -> None:
        healing, start = self._healing, state.start
        healing.exact = healing.exact and state.exact
        if start is None:
            return
        if start not in healing.starts[-1:]:
            healing.starts.append(start)
        if not start.beginning_known and not state.dropped:
            self._add_note(
                f"no snapshot with producers at the log's start {self._healing.plan.log.first_offset}: producers and "
                f"transactions of which only deleted segments told are not known"
            )
        if not state.transactions_known:
            self._add_note(
                f"a transaction that began below offset {start.offset}, where the replay began, and has not ended is not "
                f"known; --replay full reads the whole log"
            )

    def _replace(self, state: StateAt, aside_suffix: str) -> None:
        if state.table.end_offset in self._healing.plan.replaceable:
            self._hold(state, aside_suffix)

    def _compare(self, state: StateAt) -> None:
        offset = state.table.end_offset
        try:
            verdict = judge(self._healing.plan.log, state, self._forgetting)
        except PartitionError as error:
            self._add_problem(str(error))
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
        self._contradicted.add(offset)
        self._healing.mismatches.append(what)

    def _hold(self, state: StateAt, aside_suffix: str) -> None:
        if state.start is not None and state.start.offset in self._contradicted:
            # The replay below has shown that the snapshot which this state began from is wrong.
            self._healing.withheld.append(state.table.end_offset)
        elif self._writer is not None:
            content = self._forgetting.snapshot_table(state).to_snapshot()
            self._held.add(NewSnapshot(state.table.end_offset, content, aside_suffix))

    def _write(self) -> None:
        if self._writer is not None:
            for group in self._held.take():
                self._writer.write(self._healing, group)

    def _add_problem(self, what: str) -> None:
        healing = self._healing
        healing.problem = f"{healing.problem}; {what}" if healing.problem else what

    def _add_note(self, what: str) -> None:
        healing = self._healing
        if what not in healing.note:
            healing.note = f"{healing.note}; {what}" if healing.note else what
