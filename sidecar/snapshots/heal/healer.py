"""Turns the states of one partition into the files that it lacks."""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.errors import PartitionError
from sidecar.host.placing import CORRUPT_SUFFIX, EMPTY_SUFFIX
from sidecar.snapshots.heal.held_snapshots import HeldSnapshots
from sidecar.snapshots.heal.plan import Healing
from sidecar.snapshots.heal.writer import HealWriter, NewSnapshot
from sidecar.snapshots.jobs import Ended, Event, Forgetting, Misplaced, StateAt, Stopped
from sidecar.snapshots.judging import judge, lacking, unexpired_now
from sidecar.snapshots.starts import StartKind


class Healer:
    """Takes the events of a job. `writer` None: only look.

    What the replay gives waits for the next witness above. If that one disagrees, either it or the replay is wrong, and
    nothing is written below it. Where none is left above, nothing more can be proven and it is written. A snapshot above
    an empty one that is wrong is no witness: the broker that wrote it had begun from the empty one.

    A state that may lack an open transaction is never written, and no witness confirms it: a broker that loads it after a
    clean stop takes undecided records for committed ones.
    """

    def __init__(self, healing: Healing, forgetting: Forgetting, writer: HealWriter | None) -> None:
        self._healing = healing
        self._forgetting = forgetting
        self._writer = writer
        self._held = HeldSnapshots()
        self._contradicted: set[int] = set()
        self._older_transactions: dict[int, int] = {}
        self._named_at = 0
        healing.replayed = True

    def take(self, event: Event) -> None:
        """The next event. Raises LogDirRefused once the log dir is no longer ours, StagingFull."""
        match event:
            case StateAt():
                self._take_state(event)
            case Misplaced(offset, reason):
                self._healing.compared.add(offset)
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
            hides_producers = len(unexpired_now(state, self._forgetting)) > 0
            if hides_producers or state.transactions_known:
                self._healing.compared.add(offset)
            if hides_producers:
                self._healing.proven_wrong.append(offset)
                self._replace(state, EMPTY_SUFFIX)
        elif offset in plan.corrupt:
            self._replace(state, CORRUPT_SUFFIX)
        elif state.transactions_known:
            self._compare(state)

    def _note_exactness(self, state: StateAt) -> None:
        healing, start = self._healing, state.start
        if start is None:
            return
        if start not in healing.starts[-1:]:
            healing.starts.append(start)
        if not state.transactions_known:
            return
        healing.exact = healing.exact and state.exact
        if start.beginning_known or state.dropped:
            return
        if start.kind is StartKind.LOG_START:
            self._add_note(
                f"no snapshot with producers at the log's start {self._healing.plan.log.first_offset}: producers and "
                f"transactions of which only deleted segments told are not known"
            )
        else:
            self._add_note(
                "as exact as the snapshots from which the replay began: a file does not record whether it is exact, and the log's "
                "beginning is not known or a cleaner has been in the log"
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
        self._healing.compared.add(offset)
        if not verdict.is_wrong and verdict.older_transactions:
            self._withhold_without(verdict.older_transactions, offset)
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

    def _withhold_without(self, older_transactions: Mapping[int, int], witness: int) -> None:
        self._older_transactions.update(older_transactions)
        self._named_at = witness
        withheld = self._held.drop()
        self._healing.withheld += withheld
        producers = " ".join(map(str, sorted(older_transactions)))
        self._add_problem(
            f"{witness}: names open transactions that began below the log's start (producers {producers}), of which the log tells "
            f"nothing; snapshots that would lack them are not written"
        )

    def _lacks_transaction(self, state: StateAt) -> bool:
        if state.start is not None and state.start.offset >= self._named_at:
            return False  # It stems from a snapshot that was written later.
        return bool(lacking(state.table, self._older_transactions, self._healing.plan.log.first_offset))

    def _hold(self, state: StateAt, aside_suffix: str) -> None:
        if not state.transactions_known:
            self._healing.exact = False
            self._healing.withheld.append(state.table.end_offset)
            self._add_problem(state.refused)
        elif (state.start is not None and state.start.offset in self._contradicted) or self._lacks_transaction(state):
            # The replay below has shown that the snapshot which this state began from is wrong; or a snapshot below has shown
            # that the state lacks a transaction.
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
        if what not in healing.problem:
            healing.problem = f"{healing.problem}; {what}" if healing.problem else what

    def _add_note(self, what: str) -> None:
        healing = self._healing
        if what not in healing.note:
            healing.note = f"{healing.note}; {what}" if healing.note else what
