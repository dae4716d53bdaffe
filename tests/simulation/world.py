"""The world of a schedule: brokers with their replicas, the store, a sidecar beside each broker, and the invariants."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Final, get_args

import structlog

from sidecar.archive.actions import LossReason, Lost
from sidecar.archive.commit import Commit
from sidecar.archive.keys import checkpoint_key, commit_key, id_of
from sidecar.commits.commit_window import COMMIT_WITHIN_MS
from sidecar.compactor.archive.undo import undo_compaction
from sidecar.compactor.candidate_queue import LedPartition
from sidecar.compactor.gc import GcTask
from sidecar.errors import CommitRefused, CoverageHole, LineageUnknown, SidecarError
from sidecar.model import ObjectKey, TopicPartition
from sidecar.partition import wait_reason
from sidecar.partition.domain_events import DeletedRecordsUnknown, DomainEvent, OffsetsLost, PinReleased
from sidecar.partition.status import PartitionOutcome
from sidecar.runner.checks import CycleReport
from tests.fakes.memory_store import unwatched
from tests.fakes.seeded_randomness import SeededRandomness
from tests.histories.faults import Crash
from tests.simulation.archive_compactor import compact_by_hand, compact_in_run
from tests.simulation.clocks import SimClock, VirtualTime
from tests.simulation.cluster import TOPIC, Partition, log_dir_of
from tests.simulation.deletions import DeletionWatch, require_shown_deletion_noted
from tests.simulation.figures import Figures
from tests.simulation.findings import Finding
from tests.simulation.host import Host
from tests.simulation.invariants import Checker
from tests.simulation.link import Late, SimLink
from tests.simulation.losses import LossReports, require_not_truncated
from tests.simulation.pins import LostFiles, OrphanedPins, PinWatch, require_no_stale_pin, require_none_pinned
from tests.simulation.processes import Setup, Sidecar
from tests.simulation.retained import compaction_of
from tests.simulation.schedule import (
    ENOUGH_PINS,
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    UNLIMITED,
    Append,
    Away,
    BrokerStep,
    ChangeStrategy,
    Clean,
    Collect,
    Compact,
    CompactArchive,
    DeleteRecords,
    Disk,
    Fetch,
    GoOn,
    Hide,
    Jump,
    Land,
    LoseFile,
    Move,
    NewLeader,
    Process,
    Recreate,
    Reload,
    Restart,
    Retention,
    Roll,
    Round,
    Schedule,
    Shrink,
    Step,
    Touch,
    UncleanLeader,
    Undo,
    Wait,
)
from tests.simulation.store import SimStore
from tests.simulation.unrecorded import UnrecordedLosses
from tests.simulation.volume import MemoryJournal

TOPIC_ID: Final = id_of((7).to_bytes(16, "big"))
LATE_MS: Final = 10 * MINUTE_MS
"""No request is on its way for longer."""
PAUSE_MS: Final = COMMIT_WITHIN_MS - HOUR_MS
"""A process sleeps no longer than this between the check of its upload's age and the commit: gc allows for no more."""
CUT_OFF_ONE_IN: Final = 4
"""After faults stop, plans and tasks are still cut off in one schedule of so many: it takes many rounds."""
_BROKER_STEPS: Final = get_args(BrokerStep)
ROUNDS_UNTIL_ARCHIVED: Final = 6
"""After faults stop: rounds of the leader's sidecar within which all that is rolled is archived."""


