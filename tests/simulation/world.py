"""Runs a schedule: each step, each check, and at the end whether everything comes right once faults have stopped."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Final

import structlog

from sidecar.archive.keys import checkpoint_key, commit_key, id_of
from sidecar.commits.commit_window import COMMIT_WITHIN_MS
from sidecar.compactor.candidate_queue import LedPartition
from sidecar.errors import SidecarError
from sidecar.model import ObjectKey, TopicPartition
from sidecar.partition.domain_events import DomainEvent
from sidecar.pipeline.compaction.clearing_up import ClearingUp
from sidecar.randomness import SeededRandomness
from tests.fakes.memory_store import unwatched
from tests.histories.faults import Crash
from tests.histories.one_thread import in_one_thread
from tests.simulation.clocks import SimClock, VirtualTime
from tests.simulation.cluster import TOPIC, Partition
from tests.simulation.codec import Codec
from tests.simulation.compactor import OpenCopies
from tests.simulation.findings import Finding
from tests.simulation.invariants import Checker
from tests.simulation.link import Late, SimLink
from tests.simulation.processes import Setup, Sidecar
from tests.simulation.schedule import (
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    Append,
    Collect,
    Compact,
    DeleteRecords,
    Fetch,
    Hide,
    Jump,
    Land,
    NewLeader,
    Process,
    Restart,
    Retention,
    Roll,
    Round,
    Schedule,
    Shrink,
    Step,
    Wait,
)
from tests.simulation.store import SimStore
from tests.simulation.volume import MemoryJournal

PARTITION: Final = TopicPartition(TOPIC, 0)
TOPIC_ID: Final = id_of((7).to_bytes(16, "big"))
LATE_MS: Final = 10 * MINUTE_MS
"""No request is on its way for longer."""
PAUSE_MS: Final = COMMIT_WITHIN_MS - HOUR_MS
"""A process sleeps no longer than this between the check of its upload's age and the commit: gc allows for no more."""
ROUNDS_UNTIL_ARCHIVED: Final = 6
"""After faults stop: rounds of the leader's sidecar within which all that is rolled is archived."""


@dataclass(slots=True)
class Figures:
    """Of one schedule or of many. `errors`: what processes reported, by class.

    `trace`: of one schedule, hash of all that happened.
    """

    steps: Counter[str] = field(default_factory=Counter)
    faults: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    segments: int = 0
    compacted: int = 0
    trace: str = ""

    def add(self, other: Figures) -> None:
        """Take in those of another schedule."""
        self.steps += other.steps
        self.faults += other.faults
        self.errors += other.errors
        self.commits += other.commits
        self.segments += other.segments
        self.compacted += other.compacted


