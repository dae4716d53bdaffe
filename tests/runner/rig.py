"""The pipeline over golden directories and any store, with a fixed clock."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from sidecar.archive.state import PartitionState
from sidecar.broker.files import FileBrokerFacts
from sidecar.clock import Clock
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.lineages import find_all_lineages
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.host.archive_cache import ArchiveCache
from sidecar.host.journal import Journal
from sidecar.host.pinned_files import PinnedFiles, descriptors_to_hold
from sidecar.metrics import Metrics
from sidecar.partition.domain_events import DomainEvent
from sidecar.partition.plan import Settling
from sidecar.partition.run_limits import RunLimits
from sidecar.ports import ObjectStore
from sidecar.reporting.log_sink import fan_out, log_event
from sidecar.reporting.status_model import StatusModel
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.checks import CycleReport
from sidecar.runner.context import RunContext
from tests.fakes.disk_with_room import DiskWithRoom
from tests.fakes.manual_clock import ManualClock
from tests.golden import golden, wall_clock_ms

AT_ONCE = Settling(settle_ms=0, snapshot_grace_ms=0)


class Reported:
    """All sinks of `run`, and what they show."""

    def __init__(self, clock: Clock, metrics: Metrics, memory: ArchiveCache) -> None:
        self.status = StatusModel(clock)
        sinks = metrics.handle, memory.noting_losses(clock), self.status.handle, log_event
        self._emit = fan_out(*sinks)

    def __call__(self, event: DomainEvent) -> None:
        self._emit(event)


def status_of(context: RunContext) -> StatusModel:
    """What the status page would show of these tools' work."""
    assert isinstance(context.emit, Reported)
    return context.emit.status


@contextmanager
def tools_for(
    log_dir: Path,
    store: ObjectStore,
    state_dir: Path,
    version: str = "4.3.0",
    *,
    pins: int | None = None,
    **policy: Any,
) -> Iterator[RunContext]:
    """RunContext whose clock stands at the end of the golden directory's generation. `pins`: files that it may pin."""
    clock = ManualClock(wall_clock_ms(version))
    # A machine whose own disk is nearly full must not decide what is held.
    journal, metrics = Journal(state_dir), Metrics(clock)
    memory = ArchiveCache()
    reported = Reported(clock, metrics, memory)
    held = PinnedFiles(descriptors_to_hold() if pins is None else pins, reported, DiskWithRoom())
    metrics.broker.pinned_deleted.set_function(held.unlinked_bytes)
    try:
        yield RunContext(
            store=store,
            facts=FileBrokerFacts([log_dir], assume_leader=True),
            clock=clock,
            metrics=metrics,
            journal=journal,
            policy=RunLimits(**{"settling": AT_ONCE, "workers": 1, **policy}),
            instance="test",
            emit=reported,
            memory=memory,
            pinned=held,
        )
    finally:
        journal.close()
        held.release()


def sample(context: RunContext, name: str) -> float | None:
    """A metric's value, None if there is none of this name."""
    return context.metrics.registry.get_sample_value(f"tiered_sidecar_{name}")


def archive(context: RunContext, log_dir: Path, *topics: str) -> CycleReport:
    """One round over the topics whose names match."""
    scan = partial(scan_log_dirs, [log_dir], TopicFilter(topics or (".*",)))
    return ArchiveLoop(context, scan).run_once()


def archived_states(store: ObjectStore) -> dict[str, PartitionState]:
    """What every lineage of the archive holds, by partition, read from commit 0 on."""
    lineages = find_all_lineages(store)
    clock = ManualClock(0)
    return {str(found.topic_partition): CommitLog(store, found.root, clock).read_whole_chain() for found in lineages}


def ranges(state: PartitionState) -> list[tuple[int, int]]:
    """The offset ranges of the live segments."""
    return [(segment.base_offset, segment.end_offset) for segment in state.segments]


def rolled_ranges(log_dir: Path, partition: str) -> list[tuple[int, int]]:
    """The offset ranges of the rolled segments on disk."""
    bases = sorted(int(path.name[:20]) for path in (log_dir / partition).glob("*.log"))
    return list(pairwise(bases))


def copy_partitions(directory: Path, *partitions: str, version: str = "4.3.0") -> Path:
    """A log dir with the golden broker's own files and copies of these partitions only."""
    source, log_dir = golden(version) / "logs", directory / "logs"
    log_dir.mkdir(parents=True)
    for entry in source.iterdir():
        if entry.is_file():
            shutil.copy2(entry, log_dir)
        elif entry.name in partitions:
            shutil.copytree(entry, log_dir / entry.name)
    return log_dir


def rounds_over(context: RunContext, log_dir: Path) -> ArchiveLoop:
    """Rounds that remember, over all partitions of a log dir."""
    return ArchiveLoop(context, partial(scan_log_dirs, [log_dir], TopicFilter((".*",))))


def remove_offsets(directory: Path, keep: Callable[[int], bool]) -> None:
    """Remove the files of a partition directory whose offset is not to be kept."""
    for file in directory.iterdir():
        if file.name[:20].isdigit() and not keep(int(file.name[:20])):
            file.unlink()


def set_aside_last(directory: Path, aside: Path) -> None:
    """As long as it is there, the last rolled segment has not been written."""
    aside.mkdir()
    last = max(directory.glob("*.log")).stem
    for path in directory.glob(f"{last}*"):
        if path.suffix != ".snapshot":
            path.rename(aside / path.name)
