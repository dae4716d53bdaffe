"""`snapshots heal`: gives a stopped broker the producer snapshots that its own tiering needs.

The states of a partition become the files that it lacks: kept until a witness confirms them, written on threads.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Final, Self

from sidecar.broker.log_dir_state import LogDirState, read_log_dir_state
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import distinct
from sidecar.engine_ports import TaskEngine, grouped
from sidecar.errors import PartitionError, SettingsError, StagingFull
from sidecar.host.log_dir_lock import LogDirLock, LogDirRefused
from sidecar.host.placing import CORRUPT_SUFFIX, EMPTY_SUFFIX, place_snapshot, remove_leftovers, sync_directory
from sidecar.logformat.names import Suffix, file_name, parse_directory_name
from sidecar.reporting.advice import advised
from sidecar.reporting.progress import Watcher
from sidecar.snapshots import Replay
from sidecar.snapshots.check import judge, lacking
from sidecar.snapshots.folding import fold
from sidecar.snapshots.heal_plan import Healing, HealPlan, HealReport, plan_healing
from sidecar.snapshots.jobs import Ended, Event, Forgetting, Misplaced, PartitionJob, StateAt, Stopped, also_said
from sidecar.snapshots.resolve_paths import NO_TOPIC, holds_segments, log_dir_targets
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
        self._pinned = HeldSnapshots()
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
        self._pinned.close()

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
        elif withheld := self._pinned.drop():
            self._healing.withheld += withheld
            what += f"; not written below it: {' '.join(map(str, withheld))}"
        self._contradicted.add(offset)
        self._healing.mismatches.append(what)

    def _withhold_without(self, older_transactions: Mapping[int, int], witness: int) -> None:
        self._older_transactions.update(older_transactions)
        self._named_at = witness
        withheld = self._pinned.drop()
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
            with self._healing.noting_problem():
                table = self._healing.plan.log.without_decided(self._forgetting.snapshot_table(state))
                self._pinned.add(NewSnapshot(table.end_offset, table.to_snapshot(), aside_suffix))

    def _write(self) -> None:
        if self._writer is not None:
            for group in self._pinned.take():
                self._writer.write(self._healing, group)

    def _add_problem(self, what: str) -> None:
        self._healing.problem = also_said(self._healing.problem, what)


_BARE: Final = (
    "there is no snapshot: a broker that starts would write an empty one and forget all producers. heal creates "
    "one at the log's end if the log names any producer"
)


def heal(
    log_dirs: Sequence[Path],
    topics: TopicFilter,
    engine: TaskEngine,
    forgetting: Forgetting,
    *,
    dry_run: bool = False,
    replace_empty: bool = False,
    replace_corrupt: bool = False,
    replay: Replay = Replay.WINDOW,
    compacted_elsewhere: TopicFilter = NO_TOPIC,
    watcher: Watcher | None = None,
) -> HealReport:
    """Create the missing `<base>.snapshot` files in the log dirs of a stopped broker; nothing else is touched.

    Where no snapshot would exist at all, as none is missing, one is made at the log's end if the log names producers.

    Replay.FULL judges every snapshot that is there; Replay.WINDOW reads what the new ones need, and judges those on its way.

    Holds Kafka's lock of every log dir meanwhile. Whatever ends it, each file is there whole or not at all; the next run
    goes on.

    Raises:
        LogDirRefused: nothing was written: a log dir may not be written to, or its log-start-offset-checkpoint cannot be read.
        SettingsError: a log dir does not exist, or is a partition's directory, or the patterns choose no partition.

    Args:
        dry_run: only plan; with `replace_empty` the log is read to judge what is there.
        replace_empty: also replace empty snapshots that hide producers whom a broker must know now.
        replace_corrupt: also replace files that are no snapshots.
        compacted_elsewhere: topics in whose logs offsets may be missing, whatever their directory says.
    """
    for path in log_dirs:
        _refuse_partition_directory(path)
    with ExitStack() as resources:
        # Where one directory were locked under two names, closing one lock of the process would end the other.
        locks = {path: resources.enter_context(LogDirLock(path, read_only=dry_run)) for path in distinct(log_dirs)}
        found = log_dir_targets(list(locks), topics, compacted_elsewhere)
        # A broker that is new has no partitions, and its init container must end well; a pattern that fits none is a mistake.
        if topics != TopicFilter() and not found.partitions and not found.problems:
            raise SettingsError(
                f"{', '.join(map(str, log_dirs))}: no partition to heal: --topic and --exclude leave none "
                f"(internal topics are never included)"
            )
        states = {path: _state_of(path) for path in locks}
        replayed = replace_empty or not dry_run
        healings: list[Healing] = []
        for log in found.partitions:
            healing = Healing(HealPlan(log))
            healings.append(healing)
            with healing.noting_problem():
                log_start = states[log.files.log_dir].log_start.offset(log.topic_partition)
                healing.plan = plan_healing(
                    log, log_start, replace_empty=replace_empty, replace_corrupt=replace_corrupt, replayed=replayed
                )
                healing.note = _BARE if healing.plan.bare and not replayed else ""
            if not dry_run:
                with healing.noting_problem():
                    remove_leftovers(log.files.directory)
        work: list[tuple[Healing, PartitionJob]] = []
        for healing in healings if replayed else ():
            with healing.noting_problem():
                job = healing.plan.job(replay, forgetting)
                work += [(healing, job)] if job.boundaries else []
        with HealWriter(locks) as writer:
            writing = None if dry_run else writer
            healers = [
                (resources.enter_context(closing(Healer(healing, forgetting, writing))), job) for healing, job in work
            ]
            for healer, event in fold(healers, engine, watcher):
                healer.take(event)
            writer.finish()
    return HealReport(tuple(healings), found.problems, dry_run, replay, found.warnings)


def _refuse_partition_directory(path: Path) -> None:
    try:
        if not path.is_dir():
            raise SettingsError(f"{path}: no such directory; give one of the broker's log.dirs")
        inside = holds_segments(path)
    except OSError:
        return  # Taking its lock gives a better error.
    if inside:
        name = parse_directory_name(path.absolute().name)
        only = f", with --topic {re.escape(name.topic_partition.topic)} to heal only that topic" if name else ""
        raise SettingsError(
            f"{path}: is a partition's directory; give heal its log directory, {path.absolute().parent}{only}"
        )


def _state_of(log_dir: Path) -> LogDirState:
    state = read_log_dir_state(log_dir)
    if state.log_start.error is not None:
        # It is unknown which snapshots a broker would delete, and which it needs.
        raise LogDirRefused(
            f"{state.log_start.error}; nothing was written. A broker that cannot read this file takes the first "
            "segment of each log for the log start. Correct the file, or move it away if that is acceptable"
        )
    return state