class World:
    """Two brokers with a replica each, the store, a sidecar beside each broker, and the invariants."""

    def __init__(self, schedule: Schedule, simulation: Simulation) -> None:
        self.schedule, self.figures, self._logs = schedule, Figures(), simulation.logs
        self._trace = hashlib.sha256()
        self._late: Late = []
        self.time = VirtualTime()
        with unwatched():  # What a symbolic segment holds is no log to anyone else.
            self.store = SimStore(self.time)
        numbers = count(1)
        topic_id = TOPIC_ID if schedule.has_topic_id else None
        self.cluster = Partition(PARTITION, topic_id, schedule.shape, self.time, numbers)
        self._events: list[DomainEvent] = []
        self._randomness = SeededRandomness(schedule.seed)
        setup = Setup(schedule.uploads_ahead, schedule.max_queue, schedule.task_s, schedule.compacts, numbers)
        self.sidecars = tuple(
            Sidecar(
                number,
                self._link(),
                self.cluster,
                SimClock(self.time),
                self._randomness,
                setup,
                self._events,
            )
            for number in self.cluster.replicas
        )
        self.checker = Checker(self.store, self.cluster, simulation.codec.decode_commit)

    def _link(self) -> SimLink:
        return SimLink(self.store, self.figures.faults, self._trace.update, late=self._late)

    def do(self, step: Step) -> None:
        """One step, and what is to be checked behind it. Raises Finding."""
        self.time.advance_ms(3 * SECOND_MS)
        self._logs.clear()
        self._events.clear()
        self._act(step)
        for event in self._events:
            self._trace.update(type(event).__name__.encode())
        for line in self._logs:
            if line["log_level"] == "critical":
                raise Finding("untyped-error", str(line))
        self.checker.check(tuple(sidecar for sidecar in self.sidecars if sidecar.is_idle))

    def _act(self, step: Step) -> None:
        self.figures.steps[type(step).__name__] += 1
        self._trace.update(f"{type(step).__name__} at {self.time.elapsed_ms}\n".encode())
        cluster = self.cluster
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
                cluster.shrink(1 - cluster.leader)
            case Fetch():
                cluster.replicate()
            case NewLeader(fetches):
                if cluster.elect(1 - cluster.leader) and fetches:
                    cluster.replicate()
            case Land():
                self._land()
            case Wait(milliseconds):
                if milliseconds > LATE_MS:
                    self._land()
                self.time.advance_ms(milliseconds)
            case Jump(broker, milliseconds):
                self.sidecars[broker].clock.skew_ms += milliseconds
            case Restart(broker, forgets, stops):
                if stops and not self.sidecars[broker].is_busy:
                    self._stop(self.sidecars[broker])
                self._restart(self.sidecars[broker], forgets=forgets)
            case Compact(broker, sweeps):
                self._compact(self._beside(broker), sweeps=sweeps)
            case Round():
                self._round(step)
            case Collect():
                self._collect(step)
            case Hide(steps, forgets):
                self._hide(steps, forgets=forgets)

    def _land(self) -> None:
        late, self._late[:] = list(self._late), []
        for put in late:
            put()

    def _restart(self, sidecar: Sidecar, *, forgets: bool = False) -> None:
        if not sidecar.is_busy:
            sidecar.kill(forgets=forgets)
            sidecar.begin()

    def _stop(self, sidecar: Sidecar) -> None:
        sidecar.is_busy = True
        try:
            with self._typed_errors("Stop"):
                sidecar.stop()
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
        self._trace.update(type(error).__name__.encode())

    def _arm(self, link: SimLink, step: Process) -> None:
        link.arm(step.faults, is_stale=step.is_stale)
        link.is_late = step.is_late
        meanwhile = step.meanwhile
        if meanwhile is not None:
            link.interrupt_at, link.interrupt = meanwhile.call, lambda: self._meanwhile(meanwhile.steps, step, link)

    def _meanwhile(self, steps: tuple[Step, ...], outer: Process, link: SimLink) -> None:
        self.figures.steps[f"meanwhile in {type(outer).__name__}"] += 1
        until_ms = self.time.elapsed_ms + PAUSE_MS
        for step in steps:
            self.time.advance_ms(1)
            if isinstance(step, Wait) and isinstance(outer, Round) and link.operation != "upload":
                step = Wait(min(step.milliseconds, max(0, until_ms - self.time.elapsed_ms)))
            self._act(step)

    def _round(self, step: Round) -> None:
        sidecar = self._beside(step.broker)
        if sidecar.is_busy:
            return  # A sidecar has no two rounds at once.
        sidecar.is_busy, sidecar.facts.is_asleep = True, step.is_asleep
        self._arm(sidecar.link, step)
        has_crashed = False
        try:
            with self._typed_errors("Round"):
                report = sidecar.run(step.moves, step.order, checks=step.checks)
                for error in () if report is None else report.errors:
                    self._note(error)
        except Crash as error:
            has_crashed = True
            self._note(error)
        finally:
            sidecar.is_busy = sidecar.facts.is_asleep = False
            sidecar.link.arm()
        if has_crashed:
            self._restart(sidecar)

    def _compact(self, sidecar: Sidecar, *, sweeps: bool) -> None:
        compactor = sidecar.compactor
        if compactor is not None:
            with self._typed_errors("Compact"):
                compactor.turn()
            if sweeps:
                compactor.sweep()

    def _collect(self, step: Collect) -> None:
        """Beside a sidecar that believes to lead, with its journal and clock, or by hand; with its own way to the store."""
        sidecar, root = self._beside(step.broker), self._root()
        known = sidecar.facts.known
        if root is None or known is None or not (known.leads or step.is_by_hand):
            return
        link = self._link()
        self._arm(link, step)
        tools = replace(sidecar.tools, store=link)
        if step.is_by_hand:
            tools = replace(tools, journal=MemoryJournal(), instance="by-hand")
        collector = ClearingUp(tools, self.schedule.grace_period_ms)
        collector.offer([LedPartition(PARTITION, root, known.leader_epoch, 0)])
        try:
            with self._typed_errors("Collect"):
                collector()
        except Crash as error:
            self._note(error)

    def _hide(self, steps: tuple[Round, ...], *, forgets: bool) -> None:
        root, key = self._root(), self._missed_commit(forgets=forgets)
        if root is None or key is None:
            return
        for sidecar in self.sidecars if forgets else ():
            self._restart(sidecar, forgets=True)
        missing = self.store.take_away(key)
        objects = set(self.store.objects)
        for step in steps:
            self.time.advance_ms(3 * SECOND_MS)
            self._act(step)
        appended = [found for found in self.store.objects if "/commits/" in found and found not in objects]
        if appended:
            raise Finding("history-forked", f"{key} was missing, and {appended} came on top")
        self.store.give_back(key, *missing)

    def _missed_commit(self, *, forgets: bool) -> str | None:
        """The newest commit that a checkpoint shows, or that the leader's sidecar knows; None where it is another."""
        root, state = self._root(), self.checker.state
        if root is None or state is None:
            return None
        if forgets:
            numbers = (number for number in reversed(range(state.next_number)))
            known = (number for number in numbers if f"{root}/{checkpoint_key(number)}" in self.store.objects)
            number = next(known, None)
            return None if number is None else f"{root}/{commit_key(number)}"
        remembered = self._beside(None).volume.memory.recall(PARTITION)
        if remembered is None or remembered.state.next_number != state.next_number:
            return None
        return f"{root}/{commit_key(state.next_number - 1)}"

    def _beside(self, broker: int | None) -> Sidecar:
        return self.sidecars[self.cluster.leader if broker is None else broker]

    def _root(self) -> ObjectKey | None:
        key = next((key for key in self.store.objects if "/commits/" in key), None)
        return None if key is None else ObjectKey(key.partition("/commits/")[0])

    # The end.

    def settle(self) -> None:
        """Faults have stopped: all that is rolled is archived, and nothing else is left. Raises Finding."""
        cluster = self.cluster
        for sidecar in self.sidecars:
            sidecar.clock.skew_ms = 0
        cluster.replicate()
        cluster.end_transactions()
        led = cluster.led
        led.roll()
        # Where plans or tasks are cut off, each round gets on by one segment at least.
        cut_off = len(led.segments) if self.schedule.is_cut_off else 0
        for _ in range(ROUNDS_UNTIL_ARCHIVED + cut_off):
            self.do(Wait(11 * MINUTE_MS))
            self.do(Round())
            if self._is_archived():
                break
        else:
            raise Finding(
                "not-archived", f"up to {self._end_offset} of {led.segments[-1].base_offset}, {self._logs[-3:]}"
            )
        self._collect_all()
        if self.checker.state is not None:
            self.figures.commits = self.checker.state.next_number
            self.figures.segments = len(self.checker.state.segments)
            self.figures.compacted = sum(bool(found.generation) for found in self.checker.state.segments)
        self.figures.trace = self._trace.hexdigest()

    @property
    def _end_offset(self) -> int | None:
        return None if self.checker.state is None else self.checker.state.end_offset

    def _is_archived(self) -> bool:
        led = self.cluster.led
        if self.checker.state is None:
            return len(led.segments) == 1
        # Without a topic id and an archived batch in the log, no proof exists that this log continues the archived one.
        # The archive may end with a gap: what counts is where its last segment ends.
        last = self.checker.state.last_segment
        if self.cluster.topic_id is None and (last is None or led.segments[0].base_offset >= last.end_offset):
            return True
        return self._end_offset == led.segments[-1].base_offset

    def _collect_all(self) -> None:
        for _ in range(2):
            self.do(Wait(100 * HOUR_MS))
            self.do(Collect())
        state, root = self.checker.state, self._root()
        if state is None or root is None:
            return
        live = {f"{root}/{key}" for found in state.segments for key in (found.log_key, found.indexes_key)}
        journal = self._beside(None).volume.journal
        kept = {attempt.segment_id for attempt in journal.attempts(root)}
        left = {key for key in self.store.objects if "/segments/" in key} - live
        left = {key for key in left if not any(segment_id in key for segment_id in kept)}
        if left:
            raise Finding("garbage-left", f"{sorted(left)[:4]}")


