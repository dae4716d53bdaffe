"""One partition as the loop sees it: what it has learned, what it plans, and what is pinned. Only the loop's thread touches it.

What may last (the archive, the store, large reads) is a step: `planning` and `CopyExecutor` hand it out, and go on with its result.
While a step is under way, what is known of the archive belongs to that step.
"""

from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from sidecar.archive.state import CommitId, PartitionState
from sidecar.commits.archive_view import ArchiveView
from sidecar.commits.commit_log import CommitConflict
from sidecar.compaction_strategy import StrategyInUse
from sidecar.compactor.before_upload import BeforeUpload
from sidecar.compactor.candidate_queue import LedPartition
from sidecar.errors import CoverageHole, LineageUnknown, PartitionError, SidecarError
from sidecar.model import ArchivedSegment, ObjectKey, PartitionFiles, SegmentFiles
from sidecar.partition.domain_events import BacklogChanged
from sidecar.partition.facts import Change, PartitionFacts, Term, effective_log_start
from sidecar.partition.plan import PartitionPlan, plan_partition
from sidecar.partition.status import PartitionOutcome, PartitionStatus
from sidecar.partition.wait_reason import LineageUndecided, NotContiguous, NotLeader, NotStable, OpenTransaction, Wait
from sidecar.retention.active_tail import ActiveTail
from sidecar.retention.log_starts import LogStarts
from sidecar.retention.pinned_log import PinnedLog
from sidecar.runner.blocked import BlockedSegment
from sidecar.runner.context import RunContext
from sidecar.runner.partition_status import above, backlog_of, first_deadline_ms, segment_deadline_ms, status_of
from sidecar.runner.step_threads import Post, Step
from sidecar.scheduler.admission import NEVER
from sidecar.segment.open_transactions import OpenTransactions
from sidecar.segment.producer_snapshot import KnownState


@dataclass(slots=True)
class IdlePlan:
    """What was found, and from what. Neither clock nor settings nor topic configurations have a part in it.

    `state`: the newest part of the archive, None where it is not open. `status`: what people are shown of it, once it was asked
    for.
    """

    plan: PartitionPlan
    state: PartitionState | None
    status: PartitionStatus | None = None

    def holds(self, files: PartitionFiles, facts: PartitionFacts, state: PartitionState | None) -> bool:
        return (self.plan.files, self.plan.facts, self.state) == (files, facts, state)


def idle_plan(plan: PartitionPlan, state: PartitionState | None) -> IdlePlan | None:
    """The plan if it can stay, None if it may change by itself: something waits for time, for a person or for a task.

    Where this broker leads, nothing may wait: how long it may wait depends on the time and on the topic's retention.
    """
    if plan.segments or plan.hole is not None or plan.error is not None or plan.recheck_in_ms is not None:
        return None
    if plan.facts.leads and (plan.waiting or state is None):
        return None
    return IdlePlan(plan, state)


Planning: TypeAlias = Generator[Step, Any, PartitionPlan]
"""Yields steps for a pool, is sent the result of each, and returns the plan. Errors of a step are thrown into it."""


