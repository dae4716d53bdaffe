"""The processes of a history: sidecars beside two brokers, of which one leads, each with its own way to the store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sidecar.compactor.archive_job import ArchiveJobs
from sidecar.compactor.candidate_queue import LedPartition
from sidecar.compactor.group_compactor import GroupCompactor
from sidecar.compactor.topic_rule import TopicRule
from sidecar.config import CompactionSettings
from sidecar.config import Settings as RunSettings
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.host.archive_cache import ArchiveCache
from sidecar.host.journal import Journal
from sidecar.host.pinned_files import PinnedFiles
from sidecar.metrics import Metrics
from sidecar.model import ObjectKey, PartitionFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import Settling
from sidecar.partition.run_limits import RunLimits
from sidecar.partition.wait_reason import NotLeader
from sidecar.ports import FactsState
from sidecar.randomness import Randomness
from sidecar.rewriting.local_engine import LocalEngines
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.checks import CycleReport
from sidecar.runner.context import RunContext
from sidecar.store_settings import StoreSettings
from sidecar.topic_policy import TopicPolicy
from tests.compactor.before_upload_rig import before_upload
from tests.fakes.disk_with_room import DiskWithRoom
from tests.fakes.manual_clock import ManualClock
from tests.histories.broker import CLUSTER_ID, PARTITION, BrokerPartition
from tests.histories.faults import Link
from tests.histories.history import Settings


class AheadClock:
    """Another clock, moved by so much."""

    def __init__(self, clock: ManualClock, ahead_ms: int) -> None:
        self._clock, self._ahead_ms = clock, ahead_ms

    def now_ms(self) -> int:
        """See `Clock`."""
        return self._clock.now_ms() + self._ahead_ms

    def monotonic_s(self) -> float:
        """See `Clock`."""
        return self._clock.monotonic_s()

    def sleep_s(self, seconds: float) -> None:
        """See `Clock`."""
        self._clock.sleep_s(seconds)


@dataclass(slots=True)
class Facts:
    """Implements `ports.BrokerFacts`: what the broker of this number says. Asleep it says what it said last."""

    broker: BrokerPartition
    number: int
    asks: bool
    leader: int = 0
    is_asleep: bool = False
    _known: PartitionFacts | None = None

    def cluster_id(self) -> str:
        """See `BrokerFacts`."""
        return CLUSTER_ID

    def broker_id(self) -> int:
        """See `BrokerFacts`."""
        return self.number + 1

    def refresh(self) -> None:
        """See `BrokerFacts`."""
        if self.is_asleep and self._known is not None:
            return
        broker, leads = self.broker, self.leader == self.number
        self._known = PartitionFacts(
            PARTITION,
            None,
            leads=leads,
            leader_epoch=broker.leader_epoch,
            stable_end_offset=broker.log.last_stable_offset if self.asks else broker.log.end_offset,
            log_start_offset=broker.log_start_offset,
            reason=None if leads else NotLeader(),
            transactions_decided=self.asks,
            transaction_open=self.asks and bool(broker.log.open),
            cluster_start_offset=broker.log_start_offset if self.asks else None,
        )

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        """See `BrokerFacts`."""
        assert self._known is not None
        return replace(self._known, topic_id=files.topic_id)

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


def compaction_settings(settings: Settings) -> CompactionSettings:
    """The topic's, in the product's words. Records are due as soon as they are there."""
    topic: dict[str, Any] = {
        "pattern": ".*",
        "strategy": settings.strategy.value,
        "when": "before_upload" if settings.before_upload else "after_upload",
        "min_compaction_lag_ms": settings.min_compaction_lag_ms,
        "max_compaction_lag_ms": 10**15,
        "delete_retention_ms": settings.delete_retention_ms,
        "ignore_cleanup_policy": True,
    }
    if settings.strategy == "header":
        topic["header"] = "version"
    return CompactionSettings.model_validate({"topics": [topic]})


class Sidecar:
    """One `run` beside one broker. `begin` after `end` is its restart."""

    def __init__(
        self, number: int, home: Path, link: Link, facts: Facts, settings: Settings, randomness: Randomness
    ) -> None:
        self.randomness = randomness
        self.number, self.home, self.link, self.facts, self.settings = number, home, link, facts, settings
        ahead_ms = settings.ahead_ms if number else 0
        clock = link.store.clock
        assert isinstance(clock, ManualClock)
        self.clock = AheadClock(clock, ahead_ms)
        self.copies = home / "copies"
        self.given = compaction_settings(settings)
        self._metrics = Metrics(self.clock)
        self.begin()

    def begin(self) -> None:
        """Start the process."""
        self.copies.mkdir(parents=True, exist_ok=True)
        self.link.is_dead = False
        self.memory = ArchiveCache(self.home)
        self.context = RunContext(
            store=self.link,
            facts=self.facts,
            clock=self.clock,
            metrics=self._metrics,
            journal=Journal(self.home),
            policy=RunLimits(
                settling=Settling(0, 0),
                workers=1,
                uploads_ahead=self.settings.uploads_ahead,
                producer_id_expiration_ms=None,
                record_lost=True,
            ),
            instance=f"sidecar-{self.number}",
            pinned=PinnedFiles(files=DiskWithRoom()),
            memory=self.memory,
            randomness=self.randomness,
        )
        self.waiting = before_upload(self.given, self.clock)
        self.compactor = GroupCompactor(self.waiting, self.context, LocalEngines(), lambda: self.copies)
        self._scan = partial(scan_log_dirs, [self.facts.broker.log_dir], TopicFilter((".*",)))
        self.rounds = ArchiveLoop(self.context, self._scan, self.waiting)
        run_settings = RunSettings(store=StoreSettings(url="/nowhere"))
        self.jobs = ArchiveJobs(run_settings, self.context, LocalEngines(), lambda _: TopicRule(None))

    def end(self, *, forgets: bool = False) -> None:
        """The process ends. `forgets`: its volume goes with it."""
        self.context.journal.close()
        self.context.pinned.release()
        self.memory.close()
        shutil.rmtree(self.copies, ignore_errors=True)
        if forgets:
            shutil.rmtree(self.home)
            self.home.mkdir()

    def led(self, root: ObjectKey) -> LedPartition:
        """The partition, as `run` offers it for compaction."""
        (files,) = self._scan().partitions
        return LedPartition(PARTITION, root, self.facts.broker.leader_epoch, 0, files)

    def round(self) -> CycleReport:
        """Scan, plan, archive."""
        return self.rounds.run_once()


@contextmanager
def sidecars(
    home: Path, links: list[Link], broker: BrokerPartition, settings: Settings, randomness: Randomness
) -> Iterator[tuple[Sidecar, ...]]:
    """One for each link."""
    found = tuple(
        Sidecar(
            number, home / f"sidecar-{number}", link, Facts(broker, number, settings.asks_broker), settings, randomness
        )
        for number, link in enumerate(links)
    )
    try:
        yield found
    finally:
        for sidecar in found:
            sidecar.end()
