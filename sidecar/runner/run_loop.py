"""Check after check, for ever: builds the run's context as soon as the store allows it, and reports to Health what it meets."""

from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from sidecar.clock import Clock
from sidecar.compactor.wiring import BackgroundWorkers, RunCompaction, wire_compaction
from sidecar.config import Settings
from sidecar.discovery.watch import waking_on_new_files
from sidecar.engine_ports import CompactionEngines
from sidecar.errors import LogDirsUnformatted, SidecarError, StagingFull, StateDirUnusable, StoreError, StoreUnsafe
from sidecar.metrics import Metrics
from sidecar.partition.wait_reason import Wait, render
from sidecar.reporting.advice import advised
from sidecar.reporting.health_reporter import HealthReporter
from sidecar.rewriting.local_engine import LocalEngines
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.assembly import ChangingSettings, open_tools, policy_of, scanner
from sidecar.runner.checks import CycleReport
from sidecar.runner.cleaner_watch import CleanerWatch
from sidecar.runner.context import RunContext
from sidecar.runner.topic_choice import nothing_chosen
from sidecar.segment.reading import ReadSegment, read_segment
from sidecar.storage.retry import StoreLiveness
from sidecar.storage.store_clock import ClockWatch

START_WAIT_S_FIRST = 1.0
START_WAIT_S_MAX = 60.0
BEAT_S = 1.0
PAUSE_S_MIN = 0.05
BUSY_TICK_S = 0.1
"""While steps are under way, it is seen so often whether somebody woke the loop."""
HINT_PAUSE_S_MIN = 0.1
HINT_PAUSE_PER_SCAN = 5.0
"""Of a busy broker's files some roll all the time: events may take up a sixth of the time with scans, not all of it."""