class World:
    """`partitions`: as they are now; a topic that is created again has another one. `checkers`: by root of a lineage.

    `_report`: of the newest round, None where it was cut off. `_errors`: by broker, at the end.
    `_unfinished`: partitions with something left to do, or to wait for, after the newest round at the end.
    """

    def __init__(
        self,
        schedule: Schedule,
        logs: list[structlog.typing.EventDict],
        stores: list[SimLink],
        decode: Callable[[bytes], Commit],
    ) -> None:
        """Build it.

        Args:
            logs: what the product has logged.
            stores: takes the store that compaction is to use.
            decode: reads a commit's bytes.
        """
        self._stores = stores
        self.schedule, self.figures, self._logs, self._decode = schedule, Figures(), logs, decode
        self._trace: list[bytes] = []
        self._late: Late = []
        self._landed = 0
        self._recreated = set[TopicPartition]()
        self._reports, self._pins, self._unrecorded = LossReports(), PinWatch(), UnrecordedLosses()
        self._deletions, self._orphans, self._lost_files = DeletionWatch(), OrphanedPins(), LostFiles()
        self._report: CycleReport | None = None
        self._errors: dict[tuple[int, TopicPartition], SidecarError | None] = {}
        self._unfinished = set[tuple[int, TopicPartition]]()
        self.time = VirtualTime()
        with unwatched():  # What a symbolic segment holds is no log to anyone else.
            self.store = SimStore(self.time)
        self.store.gives_times = schedule.gives_times
        self._numbers = count(1)
        self.partitions: list[Partition] = []
        self.checkers: dict[str, Checker] = {}
        for number in range(schedule.partitions):
            self.partitions.append(self._created(number, TOPIC_ID if schedule.has_topic_id else None))
        self.hosts = tuple(Host(number, self.partitions) for number in self.partitions[0].replicas)
        self._events: list[tuple[int, DomainEvent]] = []
        self._randomness = SeededRandomness(schedule.seed)
        setup = Setup(
            schedule.uploads_ahead,
            schedule.max_queue,
            schedule.task_s,
            schedule.compacts,
            schedule.workers,
            self._numbers,
            schedule.retry_wait_s,
            schedule.pins,
            schedule.records_lost,
            schedule.has_connection,
        )
        self.sidecars = tuple(
            Sidecar(host, self._link(), SimClock(self.time), self._randomness, setup, self._events)
            for host in self.hosts
        )
        for sidecar in self.sidecars:
            sidecar.link.committing = partial(self._committing, sidecar)
            sidecar.facts.strategies = [schedule.strategy]

    def _note_rules(self, rules: Callable[[], Sequence[str | None]], key: str, body: bytes) -> None:
        commit = self._decode(body)
        if compaction_of(commit) is not None:
            self.checkers[key.partition("/commits/")[0]].rules[commit.nonce] = tuple(rules())

    def _committing(self, sidecar: Sidecar, key: str, body: bytes) -> None:
        checker = self.checkers.get(key.partition("/commits/")[0])
        if checker is None:
            return
        commit = self._decode(body)
        if compaction_of(commit) is not None:
            checker.rules[commit.nonce] = tuple(sidecar.facts.strategies)
        if checker.cluster not in self.partitions:
            return
        if not sidecar.setup.records_lost:
            require_not_truncated(checker, commit)
        lost = [found for found in commit.actions if isinstance(found, Lost) and found.reason == LossReason.NOT_ON_DISK]
        if lost:
            require_none_pinned(sidecar, checker, lost)
        if lost and not sidecar.setup.records_lost:
            start_offset = sidecar.facts.start_offsets.get(checker.cluster.topic_partition, 0)
            if lost[-1].end_offset > start_offset:
                raise Finding("passed-over", f"{lost}: the leader's log starts at {start_offset}")

    def _created(self, number: int, topic_id: str | None) -> Partition:
        partition = Partition(TopicPartition(TOPIC, number), topic_id, self.schedule.shape, self.time, self._numbers)
        self.checkers[partition.lineage.root] = Checker(
            self.store, partition, self._decode, self.schedule.grace_period_ms
        )
        return partition

    def _link(self) -> SimLink:
        return SimLink(self.store, self.figures.faults, self._trace.append, late=self._late)

    def do(self, step: Step) -> None:
        """One step, and what is to be checked behind it. Raises Finding."""
        self.time.advance_ms(3 * SECOND_MS)
        self._logs.clear()
        self._events.clear()
        for sidecar in self.sidecars:
            del sidecar.facts.strategies[:-1]
        self._report, before, ends = None, self._unrest(), self._ends()
        self._act(step)
        self._trace.append("".join([type(event).__name__ for _, event in self._events]).encode())
        for line in self._logs:
            if line["log_level"] == "critical":
                raise Finding("untyped-error", str(line))
        self._check(has_landed=before[-1] != self._landed)
        self._orphans.check(self._events)
        self._lost_files.check(self._events)
        self._check_losses(is_calm=before == self._unrest(), is_whole=ends == self._ends())
        if isinstance(step, Round):
            self._check_pins(step)

    def _check_pins(self, step: Round) -> None:
        for broker in {broker for broker, event in self._events if isinstance(event, PinReleased)}:
            self._pins.forget(broker)
        unknown = [(broker, event) for broker, event in self._events if isinstance(event, DeletedRecordsUnknown)]
        roots = {cluster.topic_partition: cluster.lineage.root for cluster in self.partitions}
        self._deletions.forget((broker, roots[event.topic_partition]) for broker, event in unknown)
        sidecar, report = self._beside(step.broker), self._report
        if report is None or step.meanwhile is not None or sidecar.facts.is_away or self._may_release(sidecar):
            return
        outcomes = {found.files.topic_partition: found for found in (*report.backed_off, *report.outcomes)}
        for cluster in self.partitions:
            self._require_reason(cluster, outcomes.get(cluster.topic_partition))
            self._unrecorded.see(sidecar, cluster, self.checkers[cluster.lineage.root])
            self._deletions.see(sidecar, cluster, self.checkers[cluster.lineage.root])
            require_no_stale_pin(sidecar, cluster, outcomes.get(cluster.topic_partition))
        if sidecar.setup.pins == ENOUGH_PINS and not sidecar.setup.compacts:
            self._pins.check(sidecar, self.partitions, self.checkers, outcomes)

    def _require_reason(self, cluster: Partition, outcome: PartitionOutcome | None) -> None:
        """Where not all that is rolled is archived, its sidecar says why, whatever stops it."""
        if outcome is None or outcome.error is not None or outcome.reason is not None or not outcome.files.segments:
            return
        archived_to, rolled_to = self._end_offset(cluster) or 0, outcome.files.segments[-1].end_offset
        if archived_to < rolled_to:
            raise Finding(
                "no-reason", f"{cluster.topic_partition}: archived up to {archived_to}, rolled up to {rolled_to}"
            )

    def _may_release(self, sidecar: Sidecar) -> bool:
        """Whether its broker or its disks let it release pins. A broker that does not answer does not."""
        host = self.hosts[sidecar.number]
        return sidecar.facts.is_asleep or host.free_share < 1 or bool(host.away)

    def _unrest(self) -> tuple[int, ...]:
        """It changes with each call that fails, each process that ends, and each late request."""
        figures = self.figures
        return (
            sum(figures.faults.values()),
            sum(figures.errors.values()),
            figures.steps.get("Restart", 0),
            figures.steps.get("Recreate", 0),
            self._landed,
        )

    def _ends(self) -> tuple[int, ...]:
        """It changes with each process that ends, and each late request."""
        steps = self.figures.steps
        ended = self.figures.errors.get("Crash", 0), steps.get("Restart", 0), steps.get("Recreate", 0)
        return *ended, steps.get("Hide", 0), self._landed

    def _check_losses(self, *, is_calm: bool, is_whole: bool) -> None:
        lost = [found for found in self._events if isinstance(found[1], OffsetsLost)]
        checked = [self.checkers[cluster.lineage.root] for cluster in self.partitions]
        is_needed = bool(lost) or any(checker.losses for checker in checked)  # In few steps.
        checkers = {checker.cluster.topic_partition: checker for checker in checked if is_needed}
        # What was said in a step in which a topic was created again, or by a check that began before, may be of the one before.
        left_out = self._recreated
        if left_out and all(sidecar.is_idle for sidecar in self.sidecars):
            self._recreated = set()
        states = {name: found for name, found in checkers.items() if not (found.is_forked or name in left_out)}
        losses = {name: found.losses if is_calm else found.losses_alone for name, found in checkers.items()}
        self._reports.check(lost, states, losses, is_calm=is_calm, is_whole=is_whole)
        for checker in checkers.values():
            checker.losses.clear()
            checker.losses_alone.clear()

    def _check(self, *, has_landed: bool) -> None:
        for sidecar in self.sidecars:
            if sidecar.is_idle:
                sidecar.require_no_leak()
        changed: dict[str, list[str]] = {}
        for key in self.store.changed:
            for folder in ("/commits/", "/segments/"):
                root, _, name = key.partition(folder)
                if name:
                    changed.setdefault(root, []).append(key)
        self.store.changed.clear()
        for root, keys in changed.items():
            if root not in self.checkers:
                raise Finding("second-lineage", f"{keys} beside {list(self.checkers)}")
            checker = self.checkers[root]
            checker.check(keys)
            if checker.strategy_changes and not has_landed:
                self._require_warned(checker.strategy_changes)
            checker.strategy_changes.clear()

    def _require_warned(self, commits: Sequence[str]) -> None:
        if not any(line["event"] == "compaction_changes_strategy" for line in self._logs):
            raise Finding("strategy-changed-silently", f"{commits}")

    def _act(self, step: Step) -> None:
        self.figures.steps[type(step).__name__] += 1
        self._trace.append(f"{type(step).__name__} at {self.time.elapsed_ms}\n".encode())
        if isinstance(step, _BROKER_STEPS):
            self._act_on_log(step)
            return
        match step:
            case Land():
                self._land()
            case Wait(milliseconds):
                if milliseconds > LATE_MS:
                    self._land()
                self.time.advance_ms(milliseconds)
            case Jump(broker, milliseconds):
                self.sidecars[broker].clock.skew_ms += milliseconds
            case Restart(broker, forgets, stops):
                sidecar = self._beside(broker)
                if stops and sidecar.is_busy:
                    sidecar.context.stop.set()  # Its round ends, and it with it.
                elif stops:
                    self._stop(sidecar)
                self._restart(sidecar, forgets=forgets)
            case Reload(broker):
                self._reload(self._beside(broker), step)
            case Compact(broker, sweeps):
                self._compact(self._beside(broker), sweeps=sweeps)
            case Away(broker, is_away):
                self.sidecars[broker].facts.is_away = is_away
            case Disk(broker, number):
                self._pins.forget(broker)
                self._lost_files.forget(broker)
                self._change_disk(self.hosts[broker], log_dir_of(broker, number), step)
            case Round():
                self._round(step)
            case Collect():
                self._collect(step)
            case CompactArchive():
                self._compact_archive(step)
            case Undo():
                self._undo(step)
            case ChangeStrategy(strategy, broker):
                for sidecar in self.sidecars if broker is None else (self.sidecars[broker],):
                    sidecar.facts.strategies.append(strategy)
            case Hide():
                self._hide(step)

    def _act_on_log(self, step: BrokerStep) -> None:
        cluster = self.partition(step.partition)
        cluster.end_swaps()
        match step:
            case Append(seed, batches, lags):
                followers = frozenset(number for number in cluster.replicas if number != cluster.leader)
                cluster.append(Random(seed), batches, lagging=followers if lags else frozenset())
            case Roll(broker):
                cluster.replicas[broker].roll()
            case Retention(broker, segments):
                cluster.replicas[broker].delete_oldest(segments)
            case DeleteRecords(share):
                cluster.delete_records(share)
            case Shrink():
                cluster.shrink(cluster.next_broker())
            case Fetch():
                cluster.replicate()
            case NewLeader(fetches):
                if cluster.elect(cluster.next_broker()):
                    self._reports.elected(cluster)
                    if fetches:
                        cluster.replicate()
            case UncleanLeader():
                self._elect_unclean(cluster)
            case Move(broker, number):
                cluster.move(broker, number)
            case LoseFile(broker, number):
                cluster.replicate()
                self._pins.forget(broker, cluster.topic_partition)
                if (lost := cluster.replicas[broker].lose_file(number)) is not None:
                    self._lost_files.see(self.sidecars[broker], self.checkers[cluster.lineage.root], lost)
            case Touch(broker, number):
                cluster.replicas[broker].touch(number)
                self._pins.forget(broker, cluster.topic_partition)
            case Clean(broker, first, count, is_cut_off):
                cluster.clean(broker, first, count)
                if not is_cut_off:
                    cluster.end_swaps()
            case Recreate():
                self._recreate(step.partition % len(self.partitions))

    def partition(self, number: int = 0) -> Partition:
        """As it is now. Schedules that were made shorter may name more than there are."""
        return self.partitions[number % len(self.partitions)]

    def checker(self, number: int = 0) -> Checker:
        """Of the partition as it is now."""
        return self.checkers[self.partition(number).lineage.root]

    def _elect_unclean(self, cluster: Partition) -> None:
        cut_offset = cluster.elect_unclean(cluster.next_broker())
        self.checkers[cluster.lineage.root].note_cut(cut_offset)
        self._reports.elected(cluster)
        cluster.replicate()

    def _recreate(self, number: int) -> None:
        if not self.schedule.has_topic_id:
            return  # Under one name, no two topics could be distinguished.
        self.partitions[number].delete()
        for sidecar in self.sidecars:
            self._orphans.see(sidecar, self.checker(number))
        self._recreated.add(self.partitions[number].topic_partition)
        self._reports.forget(self.partitions[number].topic_partition)
        for sidecar in self.sidecars:
            sidecar.facts.start_offsets.pop(self.partitions[number].topic_partition, None)
        self.partitions[number] = self._created(number, id_of(next(self._numbers).to_bytes(16, "big")))

    @staticmethod
    def _change_disk(host: Host, log_dir: Path, step: Disk) -> None:
        host.free_share = step.free_share
        for is_so, log_dirs in ((step.is_away, host.away), (step.fails, host.failing)):
            if is_so:
                log_dirs.add(log_dir)
            else:
                log_dirs.discard(log_dir)

    def _land(self) -> None:
        late, self._late[:] = list(self._late), []
        self._landed += len(late)
        for put in late:
            put()

    def _restart(self, sidecar: Sidecar, *, forgets: bool = False) -> None:
        if not sidecar.is_busy:
            sidecar.kill(forgets=forgets)
            sidecar.begin()
            if forgets:
                self._unrecorded.forget(sidecar.number)

    def _stop(self, sidecar: Sidecar) -> None:
        sidecar.is_busy = True
        try:
            with self._typed_errors("Stop"):
                sidecar.stop()
        except Crash as error:  # Of a step before: its event waited when the round had made its moves.
            self._note(error)
        finally:
            sidecar.is_busy = False

    @contextmanager
    def _typed_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except SidecarError as error:
            self._note(error)
        except Finding:
            raise
        except Exception as error:
            raise Finding("untyped-error", f"{what}: {error!r}") from error

    def _note(self, error: BaseException) -> None:
        self.figures.errors[type(error).__name__] += 1
        self._trace.append(type(error).__name__.encode())

    def _note_full(self) -> None:
        self.figures.faults["StagingFull", "journal", False] += 1

    def _arm(self, link: SimLink, step: Process) -> None:
        link.arm(step.faults, is_stale=step.is_stale and self.store.gives_times)
        link.is_late = step.is_late
        link.lies, link.misreads = (step.lies, step.misreads) if isinstance(step, Round) else (0, 0)
        link.is_unsafe = isinstance(step, Round) and step.is_unsafe
        meanwhile = step.meanwhile
        if meanwhile is not None:
            link.interrupt_operation = meanwhile.operation
            link.interrupt_at, link.interrupt = meanwhile.call, lambda: self._meanwhile(meanwhile.steps, step, link)

    def _meanwhile(self, steps: tuple[Step, ...], outer: Process, link: SimLink) -> None:
        self.figures.steps[f"meanwhile in {type(outer).__name__}"] += 1
        until_ms = self.time.elapsed_ms + PAUSE_MS
        for step in steps:
            self.time.advance_ms(1)
            if isinstance(step, Wait) and isinstance(outer, Round | CompactArchive) and link.operation != "upload":
                step = Wait(min(step.milliseconds, max(0, until_ms - self.time.elapsed_ms)))
            if isinstance(step, GoOn):
                for sidecar in self.sidecars:
                    if sidecar.link is link:
                        sidecar.go_on(step.moves)
            else:
                self._act(step)

    def _round(self, step: Round) -> None:
        sidecar = self._beside(step.broker)
        if sidecar.is_busy:
            return  # A sidecar has no two rounds at once.
        was_idle = sidecar.is_idle
        sidecar.is_busy, sidecar.facts.is_asleep = True, step.is_asleep
        if self._may_release(sidecar):
            self._pins.forget(sidecar.number)
            self._lost_files.forget(sidecar.number)
        self._arm(sidecar.link, step)
        journal = sidecar.volume.journal
        if step.full is not None:
            journal.fill(range(*step.full), self._note_full)
        has_crashed, report = False, None
        try:
            with self._typed_errors("Round"):
                report = sidecar.run(step.moves, step.order, checks=step.checks)
                for error in () if report is None else report.errors:
                    self._note(error)
                    self._require_not_refused(sidecar, error)
        except Crash as error:
            has_crashed = True
            self._note(error)
        finally:
            sidecar.is_busy = sidecar.facts.is_asleep = False
            sidecar.link.arm()
            journal.fill(range(0), self._note_full)
        if sidecar.context.stop.is_set() and not has_crashed:
            self._stop(sidecar)
        if has_crashed or sidecar.context.stop.is_set():
            self._restart(sidecar)
        elif was_idle and not step.is_asleep:
            self._report = report

    @staticmethod
    def _require_not_refused(sidecar: Sidecar, error: SidecarError) -> None:
        """What a sidecar commits, the rules of the archive never refuse; where gaps are recorded, no other gap is an error."""
        if isinstance(error, CommitRefused) or (isinstance(error, CoverageHole) and sidecar.setup.records_lost):
            raise Finding("commit-refused", f"sidecar {sidecar.number}: {error!r}")

    @staticmethod
    def _reload(sidecar: Sidecar, step: Reload) -> None:
        sidecar.adopt(
            replace(
                sidecar.setup,
                uploads_ahead=step.uploads_ahead,
                max_queue=step.max_queue,
                task_s=step.task_s,
                compacts=step.compacts,
            )
        )

    def _compact(self, sidecar: Sidecar, *, sweeps: bool) -> None:
        compactor = sidecar.compactor
        if compactor is not None:
            with self._typed_errors("Compact"):
                compactor.cycle()
            if sweeps:
                compactor.sweep()

    def _collect(self, step: Collect) -> None:
        """Beside a sidecar that believes to lead, with its journal and clock, or by hand; with its own way to the store."""
        cluster = self.partition(step.partition)
        sidecar, root = self._beside(step.broker, step.partition), self._root(step.partition)
        known = sidecar.facts.known.get(cluster.topic_partition)
        if root is None or known is None or not (known.leads or step.is_by_hand):
            return
        link = self._link()
        context = replace(sidecar.context, store=link)
        if step.is_by_hand:
            context = replace(context, journal=MemoryJournal(), instance="by-hand")
        collector, led = GcTask(context, self.schedule.grace_period_ms), sidecar.led(cluster.topic_partition)
        found = LedPartition(cluster.topic_partition, root, known.leader_epoch, 0)
        if led is not None and not step.is_by_hand:
            found = replace(found, doubt=led.doubt)
        collector.offer([found])
        self._run_beside(step, link, collector)

    def _compact_archive(self, step: CompactArchive) -> None:
        sidecar = self._beside(step.broker, step.partition)
        led = sidecar.led(self.partition(step.partition).topic_partition)
        if led is None or (led.waits_because and not step.is_by_hand):
            return
        link, facts, asked = self._link(), sidecar.facts, 0
        context, given = replace(sidecar.context, store=link), step.strategy or facts.strategy()

        def strategy() -> str | None:
            nonlocal asked
            asked = len(facts.strategies) - 1
            return facts.strategy()

        def compact() -> None:
            if step.is_by_hand:
                errors = compact_by_hand(context, link, led.root, Random(step.seed), given)
            else:
                errors = compact_in_run(context, link, led, Random(step.seed), strategy)
            for error in errors:
                self._note(error)

        # What it asks right before its commit counts, and what changes between that and the put.
        link.committing = partial(self._note_rules, lambda: (given,) if step.is_by_hand else facts.strategies[asked:])

        self._run_beside(step, link, compact)

    def _undo(self, step: Undo) -> None:
        root = self._root(step.partition)
        if root is not None:
            link, clock = self._link(), SimClock(self.time)
            self._run_beside(step, link, lambda: undo_compaction(link, root, clock, randomness=self._randomness))

    def _run_beside(self, step: Process, link: SimLink, work: Callable[[], object]) -> None:
        """A process of its own, or a thread of a sidecar that is taken for one."""
        self._arm(link, step)
        before, self._stores[:] = list(self._stores), [link]
        try:
            with self._typed_errors(type(step).__name__):
                work()
        except Crash as error:
            self._note(error)
        finally:
            self._stores[:] = before

    def _hide(self, step: Hide) -> None:
        root, key = self._root(), self._missed(step)
        if root is None or key is None:
            return
        for sidecar in self.sidecars if step.forgets else ():
            self._restart(sidecar, forgets=True)
        missing = self.store.take_away(key)
        if step.damages:
            self.store.give_back(key, bytes(byte ^ 0x55 for byte in missing[0]), missing[1])
        objects = set(self.store.objects)
        for inner in step.steps:
            self.time.advance_ms(3 * SECOND_MS)
            self._act(inner)
        appended = [
            found for found in self.store.objects if found.startswith(f"{root}/commits/") and found not in objects
        ]
        if appended and not step.damages:
            raise Finding("history-forked", f"{key} was missing, and {appended} came on top")
        self.store.give_back(key, *missing)

    def _missed(self, step: Hide) -> str | None:
        """The newest commit that a checkpoint shows, or that the leader's sidecar knows; None where it is another.

        Where something is damaged, it is what the newest segment has besides its log.
        """
        root, state = self._root(), self.checker().state
        if root is None or state is None:
            return None
        if step.damages:
            last = state.last_segment
            return None if last is None else f"{root}/{last.indexes_key}"
        if step.forgets:
            numbers = (number for number in reversed(range(state.next_number)))
            known = (number for number in numbers if f"{root}/{checkpoint_key(number)}" in self.store.objects)
            number = next(known, None)
            return None if number is None else f"{root}/{commit_key(number)}"
        remembered = self._beside(None).volume.memory.recall(self.partition().topic_partition)
        # It may know that number of a topic that was deleted.
        if remembered is None or remembered.state.last_commit != state.last_commit:
            return None
        return f"{root}/{commit_key(state.next_number - 1)}"

    def _beside(self, broker: int | None, partition: int = 0) -> Sidecar:
        return self.sidecars[self.partition(partition).leader if broker is None else broker]

    def _root(self, partition: int = 0) -> ObjectKey | None:
        """Of what is archived of a partition as it is now, None for nothing."""
        checker = self.checker(partition)
        return None if checker.state is None else checker.root

    # The end.

    def settle(self) -> None:
        """Faults have stopped: all that is rolled is archived, and nothing else is left. Raises Finding."""
        for sidecar, host in zip(self.sidecars, self.hosts, strict=True):
            if self.schedule.seed % CUT_OFF_ONE_IN:
                sidecar.adopt(replace(sidecar.setup, max_queue=UNLIMITED, task_s=math.inf))
            sidecar.clock.skew_ms = 0
            sidecar.facts.is_away = False
            host.free_share = 1.0
            host.away.clear()
            host.failing.clear()
        for cluster in self.partitions:
            cluster.end_swaps()
            cluster.replicate()
            cluster.end_transactions()
            has_raised = cluster.stable_end_offset <= cluster.led.log_start_offset
            has_rolled = cluster.led.roll()
            if has_raised or (not has_rolled and self._has_unnoted(cluster)):
                # The next segment brings the note, and a stable offset that the log start has not raised.
                cluster.append(Random(self.schedule.seed), 1)
                cluster.end_transactions()
                cluster.led.roll()
        # Where plans or tasks are cut off, each round gets on by one segment at least, of those that only pins have, too.
        is_cut_off = any(sidecar.setup.is_cut_off for sidecar in self.sidecars)
        segments = sum(len(cluster.led.segments) for cluster in self.partitions)
        segments += sum(sidecar.pins for sidecar in self.sidecars)
        kept_out = set[TopicPartition]()
        for number in range(ROUNDS_UNTIL_ARCHIVED + (2 * segments if is_cut_off else 0)):
            # What fails rests in every second round: else what retention takes soon has the only place of a queue in all of them.
            self.do(Wait(10 * SECOND_MS if is_cut_off and number % 2 else 11 * MINUTE_MS))
            for broker in sorted({cluster.leader for cluster in self.partitions}):
                self.do(Round(broker))
                outcomes = () if self._report is None else self._report.outcomes
                # Where the queue was full, the error of its last task still says why it stopped.
                tried = (o for o in outcomes if o.error or o.reason is not wait_reason.Wait.NOT_ADMITTED)
                self._errors |= {(broker, found.files.topic_partition): found.error for found in tried}
                kept_out -= {o.files.topic_partition for o in outcomes}
                kept_out |= {o.files.topic_partition for o in outcomes if o.reason is wait_reason.Wait.NOT_ADMITTED}
                named = {(broker, o.files.topic_partition): o.error or o.reason for o in outcomes}
                if self._report is None:  # what it would have said is not known
                    named = {(broker, one.topic_partition): wait_reason.Wait.TASK_OVER for one in self.partitions}
                    kept_out |= {one.topic_partition for one in self.partitions}
                self._unfinished = (self._unfinished - named.keys()) | {name for name, why in named.items() if why}
            if all(map(self._is_archived, self.partitions)):
                break
        else:
            late = next(cluster for cluster in self.partitions if not self._is_archived(cluster))
            span = f"up to {self._end_offset(late)} of {late.led.segments[-1].base_offset}"
            raise Finding("not-archived", f"{late.topic_partition} {span}, {self._logs[-3:]}")
        for cluster in self.partitions:
            checker, name = self.checkers[cluster.lineage.root], cluster.topic_partition
            # One that the queue keeps out, or whose check was cut off, has not said yet what it lacks.
            is_heard = name not in kept_out and self._errors.get((cluster.leader, name)) is None
            if is_heard and not checker.is_forked:
                self._unrecorded.require_reported(cluster.leader, checker, self._reports.spans(name))
                if self.schedule.has_connection and self._end_offset(cluster) == cluster.led.segments[-1].base_offset:
                    require_shown_deletion_noted(cluster, checker.state)
        for number in range(len(self.partitions)):
            self._collect_all(number)
        for checker in self.checkers.values():
            if checker.state is not None:
                self.figures.commits += checker.state.next_number
                self.figures.segments += len(checker.state.segments)
                self.figures.compacted += sum(bool(found.generation) for found in checker.state.segments)
        self.figures.trace = hashlib.sha256(b"".join(self._trace)).hexdigest()

    def _has_unnoted(self, cluster: Partition) -> bool:
        state = self.checkers[cluster.lineage.root].state
        noted = 0 if state is None else state.deleted_before_offset
        return cluster.led.log_start_offset > noted and noted < cluster.truth.deleted_before_offset

    def _end_offset(self, cluster: Partition) -> int | None:
        state = self.checkers[cluster.lineage.root].state
        return None if state is None else state.end_offset

    def _is_archived(self, cluster: Partition) -> bool:
        led, checker = cluster.led, self.checkers[cluster.lineage.root]
        if checker.is_forked:
            return True  # A person decides.
        if not self.schedule.records_lost and self._is_refused(cluster, checker):
            return True
        if not (self.schedule.has_connection or self.schedule.shape.is_cleaned) and led.gaps():
            return True  # The end of a transaction may be gone with a file, and no broker says that it ended.
        archived_to = 0 if checker.state is None else checker.state.end_offset or 0
        if checker.state is None:
            return len(led.segments) == 1
        # It lacks what is archived: a person decides.
        if not self.schedule.shape.is_cleaned and any(
            gap < max(archived_to, led.log_start_offset) for gap in led.gaps()
        ):
            return True
        # Without a topic id and an archived batch in the log, which its cleaner may have taken, no proof exists that this log
        # continues the archived one.
        # The archive may end with a gap: what counts is where its last segment ends.
        last = checker.state.last_segment
        if cluster.topic_id is None and (last is None or led.segments[0].base_offset >= last.end_offset):
            return True
        is_unproven = isinstance(self._errors.get((cluster.leader, cluster.topic_partition)), LineageUnknown)
        if cluster.topic_id is None and cluster.truth.cleaned and is_unproven:
            return True
        # Nor by leader epochs where a cleaner took what the archive ends with, and a replica was fetched, or moved, since.
        if is_unproven and last is not None and last.end_offset - 1 in led.cleaned_offsets():
            return True
        return checker.state.end_offset == led.segments[-1].base_offset

    def _is_refused(self, cluster: Partition, checker: Checker) -> bool:
        """Whether its sidecar stops at a gap of the log, and says so."""
        state, error = checker.state, self._errors.get((cluster.leader, cluster.topic_partition))
        archived_to = 0 if state is None else state.end_offset or 0
        if not isinstance(error, CoverageHole):
            return False
        # What lacks batches may be left in a pin only. Else no replica has what lies below the leader's log start.
        is_deleted = error.hole is not None and archived_to <= error.hole[0] < cluster.led.log_start_offset
        is_deleted &= (
            error.hole is None or error.hole[1] > cluster.led.log_start_offset or self._beside(cluster.leader).pins > 0
        )
        # Files do not say that no other replica has what lies below their log start.
        is_below = not self.schedule.has_connection and cluster.led.segments[0].base_offset > archived_to
        return is_deleted or is_below or any(gap >= archived_to for gap in cluster.led.gaps())

    def _collect_all(self, number: int) -> None:
        for _ in range(2):
            self.do(Wait(100 * HOUR_MS))
            self.do(Collect(partition=number))
        checker = self.checker(number)
        state, root = checker.state, self._root(number)
        if state is None or root is None:
            return
        live = {f"{root}/{key}" for found in state.segments for key in (found.log_key, found.indexes_key)}
        cluster = self.partition(number)
        attempts = self._beside(None, number).volume.journal.attempts(root)
        is_unfinished = checker.is_forked or (cluster.leader, cluster.topic_partition) in self._unfinished
        for attempt in () if is_unfinished else attempts:
            if attempt.commit_number is None or attempt.commit_number < state.next_number:
                raise Finding("attempt-left", f"{attempt}, the archive from {state.start_offset}")
        kept = {attempt.segment_id for attempt in attempts}
        left = {key for key in self.store.objects if key.startswith(f"{root}/segments/")} - live
        left = {key for key in left if not any(segment_id in key for segment_id in kept)}
        if left and self.store.gives_times:  # Else nobody knows how old it is.
            raise Finding("garbage-left", f"{sorted(left)[:4]}")
