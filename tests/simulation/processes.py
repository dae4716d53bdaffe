"""The sidecars of a simulation: the product's own code beside symbolic brokers, each with its own clock and way to the store."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from random import Random
from typing import Final

from sidecar.archive.keys import parse_root
from sidecar.compactor.before_upload import BeforeUpload
from sidecar.compactor.candidate_queue import LedPartition
from sidecar.discovery.scan import ScanResult
from sidecar.errors import BrokerUnavailable
from sidecar.host.pinned_files import PinnedFiles
from sidecar.metrics import Metrics
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.domain_events import DomainEvent
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import Settling
from sidecar.partition.run_limits import RunLimits
from sidecar.partition.wait_reason import BrokerAway, NotLeader, StrayDirectory, Wait
from sidecar.ports import FactsState
from sidecar.randomness import Randomness
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.checks import CycleReport
from sidecar.runner.context import RunContext
from sidecar.topic_policy import TopicPolicy
from tests.simulation.clocks import SimClock, VirtualTime
from tests.simulation.cluster import CLUSTER_ID, Partition
from tests.simulation.compactor import SimCompactor, before_upload
from tests.simulation.decision import topic_policy
from tests.simulation.disk import SimDisk
from tests.simulation.findings import Finding
from tests.simulation.host import Host
from tests.simulation.link import SimLink
from tests.simulation.reading import SimReader
from tests.simulation.replica import Replica
from tests.simulation.schedule import UNLIMITED
from tests.simulation.steps import SimSteps
from tests.simulation.volume import MemoryCache, MemoryJournal

AWAY: Final = BrokerAway("it does not answer")


@dataclass(slots=True)
class SimFacts:
    """Implements `ports.BrokerFacts` for the broker of a host. Asleep it says what it said last; away it says nothing.

    Without a connection it says what the files of the broker say, as `FileBrokerFacts`.
    """

    host: Host
    paused: Callable[[str], None]
    has_connection: bool = True
    is_asleep: bool = False
    is_away: bool = False
    known: dict[TopicPartition, PartitionFacts] = field(default_factory=dict)
    start_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """The highest log start that the leader has said, of the topics as they are now."""
    strategies: list[str | None] = field(default_factory=lambda: [None])
    """The compaction strategy of the topic's configs as this sidecar knows them, the newest one last; None for none."""
    _confirmed: Counter[TopicPartition] = field(default_factory=Counter)
    _committed: dict[TopicPartition, str] = field(default_factory=dict)
    """How often `confirm` has said that it leads, less the commits for which that was used; and the last one of these."""

    def cluster_id(self) -> str:
        """See `BrokerFacts`."""
        return CLUSTER_ID

    def broker_id(self) -> int:
        """See `BrokerFacts`."""
        return self.host.number

    def refresh(self) -> None:
        """See `BrokerFacts`."""
        if self.is_away:
            return
        for partition in self.host.partitions:
            if not (self.is_asleep and self._may_not_know(partition)):
                self.known[partition.topic_partition] = self._facts_of(partition)

    def _may_not_know(self, cluster: Partition) -> bool:
        """Whether the broker may still say what it said last: a log with records of a later leader is that of a follower."""
        if not self.known:
            return False
        found = self.known.get(cluster.topic_partition)
        return found is None or cluster.replicas[self.host.number].epochs.latest_epoch <= found.leader_epoch

    def _facts_of(self, cluster: Partition) -> PartitionFacts:
        number = self.host.number
        log, leads = cluster.replicas[number], cluster.leader == number
        if not self.has_connection:
            return self._read(cluster, log)
        stable_end_offset = cluster.stable_end_offset if leads else 0
        start_offset, name = cluster.led.log_start_offset, cluster.topic_partition
        self.start_offsets[name] = max(start_offset, self.start_offsets.get(name, 0))
        return PartitionFacts(
            name,
            cluster.topic_id,
            leads=leads,
            leader_epoch=cluster.leader_epoch,
            stable_end_offset=stable_end_offset,
            log_start_offset=log.log_start_offset,
            reason=None if leads else NotLeader(),
            transactions_decided=True,
            transaction_open=leads and stable_end_offset < log.high_watermark,
            cluster_start_offset=start_offset,
        )

    def _read(self, cluster: Partition, log: Replica) -> PartitionFacts:
        leads = self.host.number == 0
        return PartitionFacts(
            cluster.topic_partition,
            cluster.topic_id,
            leads=leads,
            leader_epoch=log.epochs.latest_epoch,
            stable_end_offset=log.high_watermark,
            log_start_offset=log.log_start_offset,
            reason=None if leads else Wait.LEADERSHIP_NOT_ON_DISK,
        )

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        """See `BrokerFacts`."""
        found = self.known.get(files.topic_partition)
        if found is None:
            return PartitionFacts(files.topic_partition, files.topic_id, False, -1, 0, files.first_offset or 0, AWAY)
        if None not in (ids := (files.topic_id, found.topic_id)) and ids[0] != ids[1]:
            stray = StrayDirectory(str(files.topic_id), str(found.topic_id))
            return PartitionFacts(files.topic_partition, files.topic_id, False, -1, 0, files.first_offset or 0, stray)
        reason = AWAY if self.is_away else found.reason
        if (found.topic_id, found.reason) == (files.topic_id, reason):
            return found
        return replace(found, topic_id=files.topic_id, reason=reason)

    def confirm(self, files: PartitionFiles) -> PartitionFacts:
        """See `BrokerFacts`."""
        if self.is_away:
            raise BrokerUnavailable("away")
        self.refresh()
        found = self.partition(files)
        # A copy task and a compaction may be under way, each with an answer of its own.
        self._confirmed[files.topic_partition] = min(2, self._confirmed[files.topic_partition] + found.leads)
        self.paused("confirm")  # What was true when the broker said so may have changed when it is heard.
        return found

    def is_confirmed(self, key: str) -> bool:
        """Whether it has said that it leads, for this commit of an uploaded segment or of a loss."""
        topic_partition = _topic_partition_of(key.partition("/commits/")[0])
        if self._committed.get(topic_partition) != key:
            if not self._confirmed[topic_partition]:
                return False
            self._confirmed[topic_partition] -= 1
            self._committed[topic_partition] = key
        return True

    def policy(self, _topic: str) -> TopicPolicy:
        """See `BrokerFacts`."""
        return topic_policy(self.strategies[-1], self.host.partitions[0].is_cleaned)  # All are of one topic.

    def strategy(self) -> str | None:
        """Of the topic, as its configs are now."""
        return self.strategies[-1]

    def topics(self) -> None:
        """See `BrokerFacts`."""
        return

    def state(self) -> FactsState:
        """See `BrokerFacts`."""
        return FactsState(None, AWAY if self.is_away else None)


