"""The whole of a restore: plan, fetch, finish, and only then give the directories their names."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from sidecar.archive.state import PartitionState
from sidecar.clock import Clock
from sidecar.errors import PartitionError, SettingsError
from sidecar.pipeline.assembly import TOPICS_SHOWN_MAX
from sidecar.pipeline.backfill import Progress
from sidecar.pipeline.commit_log import CommitLog
from sidecar.pipeline.lineages import find_all_lineages
from sidecar.pipeline.restore.decisions import decide
from sidecar.pipeline.restore.outcome import PartitionOutcome
from sidecar.pipeline.restore.plan import choose_lineage, plan_partition
from sidecar.pipeline.restore.request import RestoreRequest
from sidecar.pipeline.restore.running import WORKERS, Run
from sidecar.pipeline.restore.seal import decided_before
from sidecar.pipeline.restore.staging import translating
from sidecar.pipeline.restore.target import place_of, read_target, within
from sidecar.pipeline.snapshots.log_dir_lock import LogDirLock
from sidecar.pipeline.snapshots.placing import sync_directory
from sidecar.ports import ObjectStore

READERS = 8


@dataclass(slots=True)
class RestoreReport:
    """Partitions in ascending order. `free_bytes`: on the target's disk before the start."""

    log_dir: Path
    free_bytes: int
    outcomes: list[PartitionOutcome] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0, or 3 if a partition was not restored."""
        return PartitionError.exit_code if any(outcome.problem for outcome in self.outcomes) else 0


def plan_restore(store: ObjectStore, clock: Clock, request: RestoreRequest) -> RestoreReport:
    """What a restore would do, without a change anywhere. Raises as `restore` does before it fetches."""
    read_target(request.log_dir, request.topic)
    if not request.log_dir.exists():
        return _planned(store, clock, request)
    with LogDirLock(request.log_dir, read_only=True, after_crash_too=True):
        return _planned(store, clock, request)


def restore(
    store: ObjectStore,
    clock: Clock,
    request: RestoreRequest,
    *,
    workers: int = WORKERS,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> RestoreReport:
    """Restore, or go on with a restore that was interrupted.

    A partition whose objects are damaged is left unfinished and told; the others are restored.

    Raises:
        LogDirRefused: a broker uses the directory, or something stands where a partition is to go.
        SettingsError, LineageUnknown: what may not be guessed was not said.
        StagingFull: no room; looked at before the first byte, too.
        StoreError: the store failed. What is complete stays.
    """
    # First, because a lock file is made only in what can be a log dir.
    read_target(request.log_dir, request.topic)
    if not request.log_dir.exists():
        _planned(store, clock, request)
        with translating(request.log_dir):
            request.log_dir.mkdir(exist_ok=True)  # Two that begin at once: the lock tells them apart.
        sync_directory(request.log_dir.parent)
    with LogDirLock(request.log_dir, after_crash_too=True) as lock:
        report = _planned(store, clock, request)
        run = Run(store, request, report.outcomes, workers, progress)
        run.fetch()
        run.finish()
        lock.require_held()
        run.swap_in()
    return report


def _planned(store: ObjectStore, clock: Clock, request: RestoreRequest) -> RestoreReport:
    target = within(read_target(request.log_dir, request.topic), request.cluster)
    outcomes = [PartitionOutcome(plan_partition(state, request)) for state in _states(store, clock, request)]
    for outcome in outcomes:
        place = place_of(target, outcome.plan.topic_partition)
        outcome.is_done = place.seal is not None
        if place.seal is not None:
            outcome.plan, outcome.decisions = decided_before(outcome.plan, target, place.seal, request)
        else:
            outcome.decisions = decide(outcome.plan, target, place, request)
    disk = request.log_dir if request.log_dir.exists() else request.log_dir.parent
    return RestoreReport(request.log_dir, shutil.disk_usage(disk).free, outcomes)


def _states(store: ObjectStore, clock: Clock, request: RestoreRequest) -> list[PartitionState]:
    """The history of each wanted partition. Raises SettingsError where one is not archived, PartitionError."""
    lineages = [
        found
        for found in find_all_lineages(store, lambda topic: topic == request.topic)
        if request.cluster_id in {None, found.cluster_id} and request.incarnation in {None, found.incarnation}
    ]
    wanted = set(request.partitions)
    lineages = [found for found in lineages if not wanted or found.topic_partition.partition in wanted]
    with ThreadPoolExecutor(READERS, thread_name_prefix="restore-plan") as pool:
        states = list(pool.map(lambda found: CommitLog(store, found.root, clock).read(), lineages))
    begun: dict[int, list[PartitionState]] = {}
    for state in states:
        if state.segments:
            begun.setdefault(state.lineage.topic_partition.partition, []).append(state)
    _require_all(store, request, begun)
    return [choose_lineage(begun[number], request) for number in sorted(begun)]


def _require_all(store: ObjectStore, request: RestoreRequest, begun: dict[int, list[PartitionState]]) -> None:
    missing = sorted(set(request.partitions) - set(begun))
    if begun and not missing:
        return
    if missing and begun:
        raise SettingsError(f"{request.topic}: nothing is archived of partition {_joined(missing)} at {store.url}")
    topics = sorted({found.topic_partition.topic for found in find_all_lineages(store)})
    there = f"there are: {_joined(topics[:TOPICS_SHOWN_MAX])}" if topics else "it is empty"
    raise SettingsError(f"nothing is archived of topic {request.topic} that fits at {store.url}; {there}")


def _joined(names: Sequence[object]) -> str:
    return ", ".join(map(str, names))
