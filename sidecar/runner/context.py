"""What the loop hands to its components, which each take the ports that they use: built once from the settings."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

from sidecar.clock import Clock, SystemClock
from sidecar.host.archive_cache import ArchiveCache
from sidecar.host.disk_readers import DiskReaders
from sidecar.host.journal import Journal
from sidecar.host.pinned_files import PinnedFiles
from sidecar.metrics import Metrics
from sidecar.partition.domain_events import Emit
from sidecar.partition.run_limits import RunLimits
from sidecar.ports import BrokerFacts, ObjectStore
from sidecar.randomness import Randomness, SystemRandomness
from sidecar.reporting.log_sink import log_event
from sidecar.segment.local_disk import LocalDisk
from sidecar.segment.log_disk import LogDisk
from sidecar.segment.reading import ReadSegment, read_segment
from sidecar.storage.bandwidth import IoBudget


@dataclass(slots=True)
class RunContext:
    """Components, clock and policy. `stop` is set when the process should drain.

    `instance` identifies this process in commits (host and process id). `beat` is called while work goes on outside of the
    store, at least once per file that is read through. `emit`: takes what happens to partitions; default: log lines.
    `metrics`: of compaction.
    `memory`: what is known of archives across restarts. `is_store_silent`: see `StoreLiveness`.
    `budget`: for reads of the broker's disks; the store has it already.
    `require_safe_store`: called before each commit, and before what another process uploaded is deleted; see `probing_store`.
    `read_segment`: reads a segment that is to be archived, here or on an engine. `disk`: the broker's directories.
    """

    store: ObjectStore
    facts: BrokerFacts
    clock: Clock
    metrics: Metrics
    journal: Journal
    policy: RunLimits
    instance: str
    emit: Emit = log_event
    stop: Event = field(default_factory=Event)
    randomness: Randomness = field(default_factory=SystemRandomness)
    beat: Callable[[], None] = lambda: None
    is_store_silent: Callable[[], bool] = lambda: False
    require_safe_store: Callable[[], object] = lambda: None
    pinned: PinnedFiles = field(default_factory=PinnedFiles)
    memory: ArchiveCache = field(default_factory=ArchiveCache)
    budget: IoBudget = field(default_factory=lambda: IoBudget.unlimited(SystemClock()))
    read_segment: ReadSegment = read_segment
    disk: LogDisk = field(default_factory=LocalDisk)
    disk_readers: DiskReaders = field(init=False)

    def __post_init__(self) -> None:
        """One reader per disk holds over all partitions: the queue is created here, once."""
        self.disk_readers = DiskReaders(self.clock, self.policy.readers_per_disk, self.policy.pause_above_percent)

    def adopt(self, policy: RunLimits) -> None:
        """Other numbers, between checks. How many read from one disk stays as it was."""
        self.policy = policy
        self.disk_readers.pause_above_percent = policy.pause_above_percent
