"""Round after round: opens the tools as soon as the store allows it, and tells Health what it meets."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from functools import partial
from threading import Event

import structlog

from sidecar.broker.files import NOT_LEADING
from sidecar.clock import Clock
from sidecar.config import Settings
from sidecar.discovery.watch import Hint
from sidecar.errors import BrokerUnavailable, LogDirsUnformatted, SettingsError, SidecarError, StoreError, StoreUnsafe
from sidecar.http import Board, Health
from sidecar.metrics import Metrics
from sidecar.pipeline.advice import advised
from sidecar.pipeline.assembly import ChangingSettings, open_tools, policy_of, scanner
from sidecar.pipeline.cleaner_watch import CleanerWatch
from sidecar.pipeline.compaction.engines import CompactionEngines, LocalEngines
from sidecar.pipeline.compaction.in_run import CompactionInRun, compaction_in_run
from sidecar.pipeline.round_report import RoundReport
from sidecar.pipeline.rounds import Rounds
from sidecar.pipeline.tools import Tools
from sidecar.pipeline.topic_choice import TopicChoice, nothing_chosen

_log = structlog.get_logger(__name__)

CLEANER_STALLED = "CleanerStalled"
RIGHT_MISSING = "RightMissing"
CONDITIONS = ("settings", "store", "log_dirs", "broker", "first_round")
"""What `run` waits for at its start."""
ALL_CONDITIONS = (*CONDITIONS, "leadership", "topics")
"""Together with what it finds out: nobody says who leads, or no topic is chosen."""
START_WAIT_S_FIRST = 1.0
START_WAIT_S_MAX = 60.0
BEAT_S = 1.0
PAUSE_S_MIN = 0.05
HINT_PAUSE_S_MIN = 0.1
HINT_PAUSE_PER_SCAN = 5.0
"""Of a busy broker's files some roll all the time: events may take up a sixth of the time with scans, not all of it."""


