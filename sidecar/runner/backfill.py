"""`backfill`: archives everything that may be archived now, once, and reports."""

import re
import shlex
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any, Final

from sidecar.clock import Clock
from sidecar.compaction_strategy import OnUnkeyed
from sidecar.compactor.topic_counts import EFFECT
from sidecar.compactor.topic_rule import TopicRules
from sidecar.config import CompactionPolicy, CompactionWhen, Settings
from sidecar.errors import BrokerUnavailable, PartitionError, SettingsError
from sidecar.event_log import EVENTS
from sidecar.logformat.files import topics_of
from sidecar.model import ArchivedSegment, SegmentFiles, SnapshotOrigin, TopicPartition
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.status import PartitionOutcome
from sidecar.partition.wait_reason import NotCheckpointed, Wait, render
from sidecar.plurals import plural
from sidecar.ports import BrokerFacts
from sidecar.reporting.advice import advised
from sidecar.reporting.progress import ProgressCounter, Watcher
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.assembly import open_tools, scanner
from sidecar.runner.checks import CycleReport
from sidecar.runner.copy_tasks import Work
from sidecar.runner.topic_choice import nothing_chosen, require_topic
from sidecar.segment.reading import ReadSegment, read_segment
from sidecar.threads import Handler, handling

ANSWER_WAIT_S: Final = 60.0
ANSWER_POLL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition in the report. `snapshots_missing`: planned segments at whose end the broker left no snapshot."""

    topic: str
    partition: int
    segments_planned: int = 0
    segments_uploaded: int = 0
    segments_waiting: int = 0
    snapshots_missing: int = 0
    bytes_uploaded: int = 0
    end_offset: int | None = None
    snapshots_broker: int = 0
    snapshots_rebuilt: int = 0
    snapshot_conformance: dict[str, int] = field(default_factory=dict)
    stopped_because: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """All partitions ascending, what could not be listed, and the exit code.

    `without_compaction`: topics with `before_upload` of which segments are planned; a back-fill archives these as they are.
    """

    rows: tuple[PartitionRow, ...]
    problems: tuple[str, ...]
    exit_code: int
    dry_run: bool
    planned: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    without_compaction: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        rows = list(map(asdict, self.rows))
        found: dict[str, Any] = {"kind": "backfill", "version": 1, "dry_run": self.dry_run, "partitions": rows}
        if self.dry_run:
            found["planned"] = self.planned
        found["without_compaction"] = list(self.without_compaction)
        return {**found, "problems": list(self.problems), "exit_code": self.exit_code}


def backfill(
    settings: Settings,
    *,
    dry_run: bool,
    progress: Watcher | None = None,
    reader: ReadSegment = read_segment,
    config_file: Path | None = None,
) -> BackfillReport:
    """Archive all rolled segments of the chosen topics that are stable, in one pass.

    `config_file`: where the settings are from, for commands that are recommended.

    Raises:
        SettingsError: nothing can be done with these settings.
        BrokerUnavailable: the broker must be queried for leaders, and does not respond.
        PartitionError: segments wait, but nothing says that this broker's copy is the one to archive.
        StoreError: the store cannot be reached, or cannot do what the archive needs.
    """
    if not settings.broker.log_dirs:
        raise SettingsError("no log directory is given: use --log-dir, or set broker.log_dirs in the settings file")
    if not settings.broker.connection.is_configured:
        require_topic(topics_of(settings.broker.log_dirs), settings)
    _require_leadership(settings)
    with open_tools(settings, read_only=dry_run, reader=reader) as context:
        loop = ArchiveLoop(context, scanner(settings))
        work, report = plan_answered(loop, context.clock)
        _require_choice(settings, context.facts, report.found_nothing and not work)
        planned = {
            str(plan.files.topic_partition): [
                {"base_offset": s.base_offset, "end_offset": s.end_offset, "size_bytes": s.size_bytes}
                for s in plan.segments
            ]
            for _, plan in work
            if plan.segments
        }
        without_compaction = _without_compaction(settings, context.facts, work, config_file)
        if dry_run:
            report.outcomes += [archiver.outcome_without_task(plan) for archiver, plan in work]
        else:
            report = _worked(loop, work, report, progress, context.stop)
    segments = {plan.files.topic_partition: plan.segments for _, plan in work}
    rows = [_row(outcome, segments.get(outcome.files.topic_partition, ())) for outcome in report.outcomes]
    for problem in report.problems:
        if (tp := problem.topic_partition) is not None:
            kind = type(problem.error).__name__
            rows.append(PartitionRow(tp.topic, tp.partition, stopped_because=advised(problem.error), error=kind))
    rows.sort(key=lambda row: (row.topic, row.partition))
    problems = tuple(advised(problem.error) for problem in report.problems if problem.topic_partition is None)
    return BackfillReport(tuple(rows), problems, report.exit_code, dry_run, planned, without_compaction)


def _worked(
    loop: ArchiveLoop, work: list[Work], report: CycleReport, progress: Watcher | None, stop: Event
) -> CycleReport:
    totals = [segment for _, plan in work for segment in plan.segments]
    counter = ProgressCounter(progress, len(totals), sum(segment.size_bytes for segment in totals))

    def committed(topic_partition: TopicPartition, segment: ArchivedSegment) -> None:
        log_bytes = sum(part.size_bytes for part in segment.parts if part.name == "log")
        counter.done(log_bytes, f"{topic_partition} {segment.base_offset}")

    with _drained_by_signals(stop):
        return loop.work(work, report, committed)


@contextmanager
def _drained_by_signals(stop: Event) -> Iterator[None]:
    """What a signal raises elsewhere, it raises after the block: what is uploaded is committed first.

    Traps: handlers run on the loop's thread. Raising there would leave an event half handled. And `stop` has a lock, which the
    interrupted code may have, so that only what comes before `set` is certain to be done.
    """
    interrupts: list[BaseException] = []
    # Where a signal ends the process without Python, or is ignored, it stays so.
    before: dict[int, Handler] = {
        number: handler for number in (signal.SIGINT, signal.SIGTERM) if callable(handler := signal.getsignal(number))
    }

    def drain(number: int, frame: FrameType | None) -> None:
        try:
            before[number](number, frame)
        except (KeyboardInterrupt, SystemExit) as interrupt:
            interrupts.append(interrupt)
        stop.set()

    with handling(dict.fromkeys(before, drain)):
        yield
    if interrupts:
        raise interrupts[0]


def plan_answered(loop: ArchiveLoop, clock: Clock) -> tuple[list[Work], CycleReport]:
    """A plan for which the broker has answered all that it was asked: one that has just started does not at once.

    A partition for which it still does not has an error instead. Raises BrokerUnavailable where it does not answer at all.
    """
    deadline_s = clock.monotonic_s() + ANSWER_WAIT_S
    while True:
        work, report = loop.plan()
        if report.broker.away:
            raise BrokerUnavailable(f"nothing is archived: {render(report.broker.away)}")
        awaited = (plan for _, plan in work if not isinstance(plan.reason, NotCheckpointed))
        if not any(map(_is_unanswered, awaited)) or clock.monotonic_s() >= deadline_s:
            break
        clock.sleep_s(ANSWER_POLL_S)
    answered: list[Work] = []
    for archiver, plan in work:
        if _is_unanswered(plan):
            advice = "" if isinstance(plan.reason, NotCheckpointed) else "; run again when the broker is up"
            what = f"{plan.files.topic_partition}: {render(plan.reason)}{advice}"
            plan = replace(plan, error=PartitionError(what), reason=None)
        answered.append((archiver, plan))
    return answered, report


def _is_unanswered(plan: PartitionPlan) -> bool:
    return plan.facts.unanswered and bool(plan.waiting)


def _require_choice(settings: Settings, facts: BrokerFacts, found_nothing: bool) -> None:
    """A broker need not hold a chosen topic, but the cluster must have one. Raises SettingsError."""
    found = nothing_chosen(settings, facts) if found_nothing else None
    if found is not None and found.is_slip:
        raise SettingsError(found.reason)
    if found is not None:
        EVENTS.warning("no_topic_selected", reason=found.reason)


def _require_leadership(settings: Settings) -> None:
    """Said once and before the store is asked for anything, instead of by every partition."""
    if settings.broker.assume_leader or settings.broker.connection.is_configured:
        return
    waiting = sum(len(files.segments) for files in scanner(settings)().partitions)
    if waiting:
        raise PartitionError(
            f"nothing is archived, though {plural(waiting, 'rolled segment waits', 'rolled segments wait')}: "
            f"{render(Wait.LEADERSHIP_NOT_ON_DISK)}"
        )


def _without_compaction(
    settings: Settings, facts: BrokerFacts, work: list[Work], config_file: Path | None
) -> tuple[str, ...]:
    """Topics that `run` compacts before the upload. One pass has no time to wait for groups."""
    rules = TopicRules(settings.compaction, facts.policy)
    planned = {plan.files.topic_partition.topic for _, plan in work if plan.segments}
    found: list[str] = []
    for topic in sorted(planned):
        rule = rules.rule_of(topic)
        policy, unknown = rule.policy, rule.unknown
        if not unknown and (policy is None or policy.when is not CompactionWhen.BEFORE_UPLOAD):
            continue
        found.append(topic)
        reason = "backfill does not compact before the upload" + (
            f"; the topic's rule is not known: {unknown}" if unknown else ""
        )
        remedy = _compact_command(settings.store.url, topic, policy, config_file)
        EVENTS.warning("before_upload_not_applied", topic=topic, reason=reason, effect=EFFECT, remedy=remedy)
    return tuple(found)


def _compact_command(url: str, topic: str, policy: CompactionPolicy | None, config_file: Path | None) -> str:
    """A command that compacts a topic in the archive by this policy, with the settings file or without it.

    `policy`: None if it is not known. Then only the settings can say what holds, from whatever file.
    """
    words = ["tiered-sidecar", "compact", "--archive", url, "--topic", re.escape(topic)]
    words += ["--config", str(config_file or "FILE")] if config_file or policy is None else []
    if policy is not None:
        words += ["--strategy", str(policy.strategy), *(["--header", policy.header] if policy.header else [])]
        words += ["--strict"] if policy.strict else []
        words += ["--on-unkeyed", "refuse"] if policy.on_unkeyed is OnUnkeyed.REFUSE else []
    return shlex.join(words)


def _row(outcome: PartitionOutcome, planned: Sequence[SegmentFiles]) -> PartitionRow:
    origins = Counter(segment.snapshot.origin for segment in outcome.archived)
    return PartitionRow(
        topic=outcome.files.topic_partition.topic,
        partition=outcome.files.topic_partition.partition,
        segments_planned=len(planned),
        segments_uploaded=len(outcome.archived),
        segments_waiting=outcome.waiting,
        snapshots_missing=sum(segment.snapshot is None for segment in planned),
        bytes_uploaded=sum(segment.size_bytes for segment in outcome.archived),
        end_offset=outcome.end_offset,
        snapshots_broker=origins[SnapshotOrigin.BROKER],
        snapshots_rebuilt=origins[SnapshotOrigin.REBUILT],
        snapshot_conformance=dict(outcome.conformance),
        stopped_because=render(outcome.reason) if outcome.error is None else advised(outcome.error),
        error=type(outcome.error).__name__ if outcome.error else None,
    )
