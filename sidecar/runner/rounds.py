"""One round over all partitions: scan, plan, archive in the order in which the broker's retention will delete."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial

import structlog

from sidecar.discovery.scan import ScanResult
from sidecar.errors import PartitionError, SidecarError
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.domain_events import (
    BrokerFactsRead,
    CycleEnded,
    CycleProgressed,
    DirectoryUnreadable,
    PartitionFailed,
    PartitionsChecked,
)
from sidecar.partition.outcome import PartitionOutcome
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.wait_reason import render
from sidecar.pipeline.compaction.before_upload import BeforeUpload
from sidecar.pipeline.partition import NEVER, PartitionArchiver
from sidecar.pipeline.partition_status import status_of_unreadable
from sidecar.pipeline.provisional import plan_beside
from sidecar.pipeline.seams import named_by_cluster
from sidecar.pipeline.tools import Tools
from sidecar.runner.long_waits import LongWaits
from sidecar.runner.meanwhile import NOBODY, Busy, ended_turns
from sidecar.runner.plan_pace import at_pace
from sidecar.runner.queue_room import Work, turn_order, turns_and_idle, within_queue
from sidecar.runner.round_pools import hold, holding, pools
from sidecar.runner.round_report import RoundReport
from sidecar.runner.round_turns import Done, RoundTurns

_log = structlog.get_logger(__name__)

Planned = tuple[PartitionArchiver, PartitionFiles, PartitionPlan | SidecarError]


@dataclass(frozen=True, slots=True)
class _Rest:
    """A partition that failed: it is left alone until `until_s`, so that its fault does not cost every round."""

    until_s: float
    outcome: PartitionOutcome


class Rounds:
    """Archives partition after partition; keeps what it learned of each between rounds."""

    def __init__(self, tools: Tools, scan: Callable[[], ScanResult], before_upload: BeforeUpload | None = None) -> None:
        """Args: before_upload: holds segments back that are to be compacted first. Default: nothing is."""
        self._tools = tools
        self._scan, self._before_upload = scan, before_upload
        self._archivers: dict[TopicPartition, PartitionArchiver] = {}
        self._resting: dict[TopicPartition, _Rest] = {}
        self._number = NEVER
        self._waits, self._last_listed = LongWaits(tools.clock), _LastListed()

    def adopt(self, scan: Callable[[], ScanResult], before_upload: BeforeUpload) -> None:
        """Between rounds: look elsewhere from now on, or hold back by other rules. What is known of archives stays."""
        self._scan, self._before_upload = scan, before_upload
        for archiver in self._archivers.values():
            archiver.before_upload = before_upload

    def plan(self, busy: Busy = NOBODY) -> tuple[list[Work], RoundReport]:
        """Look at the disks and decide; what can be done, earliest local deletion first, and a report of the rest.

        Args:
            busy: of a look while a round lasts. The store is not waited for then, and nothing may be begun.
        """
        begun_s = self._tools.clock.monotonic_s()
        try:
            self._tools.facts.refresh()
        finally:
            # At once: the look may take its time, and there is none where this is the broker of another cluster.
            self._emit_freshness()
        found = self._scan()
        for problem in found.problems:
            self._tools.emit(DirectoryUnreadable(str(problem.path), problem.error))
        report = RoundReport(problems=found.problems)
        now_s = self._tools.clock.monotonic_s()
        present = {files.topic_partition: named_by_cluster(self._tools.facts, files) for files in found.partitions}
        left_alone = self._last_listed.left_alone(found, present)
        here = present | {tp: outcome.files for tp, outcome in left_alone.items()}
        self._resting = {tp: rest for tp, rest in self._resting.items() if rest.until_s > now_s and tp in here}
        report.resting = [rest.outcome for rest in self._resting.values()]
        problems = ((problem.topic_partition, problem.error) for problem in found.problems)
        unreadable = {tp: error for tp, error in problems if tp is not None and tp not in busy}
        known = here.keys() | unreadable.keys() | busy.keys()
        self._archivers = {tp: archiver for tp, archiver in self._archivers.items() if tp in known}
        # What vanished while it was listed may be gone for good: the next look tells.
        statuses = [status_of_unreadable(tp, error) for tp, error in unreadable.items() if not error.retryable]
        work = list[Work]()
        for tp, outcome in ({tp: rest.outcome for tp, rest in self._resting.items()} | left_alone).items():
            if tp not in busy and self._archivers[tp].held.rests(here[tp], is_listed=tp in present):
                statuses.append(self._archivers[tp].status(here[tp], None, outcome))
        for archiver, files, planned in self._planned(present, busy):
            if isinstance(planned, PartitionPlan):
                statuses.append(archiver.status(files, planned, None))
                work.append((archiver, planned))
            else:
                report.outcomes.append(PartitionOutcome(files, error=planned))
                statuses.append(archiver.status(files, None, report.outcomes[-1]))
        self._tools.emit(PartitionsChecked(tuple(statuses), frozenset(self._archivers)))
        state = self._tools.facts.state()
        report.broker_away, report.missing_rights = state.away, state.missing_rights
        plans = [plan for _, plan in work]
        self._waits.looked([p for p in plans if p.files.topic_partition not in busy], state.away, self._archivers)
        report.scan_s = self._tools.clock.monotonic_s() - begun_s
        work.sort(key=partial(turn_order, self._tools.clock))
        return within_queue(work, self._tools.policy.max_queue), report

    def _emit_freshness(self) -> None:
        state = self._tools.facts.state()
        self._tools.emit(BrokerFactsRead(state.read_ms, bool(state.away), len(state.missing_rights)))

    def _planned(self, present: Mapping[TopicPartition, PartitionFiles], busy: Busy) -> Iterator[Planned]:
        """A plan for each partition that does not rest, or why there is none; of busy ones, see `plan_beside`."""
        for tp, (archiver, plan) in busy.items():
            files = present.get(tp, plan.files)
            if tp in present:
                archiver.held.see_beside(files)
            pending, starts = archiver.pending(files), archiver.held.starts
            yield archiver, files, plan_beside(self._tools, files, plan, pending, starts if tp in present else None)
        anew: list[PartitionFiles] = []
        for files in present.values():
            if files.topic_partition in self._resting or files.topic_partition in busy:
                continue
            known = self._archivers.get(files.topic_partition)
            standing = None
            if known is not None:
                with suppress(PartitionError):  # Planning anew tells.
                    standing = known.standing_plan(files)
            if known is None or standing is None:
                anew.append(files)
            else:
                yield known, files, standing
        yield from at_pace(
            self._tools.clock, partial(self._plan_one, may_wait=not busy), anew, self._tools.policy.workers * 4
        )

    def _plan_one(self, files: PartitionFiles, may_wait: bool) -> Planned:
        archiver = self._archivers.get(files.topic_partition)
        if archiver is None:
            archiver = self._archivers[files.topic_partition] = PartitionArchiver(
                self._tools, files, self._before_upload
            )
        try:
            return archiver, files, archiver.plan(files, asks_store=may_wait and not self._tools.is_store_silent())
        except SidecarError as error:
            return archiver, files, error

    def run_once(self, done: Done = lambda _partition, _segment: None) -> RoundReport:
        """Scan, plan and archive."""
        return self.work(*self.plan(), done)

    def work(
        self, work: list[Work], report: RoundReport, done: Done = lambda _partition, _segment: None
    ) -> RoundReport:
        """Archive what was planned. One partition's fault never stops another's work."""
        round_end_s = self._tools.clock.monotonic_s() + self._tools.policy.round_s
        self._number += 1
        turns, idle = turns_and_idle(work, self._tools.journal.roots())
        archivers = self._archivers.values()
        with holding(self._tools, archivers, work), pools(self._tools) as (partitions, uploads):
            round_turns = RoundTurns(self._tools, report, uploads, done, self._number, round_end_s)
            futures = {partitions.submit(round_turns.take, *item): item for item in turns}
            for outcome in report.outcomes:
                self._tell(outcome)
            report.outcomes += idle
            with ExitStack() as unless_done:
                # Ctrl-C, or a fault of our own: what has not begun must not begin, the rest ends at the next segment.
                unless_done.callback(partitions.shutdown, wait=False, cancel_futures=True)
                unless_done.callback(self._tools.stop.set)
                for outcome in ended_turns(self._tools, futures, round_end_s, self._look_meanwhile):
                    report.outcomes.append(outcome)
                    self._tell(outcome)
                    self._tools.emit(CycleProgressed(report.stopped))
                unless_done.pop_all()
        report.led = [led for archiver, plan in work if (led := archiver.led(plan)) is not None]
        report.outcomes.sort(key=lambda outcome: outcome.files.topic_partition)
        self._tools.emit(CycleEnded(report.stopped, self._tools.journal.count()))
        report.look_again_s = self._look_again_s(report)
        return report

    def _look_meanwhile(self, busy: Busy) -> None:
        """Plan, hold and tell, but begin nothing: what rolls while a turn waits for the store is retention's as well.

        Nor beat: a turn that never ends, other than for the store, is for the liveness probe to see.
        """
        try:
            work, _ = self.plan(busy)
        except SidecarError as error:
            _log.warning("look_failed", error=str(error), effect="the next look tries again")
            return
        hold(self._tools, self._archivers.values(), work, busy)

    def _look_again_s(self, report: RoundReport) -> float:
        now_s = self._tools.clock.monotonic_s()
        # "At once" is of use only where a round gets on: a full queue of which nothing was archived is full again.
        gets_on = any(outcome.archived for outcome in report.outcomes)
        waiting = [ms for found in report.outcomes if (ms := found.look_again_ms) is not None and (ms > 0 or gets_on)]
        rests_s = [max(0.0, rest.until_s - now_s) for rest in self._resting.values()]
        return min([math.inf, *rests_s, *(milliseconds / 1000 for milliseconds in waiting)])

    def _tell(self, outcome: PartitionOutcome) -> None:
        if outcome.error is not None:
            until_s = self._tools.clock.monotonic_s() + self._tools.policy.retry_wait_s
            self._resting[outcome.files.topic_partition] = _Rest(until_s, outcome)
            self._tools.emit(PartitionFailed(outcome.files.topic_partition, outcome.error))
        elif outcome.reason is not None:
            _log.debug("partition_waits", partition=str(outcome.files.topic_partition), reason=render(outcome.reason))


class _LastListed:
    """Every partition as the last listing of its log dir that worked has found it: a failed one does not say that they are gone."""

    def __init__(self) -> None:
        self._files: dict[TopicPartition, PartitionFiles] = {}

    def left_alone(
        self, found: ScanResult, present: dict[TopicPartition, PartitionFiles]
    ) -> dict[TopicPartition, PartitionOutcome]:
        """Partitions that were last seen in a log dir which this look could not list, and why they wait.

        Args:
            found: what the look found. present: the files of all partitions in it that could be listed.
        """
        failed = {problem.path: problem.error for problem in found.problems if problem.topic_partition is None}
        unreadable = {problem.topic_partition for problem in found.problems}
        left = {
            topic_partition: PartitionOutcome(files, error=failed[files.log_dir])
            for topic_partition, files in (self._files.items() if failed else ())
            if files.log_dir in failed and topic_partition not in present and topic_partition not in unreadable
        }
        kept = {topic_partition: outcome.files for topic_partition, outcome in left.items()}
        # Its log dir may be the next that fails.
        kept |= {partition: files for partition, files in self._files.items() if partition in unreadable}
        self._files = kept | present
        return left