@dataclass(slots=True)
class Volume:
    """What of a sidecar outlives its process."""

    journal: MemoryJournal = field(default_factory=MemoryJournal)
    memory: MemoryCache = field(default_factory=MemoryCache)


@lru_cache
def _topic_partition_of(root: str) -> TopicPartition:
    return parse_root(root).topic_partition


@cache
def _metrics() -> Metrics:
    """Never read, and rendering them takes as long as some rounds."""
    return Metrics(VirtualTime())


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of a sidecar. `compacts`: before the upload. `numbers`: no two are the same."""

    uploads_ahead: int
    max_queue: int
    task_s: float
    compacts: bool
    workers: int
    numbers: Iterator[int]
    retry_wait_s: float
    pins: int
    records_lost: bool
    has_connection: bool

    @property
    def is_cut_off(self) -> bool:
        """Whether a round may leave segments to the next one."""
        return self.max_queue < UNLIMITED or self.task_s < math.inf


class Sidecar:
    """One `run` beside one broker. `begin` after `end` is its restart."""

    def __init__(
        self,
        host: Host,
        link: SimLink,
        clock: SimClock,
        randomness: Randomness,
        setup: Setup,
        events: list[tuple[int, DomainEvent]],
    ) -> None:
        """Args: events: takes what it says, with its number."""
        self.number, self.link, self.clock = host.number, link, clock
        self.facts = SimFacts(host, link.pause, setup.has_connection)
        self.volume = Volume()
        self.is_busy = False
        self.compactor: SimCompactor | None = None
        self._host, self._randomness = host, randomness
        self.setup, self._events = setup, events
        self.begin()

    def begin(self) -> None:
        """Start the process."""
        self.link.is_dead, self.link.is_confirmed = False, self.facts.is_confirmed
        self.link.arm()
        self.link.is_late = self.link.is_proven = False
        self.disk = SimDisk(self._host, self.clock.time.now_ms)
        self.pinned = PinnedFiles(limit=self.setup.pins, emit=self._emit, files=self.disk)
        self.context = RunContext(
            store=self.link,
            facts=self.facts,
            clock=self.clock,
            metrics=_metrics(),
            journal=self.volume.journal,
            policy=self._policy(),
            instance=f"sidecar-{self.number}",
            emit=self._emit,
            randomness=self._randomness,
            pinned=self.pinned,
            memory=self.volume.memory,
            read_segment=SimReader(self.disk, self.link.pause),
            disk=self.disk,
            require_safe_store=self.link.require_safe_store,
        )
        self.steps = SimSteps()
        self._process = ExitStack()
        self._loop = self._process.enter_context(
            ArchiveLoop(self.context, self._scan, self._before_upload(), executor=lambda _workers: self.steps)
        )

    def _scan(self, doubted: Collection[Path] = ()) -> ScanResult:
        """Much may happen between the broker's answer and the listing."""
        if self.link.interrupt_operation == "scan":  # Else this counts as no call.
            self.link.pause("scan")
        return self._host.scan(doubted)

    def _emit(self, event: DomainEvent) -> None:
        self._events.append((self.number, event))

    def _policy(self) -> RunLimits:
        return RunLimits(
            settling=Settling(0, 0),
            workers=self.setup.workers,
            uploads_ahead=self.setup.uploads_ahead,
            max_queue=self.setup.max_queue,
            task_s=self.setup.task_s,
            retry_wait_s=self.setup.retry_wait_s,
            producer_id_expiration_ms=None,
            record_lost=self.setup.records_lost,
            spares_cache=False,
            readers_per_disk=2,  # A step in the middle of which others run has one turn, and would keep it for ever.
        )

    def adopt(self, setup: Setup) -> None:
        """Other settings hold, as after a reload: also for tasks that are under way."""
        compacted, self.setup = self.setup.compacts, setup
        self.context.adopt(self._policy())
        if compacted != setup.compacts:
            self._loop.adopt(self._scan, self._before_upload() or self._waiting(compacts=False))

    def _before_upload(self) -> BeforeUpload | None:
        """What holds segments back, by the settings as they are now."""
        self.compactor = None
        if self.setup.compacts:
            waiting = self._waiting(compacts=True)
            self.compactor = SimCompactor(waiting, self.disk, self.clock, self.setup.numbers)
        return None if self.compactor is None else self.compactor.waiting

    def _waiting(self, *, compacts: bool) -> BeforeUpload:
        return before_upload(self.clock, self.facts.strategy, compacts=compacts)

    def require_no_leak(self) -> None:
        """Every descriptor is of a pin. Only where it is idle. Raises Finding."""
        left = self.disk.opened.keys() - set(self.pinned._pinned.values())
        if left:
            raise Finding("descriptor-leak", f"sidecar {self.number}: {[self.disk.opened[n] for n in left]}")

    @property
    def pins(self) -> int:
        """How many files are pinned."""
        return len(self.pinned._pinned)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way: no call, no step, no task."""
        return not self.is_busy and not self._loop.is_busy

    def kill(self, *, forgets: bool = False) -> None:
        """The process ends at once, as by `kill -9`. `forgets`: its volume goes with it."""
        self._process.pop_all()
        if forgets:
            self.volume = Volume()

    def stop(self) -> None:
        """The process ends as by `kill`: what is uploaded is committed, nothing else is begun. Raises Finding."""
        self.context.stop.set()
        self._process.close()
        if self.disk.opened:
            raise Finding("descriptor-leak", f"sidecar {self.number}, at its end: {list(self.disk.opened.values())}")

    def run(self, moves: int | None = None, order: int | None = None, *, checks: bool = True) -> CycleReport | None:
        """Check, plan and archive; the report, None where something is left under way.

        Args:
            moves: stop after so many moves (see `SimSteps`). Default: when nothing is left to be done.
            order: decides which step comes first, of those that may. Default: the oldest.
            checks: begin a check, even where tasks are under way. Otherwise go on with what was begun.
        """
        loop, steps = self._loop, self.steps
        steps.random = None if order is None else Random(order)
        if moves is None and not self.is_checking:
            loop.cycle()
        elif (checks or not loop.is_busy) and not self.is_checking:
            loop.begin_check()
        end = math.inf if moves is None else steps.moves + moves
        loop.drive(lambda: not loop.is_busy or steps.moves >= end)
        return None if loop.is_busy else loop.finish()

    def go_on(self, moves: int) -> None:
        """Other threads and the loop go on, as far as they can, while a step of this sidecar is in the middle of a call."""
        loop, steps, end = self._loop, self.steps, self.steps.moves + moves
        loop.drive(lambda: not steps.has_work or steps.moves >= end)

    def led(self, topic_partition: TopicPartition) -> LedPartition | None:
        """A partition as others may work on its archive, None where they may not."""
        found = (led for led in self._loop.checks.led() if led.topic_partition == topic_partition)
        return next(found, None)

    @property
    def is_checking(self) -> bool:
        """Whether a check is under way."""
        return self._loop.checks.is_under_way
