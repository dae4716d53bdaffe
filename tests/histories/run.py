"""Runs a history: each step, each check, and at the end whether everything comes right once faults have stopped."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final

import structlog

from sidecar.archive.actions import Lost
from sidecar.archive.commit import Writer, decode_commit
from sidecar.archive.keys import checkpoint_key, commit_key
from sidecar.commits.commit_window import ORPHAN_MS
from sidecar.commits.stored_commits import proves_not_committed
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.archive.compactor import ArchiveCompactor
from sidecar.compactor.archive.plan import CompactionRequest
from sidecar.compactor.archive.undo import undo_compaction
from sidecar.compactor.candidate_queue import CandidateAssessor, LedPartition
from sidecar.compactor.gc import GcTask
from sidecar.errors import SidecarError
from sidecar.model import ObjectKey
from sidecar.restore.request import LeaderEpochMode, RestoreRequest
from sidecar.restore.restore import RestoreReport, restore
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.store_settings import StoreSettings
from sidecar.verify.segments import ProblemKind
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.seeded_randomness import SeededRandomness
from tests.histories.archive_view import ArchiveView, committed_in, producers_in
from tests.histories.broker import CLUSTER_ID, PARTITION, TOPIC, TOPIC_ID, BrokerPartition
from tests.histories.checker import Checker, Done
from tests.histories.faults import Crash, Fault, Link
from tests.histories.findings import Finding
from tests.histories.history import (
    DAY_MS,
    MINUTE_MS,
    SECOND_MS,
    Append,
    Collect,
    Compact,
    CompactGroups,
    DamageCheckpoint,
    DeleteRecords,
    DropSnapshots,
    HideCommit,
    History,
    LoseFile,
    Meanwhile,
    NewLeader,
    Process,
    Restart,
    Restore,
    Retention,
    Step,
    Undo,
    Upload,
    Verify,
    Wait,
)
from tests.histories.one_thread import in_one_thread
from tests.histories.processes import AheadClock, Sidecar, sidecars
from tests.verifying import verify_partition

STORE = StoreSettings(url="/nowhere")
BEGIN_MS = 1_700_000_000_000
ROUNDS_UNTIL_ARCHIVED: Final = 6
"""After faults stop: rounds within which all that is rolled is archived. Twice as many where copies are waited for."""
MEMORY = Path("/dev/shm")
LOSSES: Final = ("offsets_lost", "deleted_before_archived")
NARROW_GAP: Final = re.compile(
    r"(\d+) transactions? (?:is|are) open at offset (\d+).* do not fit into the lost offsets \[(\d+), (\d+)\)"
)
UNTYPED: Final = (
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    AssertionError,
    OSError,
    RuntimeError,
)


@dataclass(slots=True)
class Figures:
    """Of one history or of many. `errors`: what processes reported, by class. `trace`: of one history, hash of all store calls."""

    steps: Counter[str] = field(default_factory=Counter)
    faults: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    trace: str = ""

    def add(self, other: Figures) -> None:
        """Take in those of another history."""
        self.steps += other.steps
        self.faults += other.faults
        self.errors += other.errors
        self.commits += other.commits


class World:
    """A broker's partition, the store, two sidecars, and the model."""

    def __init__(self, history: History, home: Path, stack: ExitStack, opened: list[Link]) -> None:
        settings = history.settings
        self.logs = stack.enter_context(structlog.testing.capture_logs())
        self.home, self.settings, self.figures = home, settings, Figures()
        self._trace = hashlib.sha256()
        self.clock = ManualClock(BEGIN_MS)
        self.store = MemoryStore(self.clock)
        self.randomness = SeededRandomness(history.seed)
        self.broker = BrokerPartition(home / "logs", self.clock, settings.shape)
        self.links = [self._link(), self._link()]
        self.sidecars: tuple[Sidecar, ...] = stack.enter_context(
            sidecars(home, self.links, self.broker, settings, self.randomness)
        )
        self.checker = Checker(ArchiveView(self.store), self.broker, settings)
        self.opened = opened
        self.done = Done()
        self._restores = 0
        self._unlogged: dict[
            tuple[int, int], int
        ] = {}  # By lost offsets, the number of the sidecar that recorded them.
        self._read_commits: set[str] = set()
        self._well: set[int] = set()  # Numbers of the sidecars that ended a round without an error in this step.

    def _link(self) -> Link:
        return Link(self.store, self.figures.faults, self._trace.update)

    @property
    def leader(self) -> Sidecar:
        """The sidecar beside the broker that leads."""
        return self.sidecars[self.sidecars[0].facts.leader]

    def do(self, step: Step) -> None:
        """One step, and what is to be checked behind it. Raises Finding."""
        self.clock.advance_ms(3 * SECOND_MS)
        self.figures.steps[type(step).__name__] += 1
        self.done = Done(now_ms=self.clock.now_ms())
        self.logs.clear()
        self._well.clear()
        self._act(step)
        self.checker.check(self.done)
        for line in self.logs:
            if line["log_level"] == "critical":
                raise Finding("untyped-error", str(line))
        self._note_losses()

    def _act(self, step: Step) -> None:
        match step:
            case Append(seed, batches, rolls):
                self.broker.append(Random(seed), batches)
                if rolls:
                    self.broker.roll()
            case Retention(keep):
                self.broker.retention(keep)
            case DeleteRecords(share):
                self.broker.delete_records(share)
            case LoseFile(number):
                self.broker.lose_file(number)
            case DropSnapshots():
                self.broker.drop_snapshots()
            case NewLeader(truncate_batches):
                self.broker.new_leader(truncate_batches)
                for sidecar in self.sidecars:
                    sidecar.facts.leader = self.broker.leader_epoch % len(self.sidecars)
            case Wait(milliseconds):
                self.clock.advance_ms(milliseconds)
            case Restart(forgets):
                self._restart(self.leader, forgets=forgets)
            case CompactGroups():
                self._compact_groups()
            case Upload() | Compact() | Collect() | Undo():
                self._process(step)
            case Restore(faults):
                self._restore(faults)
            case Verify(faults, is_deep):
                self._verify(faults, is_deep=is_deep)
            case DamageCheckpoint():
                self._damage_checkpoint()
            case HideCommit(steps):
                self._hide_commit(steps)

    def _restart(self, sidecar: Sidecar, *, forgets: bool = False) -> None:
        if forgets:
            self._died(sidecar)
        sidecar.end(forgets=forgets)
        sidecar.begin()
        self.checker.group_starts.clear()

    def _compact_groups(self) -> None:
        broker, sidecar = self.broker, self.leader
        with self._typed_errors("CompactGroups"):
            if sidecar.compactor.cycle():
                for segment in broker.segments[:-1]:
                    self.checker.group_starts.setdefault(segment.base_offset, broker.deleted_before_offset)

    def _note_losses(self) -> None:
        """Whoever records a loss logs it: at once, or where a fault hides whether the commit exists, when its journal shows it."""
        self._take_losses()
        spans = [(line["from_offset"], line["to_offset"]) for line in self.logs if line["event"] in LOSSES]
        for begin, end in tuple(self._unlogged):
            if any(first <= begin and end <= last for first, last in spans):
                del self._unlogged[begin, end]
        silent = [lost for lost, owner in self._unlogged.items() if owner in self._well]
        if silent:
            raise Finding("silent-loss", f"{silent} were recorded and not logged by a round without an error")

    def _take_losses(self) -> None:
        for key in self.store.objects.keys() - self._read_commits:
            if "/commits/" in key:
                self._read_commits.add(key)
                commit = decode_commit(self.store.objects[key])
                lost = [(found.base_offset, found.end_offset) for found in commit.actions if isinstance(found, Lost)]
                self._unlogged |= dict.fromkeys(lost, commit.writer.broker_id - 1)

    def _died(self, sidecar: Sidecar) -> None:
        """A process that is gone logs nothing of what it recorded."""
        self._take_losses()
        self._unlogged = {lost: owner for lost, owner in self._unlogged.items() if owner != sidecar.number}

    # Processes.

    def _process(self, step: Process) -> None:
        match step:
            case Upload():
                self._upload(step)
            case Compact():
                self._compact(step)
            case Collect():
                self._collect(step)
            case Undo():
                self._undo(step)

    @contextmanager
    def _typed_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except SidecarError as error:
            self.figures.errors[type(error).__name__] += 1
        except Finding:
            raise
        except UNTYPED as error:
            raise Finding("untyped-error", f"{what}: {error!r}") from error

    def _arm(self, link: Link, step: Process) -> None:
        link.arm(step.faults, is_stale=step.is_stale)
        meanwhile = step.meanwhile
        if meanwhile is not None:
            link.interrupt_at, link.interrupt = meanwhile.call, lambda: self._meanwhile(meanwhile, step)

    def _meanwhile(self, meanwhile: Meanwhile, outer: Step) -> None:
        inner = meanwhile.step
        self.figures.steps[f"{type(inner).__name__} during {type(outer).__name__}"] += 1
        if isinstance(inner, Upload) and isinstance(outer, Upload) and inner.is_zombie == outer.is_zombie:
            return  # A sidecar has no two rounds at once.
        self._act(inner)

    def _upload(self, step: Upload) -> None:
        sidecar = self.leader
        if step.is_zombie:
            sidecar = self.sidecars[1 - sidecar.number]
            sidecar.facts.is_asleep = True
        self._arm(sidecar.link, step)
        try:
            with self._typed_errors("Upload"):
                errors = sidecar.round().errors
                self.figures.errors.update(type(error).__name__ for error in errors)
                if not errors:
                    self._well.add(sidecar.number)
        except Crash:
            self.figures.errors["Crash"] += 1
            self._died(sidecar)
            self._restart(sidecar)
        finally:
            sidecar.facts.is_asleep = False
            sidecar.link.arm()

    def _compact(self, step: Compact) -> None:
        self.done.compactions += 1
        root = self._root()
        if root is None:
            return
        link, sidecar = self._link(), self.leader
        clock = sidecar.clock
        self._arm(link, step)
        staging = self.home / f"staging-{len(self.opened)}"
        staging.mkdir()
        self.opened.append(link)
        try:
            with self._typed_errors("Compact"):
                policy = sidecar.given.of_topic(TOPIC)
                assert policy is not None
                led = sidecar.led(root)
                seen = CandidateAssessor(link, clock)(led, policy)
                now_ms = self.done.now_ms = max(self.done.now_ms, clock.now_ms())
                strategy = self.settings.strategy
                rules = CompactionRules(
                    now_ms,
                    Strategy(strategy.value),
                    header="version" if strategy == "header" else "",
                    delete_retention_ms=self.settings.delete_retention_ms,
                    segment_bytes=self.settings.segment_bytes,
                )
                request = CompactionRequest(
                    root,
                    rules,
                    None if step.is_by_hand else Writer(sidecar.number + 1, led.leader_epoch, "compacts"),
                    seen.first_uncleanable_offset,
                    self.settings.keep_raw_ms,
                )
                compactor = ArchiveCompactor(
                    STORE,
                    LocalEngine(),
                    clock,
                    None if self.settings.staged_in_store else staging,
                    confirm=lambda _, decided: None if step.is_by_hand else sidecar.jobs._confirm(led, decided),
                    split_bytes=4096,
                    randomness=self.randomness,
                )
                (result,) = compactor.compact([request])
                if result.error is not None:
                    self.figures.errors[type(result.error).__name__] += 1
        except Crash:
            self.figures.errors["Crash"] += 1
        finally:
            self.opened.pop()
            shutil.rmtree(staging)

    def _undo(self, step: Undo) -> None:
        root = self._root()
        if root is None:
            return
        link = self._link()
        self._arm(link, step)
        self.done.undos += 1
        try:
            with self._typed_errors("Undo"):
                try:
                    undone = undo_compaction(link, root, self.leader.clock, randomness=self.randomness)
                except SidecarError as error:
                    self.done.undos -= proves_not_committed(error)
                    raise
                if undone.commit_number is None:
                    self.done.undos -= 1
                    self.figures.steps["Undo without effect"] += 1
                elif f"{root}/{commit_key(undone.commit_number)}" not in self.store.objects:
                    raise Finding("undo-not-committed", f"commit {undone.commit_number} does not exist")
        except Crash:
            self.figures.errors["Crash"] += 1

    def _collect(self, step: Collect) -> None:
        root = self._root()
        if root is None:
            return
        link, sidecar = self._link(), self.leader
        self._arm(link, step)
        clock = AheadClock(self.clock, self.settings.ahead_ms) if step.is_ahead else AheadClock(self.clock, 0)
        before, begun_ms = self.checker.view.follow(), self.clock.now_ms()
        grace_ms = self.settings.grace_period_ms
        collector = GcTask(replace(sidecar.context, store=link, clock=clock), grace_ms)
        collector.offer([LedPartition(PARTITION, root, self.broker.leader_epoch, 0)])
        try:
            with self._typed_errors("Collect"):
                collector()
        except Crash:
            self.figures.errors["Crash"] += 1
        due = {} if before is None else {found.segment_id: begun_ms + grace_ms for found in before.segments}
        for found in () if before is None else before.removed:
            removed_ms = self.store.modified_ms.get(f"{root}/{commit_key(found.removed_by_commit)}", begun_ms)
            due[found.segment_id] = removed_ms + found.keep_ms + grace_ms
        for key, deleted_ms in link.deleted:
            due_ms = next((at_ms for segment_id, at_ms in due.items() if segment_id in key), 0)
            if due_ms > deleted_ms:
                raise Finding("deleted-before-grace", f"{key}: {due_ms - deleted_ms} ms too early")

    def _root(self) -> ObjectKey | None:
        view = self.checker.view
        view.follow()
        return view.root

    def _restore(self, faults: tuple[Fault, ...]) -> None:
        root = self._root()
        state = self.checker.view.state
        if root is None or state is None or not state.segments:
            return
        self._restores += 1
        log_dir = self.home / f"restored-{self._restores}"
        log_dir.mkdir()
        (log_dir / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={CLUSTER_ID}\n")
        request = RestoreRequest(TOPIC, log_dir, topic_id=TOPIC_ID, leader_epochs=LeaderEpochMode.KEEP)
        report = self._restored(request, faults) if faults else None
        if report is None or report.exit_code:
            report = self._restored(request, ())
        if report is None or report.exit_code:
            problem = "raised" if report is None else str([found.problem for found in report.outcomes])
            gap = NARROW_GAP.search(problem)
            if gap and self.checker.is_too_narrow(*map(int, gap.groups())):
                return  # It says what to do. See transactions_first.py.
            raise Finding("restore-refused", f"{problem}, unreadable {report and report.unreadable}")
        (outcome,) = report.outcomes
        assert outcome.log is not None
        directory = log_dir / str(PARTITION)
        self.checker.check_restored(committed_in(directory), outcome.log.start_offset)
        if state.start_offset == 0 and not state.holes and not state.deleted_before_offset:
            end_offset = outcome.log.added_from_offset  # Behind it lies what the restore itself wrote.
            found = producers_in((directory / f"{end_offset:020d}.snapshot").read_bytes())
            if found != self.broker.boundaries[end_offset]:
                raise Finding("restored-producers", f"{found}, expected {self.broker.boundaries[end_offset]}")
        shutil.rmtree(log_dir)

    def _restored(self, request: RestoreRequest, faults: tuple[Fault, ...]) -> RestoreReport | None:
        link = self._link()
        link.arm(faults)
        try:
            with self._typed_errors("Restore"):
                return restore(link, self.clock, request)
        except Crash:
            self.figures.errors["Crash"] += 1
        return None

    def _verify(self, faults: tuple[Fault, ...], *, is_deep: bool) -> None:
        root = self._root()
        if root is None:
            return
        link, problems = self._link(), ["verify raised an error"]
        link.arm(faults)
        try:
            with self._typed_errors("Verify"):
                found = verify_partition(link, root, self.clock, deep=is_deep)
                problems = [str(problem) for problem in found.problems if problem.kind is not ProblemKind.CHECKPOINT]
        except Crash:
            self.figures.errors["Crash"] += 1
        if problems and not faults:
            raise Finding("verify", str(problems[:3]))

    def _damage_checkpoint(self) -> None:
        keys = sorted(key for key in self.store.objects if "/checkpoints/" in key)
        for key in keys[-1:]:
            self.store.damage(key, lambda body: body[:20] + bytes((body[20] ^ 1,)) + body[21:])

    def _hide_commit(self, steps: tuple[Process, ...]) -> None:
        root, state = self._root(), self.checker.view.state
        if root is None or state is None:
            return
        numbers = [
            number for number in range(state.next_number) if f"{root}/{checkpoint_key(number)}" in self.store.objects
        ]
        if not numbers:
            return
        key = f"{root}/{commit_key(numbers[-1])}"
        body, modified_ms = self.store.objects.pop(key), self.store.modified_ms.pop(key)
        objects = set(self.store.objects)
        for sidecar in self.sidecars:
            self._restart(sidecar, forgets=True)
        self.checker.view.is_paused = True
        for step in steps:
            self.clock.advance_ms(3 * SECOND_MS)
            self._process(step)
        self.checker.view.is_paused = False
        appended = [found for found in self.store.objects if "/commits/" in found and found not in objects]
        if appended:
            raise Finding("history-forked", f"{key} was missing, and {appended} came on top")
        self.store.objects[key], self.store.modified_ms[key] = body, modified_ms

    # The end.

    def settle(self) -> None:
        """Faults have stopped: all that is rolled is archived, compacted, cleared up and restored. Raises Finding."""
        if 0 < self.broker.log.end_offset <= self.broker.log_start_offset:
            # Whether a transaction is open that began below, shows only with the next record.
            self.broker.append(Random(0), 1)
        self.broker.end_transactions()
        self.broker.roll()
        rounds = ROUNDS_UNTIL_ARCHIVED * (2 if self.settings.before_upload else 1)
        for _ in range(rounds):
            self.do(Wait(11 * MINUTE_MS))
            self.do(Upload())
            self.do(CompactGroups())
            if self._is_archived():
                break
        else:
            state = self.checker.view.state
            raise Finding("not-archived", f"up to {state and state.end_offset} after {rounds} rounds")
        if self.checker.view.state is None:
            return
        if (
            self._unlogged
        ):  # Whose sidecar could not read its commit back before the other broker led, logs it when it leads again.
            for step in (NewLeader(), Wait(11 * MINUTE_MS), Upload()):
                self.do(step)
        if self._unlogged:
            raise Finding("silent-loss", f"{self._unlogged} were recorded and not logged")
        self.do(Wait(10 * DAY_MS))
        self._compact_without_error()
        self._collect_without_rest()
        self.do(Restore())
        self.do(Verify())
        self.figures.commits = self.checker.view.state.next_number
        self.figures.trace = self._trace.hexdigest()

    def _is_archived(self) -> bool:
        state, broker = self.checker.view.state, self.broker
        is_undecidable = any(broker.is_gone(offset, offset + 1) for offset, _ in broker.log.markers.values())
        if is_undecidable and not self.settings.asks_broker:
            return True  # Files do not tell how a transaction ended whose marker went with a file.
        if state is None:
            # Nothing is rolled, and no commit can name what went before it was archived.
            return len(broker.segments) == 1
        return state.end_offset == broker.segments[-1].base_offset

    def _compact_without_error(self) -> None:
        errors = self.figures.errors.total()
        self.do(Compact())
        if self.figures.errors.total() != errors:
            raise Finding("not-compacted", f"{self.figures.errors}")

    def _collect_without_rest(self) -> None:
        for _ in range(2):
            self.do(Wait(ORPHAN_MS + self.settings.grace_period_ms + self.settings.keep_raw_ms + 3 * DAY_MS))
            self.do(Collect())
        state, view = self.checker.view.state, self.checker.view
        if state is None or not state.segments:
            return
        live = {f"{view.root}/{key}" for found in state.segments for key in (found.log_key, found.indexes_key)}
        left = {key for key in self.store.objects if "/segments/" in key or key.startswith("staging/")} - live
        known = {found.segment_id for found in self.leader.context.journal.attempts(view.root or "")}
        left = {key for key in left if not any(segment_id in key for segment_id in known)}
        begun = {found.key for found in self.store.unfinished if not any(name in found.key for name in known)}
        if left or state.removed or begun:
            raise Finding(
                "garbage-left", f"{sorted(left)[:4]}, removed: {state.removed[:2]}, begun: {sorted(begun)[:2]}"
            )


def run(history: History, *, observe: Callable[[Step], None] = lambda _step: None) -> Figures:
    """Run it. Raises Finding."""
    opened: list[Link] = []
    with ExitStack() as stack:
        stack.enter_context(in_one_thread(lambda: opened[-1]))
        parent = MEMORY if MEMORY.is_dir() else None
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=parent, prefix="history-")))
        world = World(history, home, stack, opened)
        for step in history.steps:
            observe(step)
            world.do(step)
        world.settle()
    return world.figures
