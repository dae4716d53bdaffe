"""Compaction and gc as `run` has them, in threads. Uploads never wait for them, and they end with the uploads."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from sidecar.clock import Clock
from sidecar.compactor.before_upload import BeforeUpload
from sidecar.compactor.candidate_queue import Candidate, CandidateAssessor, LedPartition
from sidecar.compactor.gc import GcPorts, GcTask
from sidecar.compactor.topic_counts import InvalidRecords, RawReason, RawUploads
from sidecar.compactor.topic_rule import TopicRules
from sidecar.compactor.worker import CompactionWorker
from sidecar.config import Settings
from sidecar.engine_ports import CompactionEngines
from sidecar.errors import SidecarError
from sidecar.event_log import EVENTS
from sidecar.host.disk_readers import HasDiskReaders
from sidecar.partition.run_limits import HasLimits
from sidecar.ports import HasBeat, HasStop
from sidecar.reporting.advice import advised
from sidecar.spark.scratch import Scratch, sweep
from sidecar.storage.bandwidth import HasBudget
from sidecar.storage.store_clock import CHECK_S, ClockWatch
from sidecar.threads import begun

if TYPE_CHECKING:
    from sidecar.compactor.archive.plan import PartitionCompaction

JOIN_S = 0.2
RELOAD_WAIT_S = 2.0
"""So long uploads wait at most for work that other settings cut off."""


class Chore:
    """Something small that is done every so often, whatever else there is to do."""

    def __init__(self, name: str, interval_s: float, work: Callable[[], object], clock: Clock) -> None:
        """Args: work: may raise SidecarError, which is logged; the next try is an interval away."""
        self._name = name
        self._interval_s = interval_s
        self._work = work
        self._clock = clock
        self._next_s = clock.monotonic_s() + interval_s

    def cycle(self) -> None:
        if self._clock.monotonic_s() < self._next_s:
            return
        self._next_s = self._clock.monotonic_s() + self._interval_s
        try:
            self._work()
        except SidecarError as error:
            EVENTS.error("periodic_task_failed", task=self._name, error=advised(error), next_try_s=self._interval_s)


@dataclass(eq=False)
class BackgroundWorkers:
    """A context manager around the threads: one for each of `workers`, by its name, so that none waits for another.

    A worker is called again and again: it does what is due, and returns whether there may be more at once.

    `stop`: the process drains. `ending`: set here when the context ends; workers begin nothing after either. `cut_off`: set here
    when work in progress must not commit any more. `interval_s`: between two turns that found nothing. `drain_s`: how long work
    in progress may go on after the end of the context; then `give_up` is called. Where the process goes on, with other settings,
    work is cut off at once. `give_up`: ends what workers wait for; called in any case at the end. `beat`: called while the end is
    waited for. `earlier`: threads of settings before. A worker begins when those of its name have ended.
    """

    workers: Mapping[str, Callable[[], bool]]
    clock: Clock
    _: KW_ONLY
    stop: threading.Event
    ending: threading.Event
    cut_off: threading.Event
    interval_s: float
    drain_s: float
    give_up: Callable[[], None]
    beat: Callable[[], None]
    earlier: InitVar[BackgroundWorkers | None] = None

    def __post_init__(self, earlier: BackgroundWorkers | None) -> None:
        # Not the object: each would keep all that were there before it.
        before = [] if earlier is None else earlier._work  # noqa: SLF001 - of our own kind
        self._work: list[tuple[str, Future[None]]] = [
            (name, work) for name, work in before if not work.done() or work.exception() is not None
        ]

    def __enter__(self) -> Self:
        before = tuple(self._work)
        for name, worker in self.workers.items():
            # Waits only for its own kind: groups do not wait for a long compaction of the archive.
            earlier = [work for its_name, work in before if its_name == name]
            self._work.append((name, begun(name, partial(self._run, worker, earlier))))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.ending.set()
        if self.stop.is_set() or error is not None:
            self._join_within(self.drain_s)
            self.cut_off.set()
            self._end("the process stops", "")
            self._join_within(math.inf)  # The process has a deadline of its own.
        else:
            wait_s = min(self.drain_s, RELOAD_WAIT_S)
            self.cut_off.set()
            self._join_within(wait_s)
            self._end("the settings changed", "compaction uses the new settings when the running job ends")
            self._join_within(wait_s)

    def _end(self, reason: str, effect: str) -> None:
        if self.living():
            running_job = "it starts no further commit; a commit in progress may still succeed"
            EVENTS.warning(
                "compaction_interrupted", reason=reason, drain_s=self.drain_s, running_job=running_job, effect=effect
            )
        self.give_up()

    def _join_within(self, seconds: float) -> None:
        until_s = self.clock.monotonic_s() + seconds
        while (living := self.living()) and self.clock.monotonic_s() < until_s:
            self.beat()
            wait(living, JOIN_S)

    def living(self) -> list[Future[None]]:
        """What the threads do that are at work still, also those of settings before."""
        return [work for _, work in self._work if not work.done()]

    def require_sound(self) -> None:
        """Raise what ended a thread, if anything did: a fault of our own ends the process, here as elsewhere.

        Also one of settings before.
        """
        for _, work in self._work:
            if work.done():
                work.result()

    def _run(self, worker: Callable[[], bool], earlier: Sequence[Future[None]]) -> None:
        while not all(work.done() for work in earlier) and not self._is_ending():
            self._ending_within(JOIN_S)
        while not self._is_ending():
            if not worker() and not self._is_ending():
                self._ending_within(self.interval_s)

    def _is_ending(self) -> bool:
        return self.stop.is_set() or self.ending.is_set()

    def _ending_within(self, seconds: float) -> None:
        until_s = self.clock.monotonic_s() + seconds
        while not self._is_ending() and (left_s := until_s - self.clock.monotonic_s()) > 0:
            self.ending.wait(min(left_s, JOIN_S))


DRAIN_SHARE: Final = 0.5
"""Of the time that there is for draining: what the rest is for is ending a JVM."""


class CompactionPorts(GcPorts, HasBudget, HasLimits, HasDiskReaders, HasBeat, HasStop, Protocol):
    """What this takes of the world."""


@dataclass(frozen=True, slots=True)
class RunCompaction:
    """What the loop of uploads sees of it: all calls return at once.

    `thread`: None where there is none; those of settings before where there are only these.
    """

    worker: CompactionWorker
    before_upload: BeforeUpload
    clearing: GcTask
    thread: BackgroundWorkers | None

    def offer(self, partitions: Sequence[LedPartition]) -> None:
        self.worker.offer(partitions)
        self.clearing.offer(partitions)

    def require_sound(self) -> None:
        if self.thread is not None:
            self.thread.require_sound()


@contextmanager
def wire_compaction(
    settings: Settings,
    context: CompactionPorts,
    engines: CompactionEngines,
    tell: Callable[[Mapping[str, Any]], None],
    *,
    wake: Callable[[], None] = lambda: None,
    clocks: ClockWatch | None = None,
    earlier: BackgroundWorkers | None = None,
) -> Iterator[RunCompaction]:
    """Compact and clear up in threads of their own while the context lasts; no thread where there is nothing to do.

    Uploads wait for groups (`before_upload`), so these have a thread of their own: a compaction of the archive may take hours.

    Args:
        tell: takes what `/status` shows.
        wake: called when blocked segments may be archived.
        clocks: compared every hour, where there is a thread.
        earlier: threads of settings before, which may be at work still.

    What killed processes left where work files lie is removed. A place that cannot be written to stops no upload.
    """
    ending, cut_off = threading.Event(), threading.Event()

    def is_stopping() -> bool:
        return context.stop.is_set() or ending.is_set()

    shown: dict[str, Any] = {}
    lock = threading.Lock()

    def show(part: Mapping[str, Any]) -> None:
        """Each thread shows its part of `/status`, unless other settings hold already."""
        if not ending.is_set():
            with lock:
                shown.update(part)
                tell(dict(shown))

    rules, measured = TopicRules(settings.compaction, context.facts.policy), context.metrics.compaction
    for reason in RawReason:  # A counter that begins with its first case shows no increase.
        measured.went_uncompacted(reason, 0)
    raw, invalid = RawUploads(show, measured.went_uncompacted), InvalidRecords(show, measured.invalid_records)
    waiting = BeforeUpload(settings.compaction, context.clock, rules.rule_of, wake, raw, invalid)

    def compacted(work: Sequence[Candidate]) -> Iterable[PartitionCompaction]:
        from sidecar.compactor.archive_job import ArchiveJobs  # loads numba, 70 MB

        return ArchiveJobs(settings, context, engines, rules.rule_of, cut_off.is_set)(work)

    worker = CompactionWorker(
        settings.compaction,
        CandidateAssessor(context.store, context.clock),
        compacted,
        context.clock,
        context.metrics,
        is_stopping,
        show,
        rules.policy_of,
        invalid,
    )
    clearing = GcTask(context, settings.gc.grace_period_ms, is_stopping)
    chores: tuple[Chore, ...] = ()
    if settings.gc.enabled:
        chores += (Chore("gc", settings.gc.interval_s, clearing, context.clock),)
    if clocks is not None and (chores or settings.compaction.is_active):
        chores += (Chore("clock", CHECK_S, clocks.look, context.clock),)
    if not settings.compaction.is_active and not chores:
        yield RunCompaction(worker, waiting, clearing, earlier)
        return

    def cycle() -> bool:
        for chore in chores:
            chore.cycle()
        return worker.cycle()

    copies = Scratch(settings.compaction.staging_path, "copies")

    with ExitStack() as resources:
        sweep(copies.parent)
        resources.callback(copies.remove)
        workers: dict[str, Callable[[], bool]] = {"compaction": cycle}
        if settings.compaction.is_active:
            from sidecar.compactor.group_compactor import GroupCompactor  # loads numba, 70 MB

            workers["before-upload"] = GroupCompactor(waiting, context, engines, lambda: copies.path, is_stopping).cycle
        thread = BackgroundWorkers(
            workers,
            context.clock,
            stop=context.stop,
            ending=ending,
            cut_off=cut_off,
            interval_s=settings.compaction.check_interval_s,
            drain_s=DRAIN_SHARE * settings.run.drain_timeout_s,
            give_up=engines.stop,
            beat=context.beat,
            earlier=earlier,
        )
        yield RunCompaction(worker, waiting, clearing, resources.enter_context(thread))
