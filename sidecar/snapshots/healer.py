"""Turns the states of one partition into the files that it lacks: kept until a witness confirms them, written on threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Final, Self

from sidecar.engine_ports import grouped
from sidecar.errors import PartitionError, StagingFull
from sidecar.host.log_dir_lock import LogDirLock
from sidecar.host.placing import CORRUPT_SUFFIX, EMPTY_SUFFIX, place_snapshot, sync_directory
from sidecar.logformat.names import Suffix, file_name
from sidecar.reporting.advice import advised
from sidecar.snapshots.check import judge, lacking
from sidecar.snapshots.heal_plan import Healing
from sidecar.snapshots.jobs import Ended, Event, Forgetting, Misplaced, StateAt, Stopped, also_said
from sidecar.snapshots.starts import StartKind

THREADS: Final = 8
WAITING: Final = 64
"""Partitions whose files are not written yet; bounds memory."""
IN_MEMORY_BYTES: Final = 8 * 1024 * 1024
"""More than this waits in the system's directory for temporary files: memory does not depend on the log's size."""
GROUP_BYTES: Final = 1024 * 1024
GROUP_FILES: Final = 1024
"""They are given out in groups of up to this size, and this many."""


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """Content for `<offset>.snapshot`. `aside_suffix`: what the file that it replaces is kept as, "" if there is none."""

    offset: int
    content: bytes
    aside_suffix: str = ""


class HealWriter:
    """A context manager. Takes a partition's snapshots, and enters into its `Healing` what came of them."""

    def __init__(self, locks: Mapping[Path, LogDirLock]) -> None:
        self._locks = locks
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="heal")
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)

    def write(self, healing: Healing, snapshots: Sequence[NewSnapshot]) -> None:
        """Write them in ascending order, then make their names durable. Raises LogDirRefused once a lock is lost."""
        self._waiting.append(self._pool.submit(self._write, healing, snapshots))
        while len(self._waiting) > WAITING:
            self._waiting.popleft().result()

    def finish(self) -> None:
        """Wait for everything. Raises LogDirRefused."""
        while self._waiting:
            self._waiting.popleft().result()

    def _write(self, healing: Healing, snapshots: Sequence[NewSnapshot]) -> None:
        log = healing.plan.log
        self._locks[log.files.log_dir].require_held()
        with healing.noting_problem():
            bases = sorted({log.first_offset, *log.bases})
            for snapshot in snapshots:
                # A snapshot at the log's end has no .log of that name: the segment it ends is its neighbour.
                base = max(base for base in bases if base <= snapshot.offset)
                neighbour = log.files.directory / file_name(base, Suffix.LOG)
                path = log.snapshot_path(snapshot.offset)
                place_snapshot(path, snapshot.content, neighbour, aside_suffix=snapshot.aside_suffix)
                (healing.replaced if snapshot.aside_suffix else healing.created).append(snapshot.offset)
        # Also when one could not be placed: those before it are reported as done.
        with healing.noting_problem():
            sync_directory(log.files.directory)


class HeldSnapshots:
    """In the order in which they were added. To be closed."""

    def __init__(self) -> None:
        # Not a context: it lives as long as this object, whose owner closes it.
        self._spool = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115 - see above
        self._waiting: list[tuple[int, int, str]] = []

    def add(self, snapshot: NewSnapshot) -> None:
        """Keep one. Raises StagingFull."""
        try:
            self._spool.write(snapshot.content)
        except OSError as error:
            raise StagingFull(
                f"temporary files: cannot be written: {error.strerror}; free space there, or set TMPDIR to a "
                "larger disk"
            ) from error
        self._waiting.append((snapshot.offset, len(snapshot.content), snapshot.aside_suffix))

    def take(self) -> Iterator[Sequence[NewSnapshot]]:
        """All of them, in groups; none is kept afterwards."""
        self._spool.seek(0)
        snapshots = (NewSnapshot(offset, self._spool.read(size), suffix) for offset, size, suffix in self._waiting)
        yield from grouped(snapshots, lambda snapshot: len(snapshot.content), GROUP_BYTES, GROUP_FILES)
        self.drop()

    def drop(self) -> list[int]:
        """Forget all of them; their offsets."""
        dropped = [offset for offset, _, _ in self._waiting]
        self._waiting = []
        self._spool.seek(0)
        self._spool.truncate()
        return dropped

    def close(self) -> None:
        self._spool.close()


class Healer:
    """Takes the events of a job. `writer` None: only compare.

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
            case Stopped():
                self._add_problem(event.problem)
                self._write()  # What lies above the damage proves nothing of what lies below it.
            case Ended(read_bytes):
                self._healing.read_bytes = read_bytes
                self._write()
                self.close()

    def close(self) -> None:
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
            hides_producers = len(state.table.unexpired(self._forgetting.expiration_now)) > 0
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
        if start not in healing.starts[-1:]:
            healing.starts.append(start)
        if not state.transactions_known:
            return
        healing.exact = healing.exact and state.exact
        if start.beginning_known or state.dropped:
            return
        if start.kind is StartKind.LOG_START:
            healing.note = also_said(
                healing.note,
                f"no snapshot with producers at the log's start {self._healing.plan.log.first_offset}: producers "
                "and transactions that only deleted segments named are unknown",
            )
        else:
            healing.note = also_said(
                healing.note,
                "as exact as the snapshots from which the replay began: a file does not record whether it is "
                "exact, and the log start is unknown or a cleaner has cleaned the log",
            )

    def _replace(self, state: StateAt, aside_suffix: str) -> None:
        if state.table.end_offset in self._healing.plan.replaceable:
            self._hold(state, aside_suffix)

    def _compare(self, state: StateAt) -> None:
        offset = state.table.end_offset
        try:
            verdict = judge(self._healing.plan.log, state, self._forgetting)
        except PartitionError as error:
            self._add_problem(advised(error))
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
            what += f"; written by a broker that had started from the empty snapshot {self._healing.proven_wrong[-1]}"
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
            f"{witness}: names open transactions that began below the log start (producers {producers}) and are not "
            "in the log. Snapshots that would lack them are not written"
        )

    def _hold(self, state: StateAt, aside_suffix: str) -> None:
        if not state.transactions_known:
            self._healing.exact = False
            self._healing.withheld.append(state.table.end_offset)
            self._add_problem(state.refused)
        elif state.start.offset in self._contradicted or (
            # Else it stems from a snapshot that was written later.
            state.start.offset < self._named_at
            and lacking(state.table, self._older_transactions, self._healing.plan.log.first_offset)
        ):
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
        self._healing.problem = also_said(self._healing.problem, what)
