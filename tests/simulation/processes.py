"""The sidecars of a simulation: the product's own code beside symbolic brokers, each with its own clock and way to the store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

from sidecar.discovery.scan import ScanResult
from sidecar.host.archive_cache import ArchiveCache
from sidecar.host.pinned_files import PinnedFiles
from sidecar.metrics import Metrics
from sidecar.model import PartitionFiles
from sidecar.partition.domain_events import DomainEvent
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import Settling
from sidecar.partition.wait_reason import NotLeader
from sidecar.pipeline.tools import Policy, Tools
from sidecar.ports import FactsState
from sidecar.randomness import Randomness
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.cycle_report import CycleReport
from sidecar.topic_policy import TopicPolicy
from tests.simulation.clocks import SimClock, VirtualTime
from tests.simulation.cluster import CLUSTER_ID, Partition
from tests.simulation.disk import SimDisk
from tests.simulation.journal import MemoryJournal
from tests.simulation.link import SimLink
from tests.simulation.reading import SimReader


@dataclass(slots=True)
class SimFacts:
    """Implements `ports.BrokerFacts` for the broker of this number. Asleep it says what it said last."""

    cluster: Partition
    number: int
    is_asleep: bool = False
    known: PartitionFacts | None = None

    def cluster_id(self) -> str:
        """See `BrokerFacts`."""
        return CLUSTER_ID

    def broker_id(self) -> int:
        """See `BrokerFacts`."""
        return self.number

    def refresh(self) -> None:
        """See `BrokerFacts`."""
        if self.is_asleep and self.known is not None:
            return
        cluster = self.cluster
        log, leads = cluster.replicas[self.number], cluster.leader == self.number
        stable_end_offset = cluster.stable_end_offset if leads else 0
        self.known = PartitionFacts(
            cluster.topic_partition,
            None,
            leads=leads,
            leader_epoch=cluster.leader_epoch,
            stable_end_offset=stable_end_offset,
            log_start_offset=log.log_start_offset,
            reason=None if leads else NotLeader(),
            transactions_decided=True,
            transaction_open=leads and stable_end_offset < log.high_watermark,
            cluster_start_offset=cluster.led.log_start_offset,
        )

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        """See `BrokerFacts`."""
        assert self.known is not None
        return replace(self.known, topic_id=files.topic_id)

    def confirm(self, files: PartitionFiles) -> PartitionFacts:
        """See `BrokerFacts`."""
        self.refresh()
        return self.partition(files)

    def policy(self, _topic: str) -> TopicPolicy:
        """See `BrokerFacts`."""
        return TopicPolicy()

    def topics(self) -> None:
        """See `BrokerFacts`."""
        return

    def state(self) -> FactsState:
        """See `BrokerFacts`."""
        return FactsState(None)


@dataclass(slots=True)
class Volume:
    """What of a sidecar outlives its process."""

    journal: MemoryJournal = field(default_factory=MemoryJournal)
    memory: ArchiveCache = field(default_factory=ArchiveCache)


@cache
def _metrics() -> Metrics:
    """Never read, and rendering them takes as long as some rounds."""
    return Metrics(VirtualTime())


class Sidecar:
    """One `run` beside one broker. `begin` after `end` is its restart."""

    def __init__(
        self,
        number: int,
        link: SimLink,
        cluster: Partition,
        clock: SimClock,
        randomness: Randomness,
        uploads_ahead: int,
        events: list[DomainEvent],
    ) -> None:
        """Args: events: takes what it says."""
        self.number, self.link, self.clock = number, link, clock
        self.facts = SimFacts(cluster, number)
        self.volume = Volume()
        self.is_busy = False
        self._cluster, self._randomness = cluster, randomness
        self._uploads_ahead, self._events = uploads_ahead, events
        self.begin()

    def begin(self) -> None:
        """Start the process."""
        self.link.is_dead = False
        self.link.arm()
        self.link.is_late = False
        self.disk = SimDisk(self._cluster.replicas[self.number], self.clock.time.now_ms)
        self.held = PinnedFiles(limit=64, emit=self._events.append, files=self.disk)
        self.tools = Tools(
            store=self.link,
            facts=self.facts,
            clock=self.clock,
            metrics=_metrics(),
            journal=self.volume.journal,
            policy=Policy(
                settling=Settling(0, 0),
                workers=1,
                uploads_ahead=self._uploads_ahead,
                producer_id_expiration_ms=None,
                record_lost=True,
                spares_cache=False,
            ),
            instance=f"sidecar-{self.number}",
            emit=self._events.append,
            randomness=self._randomness,
            held=self.held,
            memory=self.volume.memory,
            read_segment=SimReader(self.disk),
            disk=self.disk,
        )
        self.rounds = ArchiveLoop(self.tools, self._scan)

    def _scan(self) -> ScanResult:
        return ScanResult((self._cluster.replicas[self.number].files(),), ())

    def end(self, *, forgets: bool = False) -> None:
        """The process ends. `forgets`: its volume goes with it."""
        if forgets:
            self.volume.memory.close()
            self.volume = Volume()

    def round(self) -> CycleReport:
        """Scan, plan, archive."""
        return self.rounds.run_once()