PLAIN_ONE_IN: Final = 16
"""Of so many schedules one parses all that it reads."""


@dataclass(slots=True)
class Simulation:
    """What many schedules have in common."""

    logs: list[structlog.typing.EventDict]
    codec: Codec = field(default_factory=Codec)


_simulations: Final[list[Simulation]] = []
"""The one that is under way, if one is."""


@contextmanager
def simulating() -> Iterator[None]:
    """Schedules that run meanwhile share what takes a while to set up."""
    if _simulations:
        yield
        return
    with structlog.testing.capture_logs() as logs, in_one_thread(_no_store):
        _simulations.append(Simulation(logs))
        try:
            yield
        finally:
            _simulations.clear()


def _no_store() -> SimLink:
    raise NotImplementedError("no engine compacts here")


def run(schedule: Schedule, *, observe: Callable[[Step], None] = lambda _step: None) -> Figures:
    """Run it. Raises Finding."""
    with simulating(), ExitStack() as resources:
        (simulation,) = _simulations
        simulation.codec.forget()
        if schedule.seed % PLAIN_ONE_IN:
            resources.enter_context(simulation.codec.in_use())
        if schedule.compacts:
            resources.enter_context(OpenCopies().in_use())
        world = World(schedule, simulation)
        for step in schedule.steps:
            observe(step)
            world.do(step)
        world.settle()
    return world.figures
