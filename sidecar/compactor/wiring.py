"""Compaction and the removal of garbage as `run` has them: put together from settings and tools."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from sidecar.compactor.background_worker import BesideUploads, Chore, Turning, WithChores
from sidecar.compactor.before_upload import BeforeUpload, rule_unknown
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


class _Status:
    """What `/status` shows: each thread tells its part."""

    def __init__(self, tell: Callable[[Mapping[str, Any]], None], ending: threading.Event) -> None:
        self._tell = tell
        self._ending = ending
        self._lock = threading.Lock()
        self._shown: dict[str, Any] = {}

    def take(self, part: Mapping[str, Any]) -> None:
        """These keys are as follows now, unless other settings hold already."""
        if self._ending.is_set():
            return
        with self._lock:
            self._shown.update(part)
            self._tell(dict(self._shown))


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

    rules = TopicRules(settings.compaction, tools.facts.policy)
    status = _Status(tell, ending)

    def count(reason: RawReason, segments: int) -> None:
        tools.metrics.compaction.went_uncompacted(reason, segments)
        status.take({"archived_without_compaction": raw.status()})

    for reason in RawReason:  # A counter that begins with its first case shows no increase.
        tools.metrics.compaction.went_uncompacted(reason, 0)

    def count_odd(unkeyed: int, malformed_versions: int) -> None:
        tools.metrics.compaction.odd_records(unkeyed, malformed_versions)
        status.take({"odd_records": odd.status()})

    raw, odd = RawUploads(count), OddRecords(count_odd)
    waiting = BeforeUpload(
        settings.compaction,
        tools.clock,
        wake,
        rules.rule_of,
        lambda topic: rule_unknown(settings.compaction, topic, tools.facts.policy(topic)),
        raw,
        odd,
    )
    worker = CompactionWorker(
        settings.compaction,
        Look(tools.store, tools.clock),
        compact or partial(_compacted, settings, tools, engines, rules.policy_of, cut_off.is_set),
        tools.clock,
        tools.metrics,
        is_stopping,
        status.take,
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

    def groups(copies: Callable[[], Path]) -> Turning:
        from sidecar.compactor.group_compactor import GroupCompactor  # loads numba, 70 MB

        return GroupCompactor(waiting, tools, engines, copies, is_stopping)

    with ExitStack() as resources:
        sweep(settings.compaction.staging_path)
        copies = resources.enter_context(WorkFiles(settings.compaction.staging_path, "copies"))
        workers: dict[str, Turning] = {"compaction": WithChores(chores, worker)}
        if settings.compaction.is_active:
            workers["before-upload"] = groups(copies.directory)
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
