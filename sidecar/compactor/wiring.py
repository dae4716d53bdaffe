"""Compaction and the removal of garbage as `run` has them: put together from settings and tools."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from sidecar.compactor.background_worker import BesideUploads, Chore
from sidecar.compactor.before_upload import BeforeUpload
from sidecar.compactor.candidate_assessment import Look
from sidecar.compactor.candidate_queue import Compacted, Compacting, LedPartition
from sidecar.compactor.gc import GcPorts, GcTask
from sidecar.compactor.topic_counts import OddRecords, RawReason, RawUploads
from sidecar.compactor.topic_rule import TopicRules
from sidecar.compactor.worker import CompactionWorker
from sidecar.config import CompactionPolicy, Settings
from sidecar.engine_ports import CompactionEngines
from sidecar.host.disk_turns import HasTurns
from sidecar.partition.run_limits import HasLimits
from sidecar.ports import HasBeat, HasStop
from sidecar.rewriting.work_files import WorkFiles
from sidecar.spark.scratch import sweep
from sidecar.storage.bandwidth import HasBudget
from sidecar.storage.store_clock import CHECK_S, ClockWatch

DRAIN_SHARE: Final = 0.5
"""Of the time that there is for draining: what the rest is for is ending a JVM."""

Compact = Callable[[Sequence[Compacting]], Iterable[Compacted]]


class CompactionPorts(GcPorts, HasBudget, HasLimits, HasTurns, HasBeat, HasStop, Protocol):
    """What this takes of the world."""


@dataclass(frozen=True, slots=True)
class CompactionInRun:
    """What the loop of uploads sees of it: all calls return at once.

    `thread`: None where there is none; those of settings before where there are only these.
    """

    worker: CompactionWorker
    before_upload: BeforeUpload
    clearing: GcTask
    thread: BesideUploads | None

    def offer(self, partitions: Sequence[LedPartition]) -> None:
        """These are led here, as of now."""
        self.worker.offer(partitions)
        self.clearing.offer(partitions)

    def require_sound(self) -> None:
        """Raise what ended a thread, if anything did."""
        if self.thread is not None:
            self.thread.require_sound()


@contextmanager
def compaction_in_run(
    settings: Settings,
    tools: CompactionPorts,
    engines: CompactionEngines,
    tell: Callable[[Mapping[str, Any]], None],
    *,
    wake: Callable[[], None] = lambda: None,
    compact: Compact | None = None,
    clocks: ClockWatch | None = None,
    earlier: BesideUploads | None = None,
) -> Iterator[CompactionInRun]:
    """Compact and clear up in threads of their own while the context lasts; no thread where there is nothing to do.

    Uploads wait for groups (`before_upload`), so these have a thread of their own: a compaction of the archive may take hours.

    Args:
        tell: takes what `/status` shows.
        wake: called when segments that were held back may be archived.
        compact: default: in the archive, on an engine for the size of the work.
        clocks: compared every hour, where there is a thread.
        earlier: threads of settings before, which may be at work still.

    What killed processes left where work files lie is removed. A place that cannot be written to stops no upload.
    """
    ending, cut_off = threading.Event(), threading.Event()

    def is_stopping() -> bool:
        return tools.stop.is_set() or ending.is_set()

    shown: dict[str, Any] = {}
    lock = threading.Lock()

    def show(part: Mapping[str, Any]) -> None:
        """Each thread shows its part of `/status`, unless other settings hold already."""
        if not ending.is_set():
            with lock:
                shown.update(part)
                tell(dict(shown))

    rules, measured = TopicRules(settings.compaction, tools.facts.policy), tools.metrics.compaction
    for reason in RawReason:  # A counter that begins with its first case shows no increase.
        measured.went_uncompacted(reason, 0)
    raw, odd = RawUploads(show, measured.went_uncompacted), OddRecords(show, measured.odd_records)
    waiting = BeforeUpload(settings.compaction, tools.clock, rules.rule_of, wake, raw, odd)
    worker = CompactionWorker(
        settings.compaction,
        Look(tools.store, tools.clock),
        compact or partial(_compacted, settings, tools, engines, rules.policy_of, cut_off.is_set),
        tools.clock,
        tools.metrics,
        is_stopping,
        show,
        rules.policy_of,
        odd,
    )
    clearing = GcTask(tools, settings.gc.grace_period_ms, is_stopping)
    chores: tuple[Chore, ...] = ()
    if settings.gc.enabled:
        chores += (Chore("gc", settings.gc.interval_s, clearing, tools.clock),)
    if clocks is not None and (chores or settings.compaction.is_active):
        chores += (Chore("clock", CHECK_S, clocks.look, tools.clock),)
    if not settings.compaction.is_active and not chores:
        yield CompactionInRun(worker, waiting, clearing, earlier)
        return

    def turn() -> bool:
        for chore in chores:
            chore.turn()
        return worker.turn()

    with ExitStack() as resources:
        sweep(settings.compaction.staging_path)
        copies = resources.enter_context(WorkFiles(settings.compaction.staging_path, "copies"))
        workers: dict[str, Callable[[], bool]] = {"compaction": turn}
        if settings.compaction.is_active:
            from sidecar.compactor.group_compactor import GroupCompactor  # loads numba, 70 MB

            workers["before-upload"] = GroupCompactor(waiting, tools, engines, copies.directory, is_stopping).turn
        thread = BesideUploads(
            workers,
            tools.clock,
            stop=tools.stop,
            ending=ending,
            cut_off=cut_off,
            interval_s=settings.compaction.check_interval_s,
            drain_s=DRAIN_SHARE * settings.run.drain_timeout_s,
            give_up=engines.stop,
            beat=tools.beat,
            earlier=earlier,
        )
        yield CompactionInRun(worker, waiting, clearing, resources.enter_context(thread))


def _compacted(
    settings: Settings,
    tools: CompactionPorts,
    engines: CompactionEngines,
    policy_of: Callable[[str], CompactionPolicy | None],
    is_cut_off: Callable[[], bool],
    work: Sequence[Compacting],
) -> Iterable[Compacted]:
    from sidecar.compactor.archive_job import ArchiveJobs  # loads numba, 70 MB

    return ArchiveJobs(settings, tools, engines, policy_of, is_cut_off)(work)