class RoundLoop:
    """The work of `run`, for a thread of its own. It beats at least every `BEAT_S` while it waits."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        health: Health,
        stop: Event,
        wake: Event,
        engines: CompactionEngines | None = None,
        board: Board | None = None,
    ) -> None:
        """Build the loop.

        Args:
            board: is told what people may want to see.
            stop: drain and return. wake: look at the disks now. Who sets `stop` sets `wake` too.
            engines: where compactions happen. Default: in this process.
        """
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._health = health
        self._stop = stop
        self._wake = wake
        self._engines = engines or LocalEngines()
        self._board = board or Board(clock)
        self._cleaner_stalled = False
        self._choice = TopicChoice(health, self._board)
        self._changing = ChangingSettings(settings, clock)
        self._handed_in: deque[tuple[Settings, Event]] = deque(maxlen=1)

    def adopt(self, settings: Settings) -> Event:
        """Take changed settings over before the next round, and begin it soon. For any thread; the event tells when it is done.

        What may change under a round holds at once: see `ChangingSettings`. Only settings that are marked as reloadable may
        differ. Settings that are followed by others before the next round are never taken over.
        """
        taken_over = Event()
        self._changing.adopt(settings)
        self._handed_in.append((settings, taken_over))
        self._wake.set()
        return taken_over

    def run(self) -> None:
        """Until `stop` is set. Raises SidecarError where trying again is no use."""
        wait_s = START_WAIT_S_FIRST
        self._board.about(self._settings.store.url, "")
        if not (self._settings.broker.assume_leader or self._settings.broker.connection.is_configured):
            _log.error("nothing_will_be_archived", reason=NOT_LEADING)
            self._health.unmet("leadership", NOT_LEADING)
            self._board.failed("leadership", SettingsError.__name__, NOT_LEADING)
        while not self._stop.is_set():
            taken_over = self._take_over()
            if taken_over is not None:
                taken_over.set()
            try:
                with open_tools(
                    self._settings,
                    repeats=True,
                    clock=self._clock,
                    metrics=self._metrics,
                    board=self._board,
                    stop=self._stop,
                    beat=self._health.beat,
                    changing=self._changing,
                ) as tools:
                    self._health.met("settings")
                    self._health.met("store")
                    self._board.about(tools.store.url, tools.instance)
                    self._rounds(tools)
                return
            except LogDirsUnformatted as error:
                # Beside a new broker we may be first; and a disk may be mounted late.
                self._metrics.failed(type(error).__name__)
                self._health.unmet("log_dirs", str(error))
                self._board.failed("log_dirs", type(error).__name__, str(error))
                _log.error("log_dirs_not_usable", error=str(error), next_try_s=wait_s)
            except StoreError as error:
                # The store may come back; a process that ends would only be started again.
                self._metrics.failed(type(error).__name__)
                self._health.unmet("store", str(error))
                self._board.failed("store", type(error).__name__, str(error))
                if isinstance(error, StoreUnsafe) or (not error.retryable and wait_s >= START_WAIT_S_MAX):
                    raise
                _log.error("store_not_usable", error=str(error), next_try_s=wait_s)
            self._pause(wait_s)
            wait_s = min(2 * wait_s, START_WAIT_S_MAX)

    def _rounds(self, tools: Tools) -> None:
        with ExitStack() as resources:
            beside = resources.enter_context(ExitStack())
            compaction = self._compaction(beside, tools)
            rounds = Rounds(tools, scanner(self._settings, self._clock), compaction.before_upload)
            broker = self._settings.broker
            cleaner = CleanerWatch(broker.log_dirs, tools.facts, self._clock, broker.cleaner_stalled_after_s)
            if self._settings.run.watch:
                resources.enter_context(Hint(self._settings.broker.log_dirs, self._wake))
            while not self._stop.is_set():
                self._wake.clear()
                if self._stop.is_set():
                    return  # Set before `clear`: nobody would wake us.
                before = self._settings
                taken_over = self._take_over()
                if taken_over is not None:
                    tools.adopt(policy_of(self._settings, repeats=True))
                    cleaner.adopt(self._settings.broker.cleaner_stalled_after_s)
                    if (before.compaction, before.gc) != (self._settings.compaction, self._settings.gc):
                        beside.close()
                        compaction = self._compaction(beside, tools)
                    rounds.adopt(scanner(self._settings, self._clock), compaction.before_upload)
                    taken_over.set()
                report = self._round(rounds)
                if report.found_nothing:
                    self._choice.show(nothing_chosen(self._settings, tools.facts))
                elif report.is_complete:
                    self._choice.show(None)
                if report.is_complete:
                    compaction.offer(report.led)
                compaction.require_sound()
                self._watch(cleaner)
                self._pause(
                    min(self._settings.run.scan_interval_s, max(report.look_again_s, PAUSE_S_MIN)),
                    deaf_s=max(HINT_PAUSE_S_MIN, HINT_PAUSE_PER_SCAN * report.scan_s),
                )

    def _compaction(self, resources: ExitStack, tools: Tools) -> CompactionInRun:
        """Compaction and gc as the settings are now. Closing `resources` cuts off what they are at; the archive stays whole."""
        tell = partial(self._health.publish_section, "compaction")
        # What was told under earlier settings: nobody may be left to correct it.
        tell({"told_ms": self._clock.now_ms(), "partitions": []})
        self._metrics.compaction.weighed(0, None, 0, 0)
        return resources.enter_context(
            compaction_in_run(self._settings, tools, self._engines, tell, wake=self._wake.set)
        )

    def _take_over(self) -> Event | None:
        """Make the settings that were handed in the ones that hold; what is to be set then, None if there were none."""
        if not self._handed_in:
            return None
        self._settings, taken_over = self._handed_in.pop()
        return taken_over

    def _watch(self, cleaner: CleanerWatch) -> None:
        """Look after the broker's own cleaner, from time to time."""
        if not cleaner.is_due():
            return
        was_stalled = self._cleaner_stalled
        report = cleaner.look()
        self._cleaner_stalled = bool(report.stalled)
        self._metrics.broker.cleaner(
            len(report.stalled),
            report.max_stalled_s,
            report.dirty_bytes,
            report.max_dirty_ratio,
            report.beyond_max_lag,
        )
        self._health.publish_section("broker_cleaner", report.as_json())
        if self._cleaner_stalled and not was_stalled:
            _log.error("broker_cleaner_stalled", finding=report.line)
            self._board.failed("broker", CLEANER_STALLED, report.line)

    def _pause(self, seconds: float, deaf_s: float = 0.0) -> None:
        """Wait for that long, or until woken, but not woken within the first `deaf_s` except to stop."""
        begun_s = self._clock.monotonic_s()
        while (left_s := begun_s + seconds - self._clock.monotonic_s()) > 0:
            self._health.beat()
            if not self._wake.wait(min(left_s, BEAT_S)):
                continue
            deaf_left_s = min(left_s, begun_s + deaf_s - self._clock.monotonic_s())
            if deaf_left_s <= 0 or self._stop.wait(min(deaf_left_s, BEAT_S)):
                return

    def _round(self, rounds: Rounds) -> RoundReport:
        self._health.beat()
        try:
            report = rounds.run_once(lambda _partition, _segment: self._health.beat())
        except SidecarError as error:
            # Facts that cannot be read now (a log dir being remounted) may be readable at the next look.
            self._metrics.failed(type(error).__name__)
            self._health.unmet("log_dirs", str(error))
            self._board.failed("log_dirs", type(error).__name__, advised(error))
            _log.error("round_failed", error=str(error))
            return RoundReport(is_complete=False)
        self._health.met("first_round")
        self._show(report)
        return report

    def _show(self, report: RoundReport) -> None:
        outcomes = sorted([*report.outcomes, *report.resting], key=lambda outcome: outcome.files.topic_partition)
        away = [report.broker_away] if report.broker_away else []
        unreadable = [str(problem.error) for problem in report.problems if problem.topic_partition is None]
        store_errors = [str(outcome.error) for outcome in outcomes if isinstance(outcome.error, StoreError)]
        for condition, reasons in (("log_dirs", unreadable), ("store", store_errors), ("broker", away)):
            if reasons:
                self._health.unmet(condition, reasons[0])
            else:
                self._health.met(condition)
        for reason in away:
            self._board.failed("broker", BrokerUnavailable.__name__, reason)
        for right in report.missing_rights:
            self._board.failed("broker", RIGHT_MISSING, right)
        problems = [str(problem.error) for problem in report.problems]
        status = {"round_ended_ms": self._clock.now_ms(), "problems": problems}
        self._health.publish({**status, "missing_rights": list(report.missing_rights)})
