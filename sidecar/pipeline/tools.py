"""What the pipeline works with: one frozen value, built once by the daemon or the command line."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

from sidecar.clock import Clock, SystemClock
from sidecar.host.archive_cache import ArchiveCache
from sidecar.host.disk_turns import DiskTurns
from sidecar.host.journal import Journal
from sidecar.host.pinned_files import PinnedFiles
from sidecar.metrics import Metrics
from sidecar.partition.domain_events import Emit
from sidecar.partition.plan import Settling
from sidecar.ports import BrokerFacts, ObjectStore
from sidecar.randomness import Randomness, SystemRandomness
from sidecar.reporting.log_sink import log_event
from sidecar.segment.local_disk import LocalDisk
from sidecar.segment.log_disk import LogDisk
from sidecar.segment.reading import ReadSegment, read_segment
from sidecar.storage.bandwidth import IoBudget
from sidecar.topic_policy import TopicPolicy


@dataclass(frozen=True, slots=True)
class Policy:
    """Numbers that shape the work.

    `uploads_ahead`: segments of one partition that may be in flight at once; commits stay in order.
    `producer_id_expiration_ms`: the brokers' `producer.id.expiration.ms`, None for never; what the broker itself says counts
    instead, unless `expiration_is_given`. See `expiration_ms`.
    `index_interval_bytes`: the topics' `index.interval.bytes`, for indexes that must be rebuilt.
    `max_queue`: segments that are planned at once. `task_s`: when this has passed, a task begins no further segments, so that
    others get their turn. `retry_wait_s`: how long a partition backs off after an error.
    `spares_cache`: give back what only we brought into the page cache. `readers_per_disk`, `pause_above_percent`: see `DiskTurns`.
    `record_lost`: go on above a hole and record it, instead of stopping the partition.
    """

    workers: int = 2
    uploads_ahead: int = 2
    settling: Settling = field(default_factory=lambda: Settling(settle_ms=5_000, snapshot_grace_ms=5_000))
    producer_id_expiration_ms: int | None = 604_800_000
    expiration_is_given: bool = False
    index_interval_bytes: int = 4096
    record_lost: bool = False
    max_queue: int = 1_000_000
    task_s: float = math.inf
    retry_wait_s: float = 0.0
    spares_cache: bool = True
    readers_per_disk: int = 1
    pause_above_percent: float | None = None

    def expiration_ms(self, told: TopicPolicy) -> int | None:
        """How long a topic's producers are remembered, None for ever: `topics.policies`, else the settings, else the broker."""
        told_ms = told.producer_id_expiration_ms
        is_override = "producer_id_expiration_ms" in told.overridden
        if told_ms is None or (self.expiration_is_given and not is_override):
            return self.producer_id_expiration_ms
        return told_ms


@dataclass(frozen=True, slots=True)
class Tools:
    """Components, clock and policy. `stop` is set when the process should drain.

    `instance` tells this process apart in commits (host and process id). `beat` is called while work goes on outside of the
    store, at least once per file that is read through. `emit`: takes what happens to partitions; default: log lines.
    `metrics`: of compaction.
    `memory`: what is known of archives across restarts. `is_store_silent`: see `StoreAnswers`.
    `budget`: for reads of the broker's disks; the store has it already.
    `read_segment`: reads a segment that is to be archived, here or on an engine. `disk`: the broker's directories.
    """

    store: ObjectStore
    facts: BrokerFacts
    clock: Clock
    metrics: Metrics
    journal: Journal
    policy: Policy
    instance: str
    emit: Emit = log_event
    stop: Event = field(default_factory=Event)
    randomness: Randomness = field(default_factory=SystemRandomness)
    beat: Callable[[], None] = lambda: None
    is_store_silent: Callable[[], bool] = lambda: False
    held: PinnedFiles = field(default_factory=PinnedFiles)
    memory: ArchiveCache = field(default_factory=ArchiveCache)
    budget: IoBudget = field(default_factory=lambda: IoBudget.unlimited(SystemClock()))
    read_segment: ReadSegment = read_segment
    disk: LogDisk = field(default_factory=LocalDisk)
    turns: DiskTurns = field(init=False)

    def __post_init__(self) -> None:
        """One reader per disk holds over all partitions: the turns are made here, once."""
        turns = DiskTurns(self.clock, self.policy.readers_per_disk, self.policy.pause_above_percent)
        object.__setattr__(self, "turns", turns)

    def adopt(self, policy: Policy) -> None:
        """Other numbers, between checks. How many read from one disk stays as it was."""
        object.__setattr__(self, "policy", policy)
        self.turns.pause_above(policy.pause_above_percent)