class PartitionArchiver:
    """Plans one partition, check after check; keeps what it learned of it between them.

    `last_served`: number of the last task in which segments of it were taken on; `NEVER` before the first. `held`: what of it
    is pinned. `tail`: when its active segment goes. `starts`: where its log began. `plan`: the newest one, None from when its task
    begins. `task_plan`: of the task under way, None if there is none. `conflicts`: tasks in a row that another writer overtook.
    `led`: the partition as others may work on its archive too; None unless this broker leads it and all was well.
    """

    def __init__(
        self,
        context: RunContext,
        files: PartitionFiles,
        before_upload: BeforeUpload | None = None,
        post: Post = lambda _event: None,
    ) -> None:
        """Args:
        before_upload: holds segments back that are to be compacted first. Default: nothing is.
        post: how other threads reach the loop's. Default: they do not.
        """
        self._context, self.before_upload, self._post = context, before_upload, post
        self.topic_partition, self.files = files.topic_partition, files
        self.known = ArchiveView(context, files)
        self.blocked = BlockedSegment(context)
        self.pinned = PinnedLog(context)
        self.tail = ActiveTail(context.facts, context.clock, context.budget.reads.count, context.disk)
        self.starts = LogStarts()
        self.end_offset: int | None = None
        self.plan: PartitionPlan | None = None
        self.task_plan: PartitionPlan | None = None
        self.conflicts = 0
        self.last_served = NEVER
        self.led: LedPartition | None = None
        self._seen: tuple[PartitionFiles, PartitionFacts] | None = None
        self._term: Term | None = None
        self._unread = Change.NONE
        self._first_seen_ms: dict[int, int] = {}
        self._asked_gap: tuple[int, int] | None = None
        self._last_failure: PartitionOutcome | None = None
        self._idle: IdlePlan | None = None
        self._newest_commit: tuple[ObjectKey, CommitId | None] | None = None

    # What is seen.

    def see(self, files: PartitionFiles, facts: PartitionFacts, *, is_answer: bool = True) -> None:
        """A check has listed these files. `is_answer`: after the broker was asked."""
        self._seen, self.files = (files, facts), files
        if facts.leads or facts.unanswered:
            self._begin_term(facts.term(files))
        policy = self._context.facts.policy(files.topic_partition.topic)
        self.starts = self.starts.seen(files, facts, policy, self._context.disk, self._context.emit)
        self.pinned.see(files, facts, self.end_offset, is_answer=is_answer)

    def _begin_term(self, term: Term) -> None:
        """Reset what is remembered and does not hold in another term, but the archive (see `planning`) and the pins.

        While another broker leads, or none, no term of ours begins: what was seen before holds if this one leads under it again.
        """
        change, self._term = term.since(self._term), term
        self._unread = max(self._unread, change)
        self.starts = self.starts.in_term(term, change)
        if self._unread is Change.TOPIC:
            self.end_offset = None  # What `known` says is of the topic before.

    def skip(self, files: PartitionFiles, *, is_listed: bool) -> bool:
        """A partition is not planned this time. False if it is not this broker's to archive, for all that is known.

        `files`: as they were last listed. `is_listed`: whether that was just now.
        """
        facts = self.led = self._idle = None  # Planned again, it may be led again.
        with suppress(PartitionError):  # The next plan reports it; where the disk is gone, the facts may lie on it.
            facts = self._context.facts.partition(files)
        if not is_listed:
            return self.pinned.see_unlisted(facts)
        if facts is not None:
            with suppress(SidecarError):  # As above. It must not end the check of all others.
                self.see(files, facts)
        return True

    def _learn_archive(self) -> None:
        """What others may ask of the archive while a step has `known`."""
        known = self.known
        self.end_offset = None if self._unread is Change.TOPIC else known.end_offset
        if known.state is not None:
            self._newest_commit = known.state.lineage.root, known.state.last_commit

    def newest_commit(self, root: ObjectKey) -> CommitId | None:
        """The newest commit of this lineage that was seen; None if none was. Any thread may ask."""
        newest = self._newest_commit
        return newest[1] if newest is not None and newest[0] == root else None

    def doubt_archive(self) -> None:
        """Another thread could not read it: the next check reads it again, as after another leader."""
        self._unread = max(self._unread, Change.LEADER_EPOCH)

    # Plans.

    def stays_idle(self, files: PartitionFiles, facts: PartitionFacts) -> bool:
        """Whether the last plan was to do nothing, and would be the same now. Cheap."""
        known = self._idle
        if known is None or self._unread or not known.holds(files, facts, self.known.state):
            return False
        self.plan = known.plan
        return True

    def idle_outcome(self, plan: PartitionPlan, unfinished: frozenset[str]) -> PartitionOutcome | None:
        """How a task would end that has nothing to do; None where it takes a task to know.

        `unfinished`: roots of lineages of which attempts are left.
        """
        known, state = self._idle, self.known.state
        if known is None or known.plan is not plan:
            return None
        is_fenced = state is not None and plan.facts.leader_epoch < state.highest_leader_epoch
        if state is not None and (is_fenced or state.lineage.root in unfinished):
            return None
        return self.outcome_without_task(plan)

    def outcome_without_task(self, plan: PartitionPlan) -> PartitionOutcome:
        """What the plan says, where nothing is archived by it."""
        waiting = len(plan.waiting)
        return PartitionOutcome(
            plan.files, end_offset=self.end_offset, waiting=waiting, reason=plan.reason, error=plan.error
        )

    def provisional_plan(self) -> PartitionPlan | None:
        """What has rolled above what is under way, or above the archive as far as it is known: worth pinning. Asks for nothing.

        None before the first check.
        """
        if self._seen is None:
            return None
        files, facts = self._seen
        pending, busy = self.pending(files), self.task_plan
        if busy is None:
            if not facts.leads or facts.reason:
                return PartitionPlan(files, facts, (), pending, facts.reason or NotLeader(), is_provisional=True)
            return replace(self._rolled(files, facts, pending), deadline_ms=self.deadline_ms(files))
        end_offset = busy.segments[-1].end_offset if busy.segments else -1
        rolled: tuple[SegmentFiles, ...] = ()
        if facts.term(files).is_one_with(busy.term):
            rolled = self._rolled(files, facts, tuple(s for s in pending if s.end_offset > end_offset)).segments
        waiting = tuple(segment for segment in pending if segment not in rolled)
        return replace(busy, files=files, segments=rolled, waiting=waiting, is_provisional=True)

    def task_left(self) -> PartitionPlan | None:
        """What the task under way has not archived yet: worth pinning. None where there is none, or in another term.

        A plan that was made between two checks has segments that no check has pinned.
        """
        busy = self.task_plan
        if busy is None or self._seen is None:
            return None
        files, facts = self._seen
        if not facts.term(files).is_one_with(busy.term):
            return None
        return replace(busy, files=files, segments=above(busy.segments, self.end_offset))

    def worth_pinning(self, plan: PartitionPlan) -> PartitionPlan:
        """The plan with what has rolled above what comes first: what only pins have, a gap, or what waits for a transaction.

        Retention deletes up to the high watermark, whatever transactions are open. Source: UnifiedLog.deletableSegments.
        """
        comes_later = plan.reason is None or isinstance(plan.reason, NotContiguous | NotStable | OpenTransaction)
        if not (comes_later and plan.waiting):
            return plan
        facts = replace(plan.facts, stable_end_offset=plan.waiting[-1].end_offset)
        return replace(plan, segments=(*plan.segments, *self._rolled(plan.files, facts, plan.waiting).segments))

    def _rolled(self, files: PartitionFiles, facts: PartitionFacts, pending: tuple[SegmentFiles, ...]) -> PartitionPlan:
        now_ms, settling = self._context.clock.now_ms(), self._context.policy.settling
        found = plan_partition(replace(files, segments=pending), facts, None, now_ms=now_ms, settling=settling)
        return self.worth_pinning(replace(found, files=files, is_provisional=True))

    def planning(self, *, lists: bool = False) -> Planning:
        """What could be archived of what was seen last, and until when. Raises SidecarError. Not while a task is under way.

        `lists`: list the directory before, where no check did just now. What the leader answered last still counts.
        """
        self._idle = self.plan = plan = None
        if lists and (seen := self._seen) is not None:
            listed = yield partial(self._list_again, seen[0])
            if self._seen is seen:
                self.see(*listed, is_answer=False)
        while plan is None:
            if self._seen is None:
                raise RuntimeError(f"{self.topic_partition}: planned before it was seen")
            try:
                plan = yield from self._planned(*self._seen)
            except SidecarError:
                self.led = None
                raise
        self._learn_archive()
        self.led = self._led(plan)
        if plan.facts.leads:
            plan = replace(plan, deadline_ms=self.deadline_ms(plan.files))
        self._idle = None if self.pinned.losses.is_doubted else idle_plan(plan, self.known.state)
        self.plan = plan
        return plan

    def _list_again(self, files: PartitionFiles) -> tuple[PartitionFiles, PartitionFacts]:
        # In this order: what the leader says of its log start counts for a directory that was listed later.
        facts = self._context.facts.partition(files)
        return self._context.disk.listed_again(files), facts

    def _planned(self, files: PartitionFiles, facts: PartitionFacts) -> Generator[Step, Any, PartitionPlan | None]:
        """The plan, None where another check came while the archive was read."""
        known, seen = self.known, self._seen
        if self._unread or not facts.leads:
            known.reset(self._unread)
            self._unread = Change.NONE
        if not facts.leads or facts.reason:
            return PartitionPlan(files, facts, (), self.pending(files), facts.reason or NotLeader())
        state = known.as_known(files)
        if state is not None and state.end_offset is None and self.pinned.losses.has_losses:
            known.forget()  # Another broker's sidecar may have archived them since it was read.
            state = None
        try:
            if state is None:
                state = yield partial(known.open, files)
                self.starts = self.starts.archive_read_again()
        except LineageUnknown as error:
            if files.segments:
                raise
            # Nothing is to be appended yet: what rolls next may tell, and needs no person before.
            return PartitionPlan(files, facts, (), (), LineageUndecided(str(error)))
        if known.is_reach_in_doubt(files):
            yield partial(known.require_reach, files, facts.known_log_start)
        self._learn_archive()
        if self._seen is not seen:
            return None
        self.pinned.archive_read(files, state, known.extent.start_offset)
        gone = self.pinned.plannable(files, facts, state.end_offset, known.extent.start_offset, self.blocked.segment)
        now_ms, seen_ms = self._context.clock.now_ms(), self._first_seen_ms
        self._first_seen_ms = {s.end_offset: seen_ms.get(s.end_offset, now_ms) for s in files.segments}
        plan_from = partial(
            plan_partition,
            replace(files, segments=(*gone, *files.segments)),
            archived_end_offset=state.end_offset,
            decided_end_offset=self.pinned.decided_end_offset if gone else None,
            now_ms=now_ms,
            settling=self._context.policy.settling,
            first_seen_ms=self._first_seen_ms,
            accept_hole=self._context.policy.record_lost,
            cut=self.pinned.cut,
        )
        plan = plan_from(facts)
        if (
            isinstance(plan.error, CoverageHole)
            and facts.cluster_start_offset is not None
            and plan.hole != self._asked_gap
        ):
            # Retention may have come between the leader's answer and the listing: its next answer shows that, and needs no person.
            now = yield partial(self._context.facts.confirm, files)
            if self._seen is not seen:
                return None
            self._asked_gap = plan.hole
            if now.leads and now.leader_epoch == facts.leader_epoch:
                plan = plan_from(replace(facts, cluster_start_offset=now.cluster_start_offset))
        if isinstance(plan.error, LineageUnknown) and gone and gone == plan.waiting[: len(gone)]:
            self.pinned.failed(gone[0], plan.error)  # Read again at once, and given up if it is the same.
            return None
        plan = replace(plan, files=files)
        if (look := self.blocked.look_ahead(plan)) is not None:
            self.blocked.hold((yield look))
            if not self._is_still_in(facts.term(files)):
                return None
        plan = self.blocked.apply(plan)
        before_upload = self.before_upload
        if before_upload is None or plan.error is not None or plan.hole is not None:
            return plan
        if gone:
            return self.pinned.only_gone(plan)
        groups: PartitionPlan = yield partial(self._blocked_for_groups, before_upload, plan)
        is_by_these_rules = self.before_upload is before_upload
        return groups if is_by_these_rules and self._is_still_in(facts.term(files)) else None

    def _is_still_in(self, term: Term) -> bool:
        return self._seen is not None and self._seen[1].term(self._seen[0]).is_one_with(term)

    def _blocked_for_groups(self, before_upload: BeforeUpload, plan: PartitionPlan) -> PartitionPlan:
        known, files = self.known, plan.files
        state = known.opened()[0]

        def producers() -> KnownState:
            return known.position_before(files, plan.segments[0].base_offset, state).known

        def newest() -> StrategyInUse | None:
            return known.newest_strategy(files)

        deadline_of = partial(segment_deadline_ms, self._context, files)
        start_offset = effective_log_start(plan.facts, state)
        return before_upload.block(plan, producers, deadline_of, start_offset=start_offset, newest=newest)

    # Tasks.

    def task_begins(self, plan: PartitionPlan, number: int) -> None:
        """A copy task begins to archive a plan. `number`: of the task."""
        self.plan, self.task_plan = None, plan
        if plan.segments:
            self.last_served = number
        self.known.position = self.pinned.start_of(plan) or self.known.position

    def learn(self, starts: LogStarts) -> None:
        self.starts = self.starts.learned(starts)

    def committed(self, archive: PartitionState, segments: Sequence[ArchivedSegment]) -> None:
        """The task has added these, and this is the archive now."""
        self.end_offset = archive.end_offset
        self._newest_commit = archive.lineage.root, archive.last_commit
        for segment in segments:
            self.pinned.archived(segment.end_offset)

    def task_ended(self, plan: PartitionPlan, outcome: PartitionOutcome, blocker: OpenTransactions | None) -> None:
        """It is over; `known` is ours again. `blocker`: what a segment waits for, if one was found to wait."""
        known, error = self.known, outcome.error
        self.task_plan = None
        if self.pinned.start_of(plan) is not None and not outcome.archived:
            known.position = None  # The next plan may begin elsewhere.
        if blocker is not None:
            self.blocked.hold(blocker)
        if isinstance(error, CommitConflict):
            # Not a fault: the other writer's work counts, the next plan decides on top of it.
            known.overtaken(error.state, outcome.files)
            self.starts = self.starts.archive_read_again()
        elif error is not None and error is not plan.error:
            known.forget()
            if outcome.unprepared is not None:
                self.pinned.failed(outcome.unprepared, error)
        self._learn_archive()
        self.led = self._led(plan)
        outcome.end_offset = known.last_end_offset = self.end_offset
        outcome.waiting += len(plan.segments) - len(outcome.archived)

    def not_reached(self, plan: PartitionPlan, reason: Wait) -> PartitionOutcome:
        """The outcome where all is over before the plan's turn came."""
        waiting = len(plan.segments) + len(plan.waiting)
        return PartitionOutcome(plan.files, end_offset=self.end_offset, waiting=waiting, reason=reason, recheck_in_ms=0)

    # What others see.

    def deadline_ms(self, files: PartitionFiles) -> int | None:
        """When the broker will delete the first segment that is not known to be archived; None for never, or if none is."""
        gone, listed = above(self.pinned.gone, self.end_offset), above(files.segments, self.end_offset)
        return first_deadline_ms(self._context, files, gone, listed)

    def pending(self, files: PartitionFiles) -> tuple[SegmentFiles, ...]:
        """Rolled segments above the archive as it is known now, or was when it was last known; also what is only pinned."""
        return (*above(self.pinned.gone, self.end_offset), *above(files.segments, self.end_offset))

    def backlog(self, files: PartitionFiles) -> BacklogChanged:
        """What is left to archive of these files, after a commit."""
        gone = above(self.pinned.gone, self.end_offset)
        return backlog_of(self._context, files, gone, above(files.segments, self.end_offset))

    def status(
        self, files: PartitionFiles, plan: PartitionPlan | None, outcome: PartitionOutcome | None
    ) -> PartitionStatus:
        """The partition for people. `plan`: None where none could be made; `outcome`: None before its task.

        What failed stays failed for them until it has come through: trying it again is no success yet.
        """
        idle = self._idle if outcome is None and self._idle is not None and self._idle.plan is plan else None
        if outcome is not None:
            self._last_failure = None if outcome.error is None else outcome
        elif plan is None or not (plan.segments or plan.is_provisional):
            self._last_failure = None
        else:
            outcome = self._last_failure
        status = None if idle is None else idle.status
        if status is None:
            stable_end_offset = None if self._seen is None else self._seen[1].stable_end_offset
            gone = self.pinned.gone
            status = status_of(self._context, files, gone, self.end_offset, plan, outcome, stable_end_offset)
        if idle is not None:
            idle.status = status
        return self.tail.with_active_risk(status, files, self.pinned.holds)

    def _led(self, plan: PartitionPlan) -> LedPartition | None:
        state, facts = self.known.state, plan.facts
        if not facts.leads or facts.reason or state is None or state.end_offset is None:
            return None
        return LedPartition(
            self.topic_partition,
            state.lineage.root,
            facts.leader_epoch,
            state.end_offset,
            plan.files,
            # By all that is seen until then, also from another thread.
            lambda *newer: self.starts.unnoted_at(*newer),
            self.starts.unnoted_in(state),
            self.starts.is_unknown,
            partial(self.newest_commit, state.lineage.root),
            partial(self._post, self.doubt_archive),
        )