@dataclass(eq=False)
class RunLoop:
    """The work of `run`, for a thread of its own. It beats at least every `BEAT_S` while it waits.

    `stop`: drain and return. `wake`: scan the disks now. What sets `stop` sets `wake` too. `engines`: where compactions happen.
    Default: in this process.
    """

    _settings: Settings
    clock: Clock
    metrics: Metrics
    reporter: HealthReporter
    stop: Event
    wake: Event
    engines: CompactionEngines = field(default_factory=LocalEngines)
    reader: ReadSegment = read_segment
    _answers: StoreLiveness = field(init=False)
    _changing: ChangingSettings = field(init=False)
    _handed_in: deque[tuple[Settings, Event]] = field(default_factory=lambda: deque(maxlen=1), init=False)

    def __post_init__(self) -> None:
        self._answers = StoreLiveness(self.clock, self.reporter.store_silent)
        self._changing = ChangingSettings(self._settings, self.clock)

    def adopt(self, settings: Settings) -> Event:
        """Apply changed settings before the next check, and begin it soon. For any thread; the event is set when it is done.

        What may change under tasks holds at once: see `ChangingSettings`. Only settings that are marked as reloadable may
        differ. Settings that are followed by others before the next check are never applied.
        """
        taken_over = Event()
        self._changing.adopt(settings)
        self._handed_in.append((settings, taken_over))
        self.wake.set()
        return taken_over

    def run(self) -> None:
        """Until `stop` is set. Raises SidecarError where trying again is no use."""
        wait_s = START_WAIT_S_FIRST
        self.reporter.about(self._settings.store.url, "")
        if not (self._settings.broker.assume_leader or self._settings.broker.connection.is_configured):
            self.reporter.no_leadership(render(Wait.LEADERSHIP_NOT_ON_DISK))
        while not self.stop.is_set():
            # Else changed settings, of this start or the one before, would leave no pause between the tries.
            self.wake.clear()
            taken_over = self._take_over()
            if taken_over is not None:
                taken_over.set()
            try:
                with open_tools(
                    self._settings,
                    repeats=True,
                    clock=self.clock,
                    metrics=self.metrics,
                    sinks=(self.reporter.show,),
                    stop=self.stop,
                    beat=self.reporter.health.beat,
                    changing=self._changing,
                    answers=self._answers,
                    reader=self.reader,
                ) as context:
                    self.reporter.store_usable()
                    self.reporter.about(context.store.url, context.instance)
                    self._archive(context)
                return
            except LogDirsUnformatted as error:
                self.reporter.log_dirs_unformatted(error, wait_s)
            except StoreError as error:
                # The store may come back; a process that ends would only be started again.
                is_hopeless = isinstance(error, StoreUnsafe) or (not error.retryable and wait_s >= START_WAIT_S_MAX)
                self.reporter.store_not_usable(error, None if is_hopeless else wait_s)
                if is_hopeless:
                    raise
            self._pause(wait_s)
            wait_s = min(2 * wait_s, START_WAIT_S_MAX)

    def _archive(self, context: RunContext) -> None:
        with ExitStack() as resources:
            workers = resources.enter_context(ExitStack())
            clocks = ClockWatch(context.store, self.clock)
            clocks.look()
            compaction = self._compaction(workers, context, clocks)
            scan = scanner(self._settings, self.clock)
            beat = self.reporter.health.beat
            loop = resources.enter_context(ArchiveLoop(context, scan, compaction.before_upload, lambda *_: beat()))
            broker = self._settings.broker
            cleaner = CleanerWatch(broker.log_dirs, context.facts, self.clock, broker.cleaner_stalled_after_s)
            if self._settings.run.watch:
                resources.enter_context(waking_on_new_files(self._settings.broker.log_dirs, self.wake))
            while not self.stop.is_set():
                self.wake.clear()
                if self.stop.is_set():
                    return  # Set before `clear`: nothing would wake the loop.
                before = self._settings
                taken_over = self._take_over()
                if taken_over is not None:
                    context.adopt(policy_of(self._settings, repeats=True))
                    cleaner.stalled_after_s = self._settings.broker.cleaner_stalled_after_s
                    if (before.compaction, before.gc) != (self._settings.compaction, self._settings.gc):
                        workers.close()
                        compaction = self._compaction(workers, context, clocks, compaction.thread)
                    loop.adopt(scanner(self._settings, self.clock), compaction.before_upload)
                    taken_over.set()
                report = self._check(loop, context)
                if report.is_complete:
                    compaction.offer(report.led)
                compaction.require_sound()
                if cleaner.is_due():
                    self.reporter.cleaner(cleaner.look())
                deaf_s = max(HINT_PAUSE_S_MIN, HINT_PAUSE_PER_SCAN * report.scan_s)
                self._pause(self._settings.run.scan_interval_s, deaf_s, loop)

    def _compaction(
        self, resources: ExitStack, context: RunContext, clocks: ClockWatch, earlier: BackgroundWorkers | None = None
    ) -> RunCompaction:
        """Compaction and gc as the settings are now. Closing `resources` cuts off what they are at; the archive stays whole.

        `earlier`: threads of settings before. Uploads do not wait for their end, compaction does.
        """

        def tell(section: Mapping[str, Any]) -> None:
            self.reporter.health.publish(compaction=section)

        # Reports under earlier settings: nothing may be left to correct them.
        tell({"reported_ms": self.clock.now_ms(), "partitions": []})
        self.metrics.compaction.restarted()
        return resources.enter_context(
            wire_compaction(
                self._settings, context, self.engines, tell, wake=self.wake.set, clocks=clocks, earlier=earlier
            )
        )

    def _take_over(self) -> Event | None:
        """Make the settings that were handed in the ones that hold; what is to be set then, None if there were none."""
        if not self._handed_in:
            return None
        self._settings, taken_over = self._handed_in.pop()
        return taken_over

    def _pause(self, seconds: float, deaf_s: float = 0.0, loop: ArchiveLoop | None = None) -> None:
        """Wait for that long, until woken, or until a check has something to do; but not woken within the first `deaf_s`.

        To stop it is woken at once. Tasks go on meanwhile.
        """
        begun_s = self.clock.monotonic_s()
        while (left_s := self._left_s(begun_s, seconds, loop)) > 0:
            if loop is None or not loop.is_busy:
                self.reporter.health.beat()
                is_woken = self.wake.wait(min(left_s, BEAT_S))
            else:
                self._go_on(loop, min(left_s, BUSY_TICK_S))
                is_woken = self.wake.is_set()
            deaf_left_s = begun_s + deaf_s - self.clock.monotonic_s()
            if self.stop.is_set() or (is_woken and deaf_left_s <= 0):
                return
            if is_woken and (loop is None or not loop.is_busy):
                self.stop.wait(min(left_s, deaf_left_s, BEAT_S))

    def _left_s(self, begun_s: float, seconds: float, loop: ArchiveLoop | None) -> float:
        waited_s = self.clock.monotonic_s() - begun_s
        if loop is None:
            return seconds - waited_s
        return min(seconds - waited_s, max(loop.due_in_s(), PAUSE_S_MIN - waited_s))

    def _go_on(self, loop: ArchiveLoop, seconds: float) -> None:
        try:
            loop.drive(lambda: not loop.is_busy, seconds)
        except SidecarError as error:
            self.reporter.cycle_failed(error, None)

    def _check(self, loop: ArchiveLoop, context: RunContext) -> CycleReport:
        self.reporter.health.beat()
        try:
            report = loop.cycle()
        except SidecarError as error:
            # Facts that cannot be read now (a log dir being remounted) may be readable at the next check.
            self.reporter.cycle_failed(error, context.facts.state().refused)
            return CycleReport(is_complete=False)
        # Before the end of the first check is reported: else a probe would see a process ready that is not.
        if report.found_nothing:
            found = nothing_chosen(self._settings, context.facts)
            self.reporter.no_topic(found.reason if found else "", is_slip=found is not None and found.is_slip)
        elif report.is_complete:
            self.reporter.no_topic("", is_slip=False)
        outcomes = sorted([*report.outcomes, *report.backed_off], key=lambda outcome: outcome.files.topic_partition)

        def first(*kinds: type[SidecarError]) -> str:
            return next((str(found.error) for found in outcomes if isinstance(found.error, kinds)), "")

        self.reporter.cycle_ended(
            report.broker,
            store_error=first(StoreError),
            state_dir_error=first(StagingFull, StateDirUnusable) or context.journal.displaced(),
            log_dir_error=next(
                (advised(found.error) for found in report.problems if found.topic_partition is None), ""
            ),
            problems=[advised(found.error) for found in report.problems],
        )
        return report
