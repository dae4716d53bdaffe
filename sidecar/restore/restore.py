"""The whole of a restore: plan, fetch, finish, and only then give the directories their names."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sidecar.clock import Clock
from sidecar.errors import PartitionError
from sidecar.host.log_dir_lock import LogDirLock
from sidecar.host.placing import sync_directory
from sidecar.ports import ObjectStore
from sidecar.reporting.progress import Progress
from sidecar.restore.checkpoint_files import require_readable
from sidecar.restore.decisions import decide
from sidecar.restore.first_batch import plan_in_time, refuse_time_before_all
from sidecar.restore.histories import read_histories
from sidecar.restore.outcome import PartitionOutcome, Unreadable
from sidecar.restore.request import RestoreRequest
from sidecar.restore.retention import foretold
from sidecar.restore.running import WORKERS, Run
from sidecar.restore.seal import decided_before
from sidecar.restore.staging import StagedPartition, translating, unfinished
from sidecar.restore.target import Target, place_of, read_target, within
from sidecar.restore.transactions_first import refuse_open_transactions, tell_narrow_holes
from sidecar.topic_policy import TopicPolicy


@dataclass(slots=True)
class RestoreReport:
    """Partitions in ascending order. `free_bytes`: on the target's disk before the start.

    `unreadable`: no plan could be made. `not_archived`: the topic has them, or had, and the archive holds nothing. `unfinished`:
    staging directories of the topic that other runs left, and this one was not asked to go on with. `policy`: the topic's in the
    target's cluster; nothing is known of it where nobody was asked.
    """

    log_dir: Path
    free_bytes: int
    outcomes: list[PartitionOutcome] = field(default_factory=list)
    unreadable: tuple[Unreadable, ...] = ()
    not_archived: list[int] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    policy: TopicPolicy = field(default_factory=TopicPolicy)

    @property
    def exit_code(self) -> int:
        """0, or 3 if a partition was not restored."""
        stopped = self.unreadable or self.not_archived or any(outcome.problem for outcome in self.outcomes)
        return PartitionError.exit_code if stopped else 0


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

    A partition whose objects or commits are damaged is left unfinished and told; the others are restored.

    Raises:
        LogDirRefused: a broker uses the directory, or something stands where a partition is to go.
        CorruptFile, PartitionError: a file of the log dir that is needed cannot be read; looked at before the first byte, too.
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
        for found in report.unreadable:
            StagedPartition(request.log_dir, found.topic_partition).hold()
        run = Run(store, request, report.outcomes, workers, progress)
        run.fetch()
        run.finish()
        lock.require_held()
        run.swap_in()
    _foretell(report, clock)  # The records have grown older by the hours that it may have taken.
    return report


def _planned(store: ObjectStore, clock: Clock, request: RestoreRequest) -> RestoreReport:
    target = within(read_target(request.log_dir, request.topic), request.cluster)
    histories = read_histories(store, clock, request)
    outcomes = [PartitionOutcome(plan) for plan in plan_in_time(store, request, histories.states)]
    refuse_time_before_all(store, request, outcomes)
    for outcome in outcomes:
        place = place_of(target, outcome.plan.topic_partition)
        outcome.is_done = place.seal is not None
        if place.seal is not None:
            outcome.plan, outcome.decisions = decided_before(outcome.plan, target, place.seal, request)
        else:
            outcome.decisions = decide(outcome.plan, target, place, request)
    refuse_open_transactions(store, request, outcomes)
    tell_narrow_holes(store, outcomes)
    if not all(outcome.is_done for outcome in outcomes):
        require_readable(request.log_dir)  # They get their entries last, after hours maybe.
    disk = request.log_dir if request.log_dir.exists() else request.log_dir.parent
    own = {outcome.plan.topic_partition for outcome in outcomes} | {
        found.topic_partition for found in histories.unreadable
    }
    report = RestoreReport(
        log_dir=request.log_dir,
        free_bytes=shutil.disk_usage(disk).free,
        outcomes=outcomes,
        unreadable=histories.unreadable,
        not_archived=[] if request.partitions else histories.not_archived(_known(target, request)),
        unfinished=[name for name, found in unfinished(request.log_dir, request.topic).items() if found not in own],
        policy=request.cluster.policy if request.cluster else TopicPolicy(),
    )
    _foretell(report, clock)
    return report


def _foretell(report: RestoreReport, clock: Clock) -> None:
    """What retention will delete of it as of now."""
    for outcome in report.outcomes:
        outcome.retention = foretold(outcome.plan, report.policy, clock.now_ms())


def _known(target: Target, request: RestoreRequest) -> set[int]:
    """The topic's partitions as the target knows them."""
    return {*target.partitions, *(request.cluster.leader_epochs if request.cluster else ())}
