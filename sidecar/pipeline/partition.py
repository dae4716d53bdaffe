"""Archives one partition: from the seam with the archive through its rolled segments, each committed in offset order."""

from __future__ import annotations

import math
from collections.abc import Container
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

from sidecar.commits.commit_log import CommitConflict
from sidecar.compaction_strategy import StrategyInUse
from sidecar.compactor.candidate_queue import LedPartition
from sidecar.errors import LineageUnknown, SidecarError
from sidecar.model import ArchivedSegment, PartitionFiles, SegmentFiles
from sidecar.partition.domain_events import BacklogChanged
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.leadership import effective_log_start
from sidecar.partition.outcome import PartitionOutcome
from sidecar.partition.plan import PartitionPlan, plan_partition
from sidecar.partition.status import PartitionStatus
from sidecar.partition.wait_reason import LineageUndecided, NotLeader, Wait
from sidecar.pipeline.compaction.before_upload import BeforeUpload
from sidecar.pipeline.copying import CopyExecutor, Done
from sidecar.pipeline.known_archive import KnownArchive
from sidecar.pipeline.partition_status import above, first_deadline_ms, oldest_ms, status_of
from sidecar.pipeline.pins.active_tail import ActiveTail
from sidecar.pipeline.pins.held_back import HeldBack
from sidecar.pipeline.pins.held_log import LOOK_AGAIN_MS, HeldLog
from sidecar.pipeline.provisional import provisional_plan
from sidecar.pipeline.standing_plan import StandingPlan, standing
from sidecar.pipeline.tools import Tools
from sidecar.segment.producer_snapshot import KnownState

NEVER = -1


class PartitionArchiver:
    """Plans and archives one partition, scan after scan; keeps what it learned of it between them.

    `last_turn`: number of the last round in which segments of it were taken on; `NEVER` before the first.
    `held`: what of it is held open. `tail`: when its active segment goes.
    """

    def __init__(self, tools: Tools, files: PartitionFiles, before_upload: BeforeUpload | None = None) -> None:
        """Args: before_upload: holds segments back that are to be compacted first. Default: nothing is."""
        self._tools, self.before_upload = tools, before_upload
        self._topic_partition = files.topic_partition
        self._known = KnownArchive(tools, files)
        self._held_back = HeldBack(tools)
        self.held = HeldLog(tools, self._known.starts)
        self.tail = ActiveTail(tools.facts, tools.clock, tools.budget.reads.count, tools.disk)
        self._first_seen_ms: dict[int, int] = {}
        self._stable_end_offset: int | None = None
        self._last_failure: PartitionOutcome | None = None
        self._standing: StandingPlan | None = None
        self.last_turn = NEVER

    def plan(
        self, files: PartitionFiles, facts: PartitionFacts | None = None, *, asks_store: bool = True
    ) -> PartitionPlan:
        """What could be archived of these files now, and until when. Reads the archive only the first time, if at all.

        `facts`: from before the files were listed. Default: asked for; nothing may have refreshed them since the listing.
        """
        self._standing, told = None, facts or self._tools.facts.partition(files)
        self.held.see(files, told, self._known.end_offset, is_turn=facts is not None)
        plan = self._plan(files, told, asks_store)
        if plan.facts.leads:
            plan = replace(plan, deadline_ms=self.deadline_ms(files))
        self._standing = standing(plan, self._known.state)
        return plan

    def standing_plan(self, files: PartitionFiles) -> PartitionPlan | None:
        """The last plan, if it was to do nothing and would be the same now; None where it must be made anew. Cheap.

        Raises what reading the facts raises.
        """
        known = self._standing
        if known is None or not known.holds(files, self._tools.facts.partition(files), self._known.state):
            return None
        return known.plan

    def idle_outcome(self, plan: PartitionPlan, unfinished: Container[str]) -> PartitionOutcome | None:
        """How a turn would end that has nothing to do, as the last one had not; None where it takes a turn to tell.

        Args:
            unfinished: roots of lineages of which attempts are left.
        """
        known, state = self._standing, self._known.state
        if known is None or known.plan is not plan or not known.is_settled:
            return None
        if state is not None and state.lineage.root in unfinished:
            return None
        return PartitionOutcome(
            plan.files, end_offset=self._known.end_offset, waiting=len(plan.waiting), reason=plan.reason
        )

    def deadline_ms(self, files: PartitionFiles) -> int | None:
        """When the broker will delete the first segment that is not known to be archived; None for never, or if none is."""
        end_offset = self._known.end_offset
        gone, listed = above(self.held.gone, end_offset), above(files.segments, end_offset)
        return first_deadline_ms(self._tools, files, gone, listed)

    def pending(self, files: PartitionFiles) -> tuple[SegmentFiles, ...]:
        """Rolled segments above the archive as it is known now, or was when it was last known; also what is only held open."""
        end_offset = self._known.end_offset
        return (*above(self.held.gone, end_offset), *above(files.segments, end_offset))

    def backlog(self, files: PartitionFiles) -> BacklogChanged:
        """What is left to archive of these files, after a commit."""
        held_deleted_bytes = sum(gone.size_bytes for gone in self.held.gone)
        oldest_pending_ms = oldest_ms(self.pending(files))
        return BacklogChanged(self._topic_partition, oldest_pending_ms, self.deadline_ms(files), held_deleted_bytes)

    def _plan(self, files: PartitionFiles, facts: PartitionFacts, asks_store: bool) -> PartitionPlan:
        self._stable_end_offset = facts.stable_end_offset
        self._known.see(facts.term(files), leads=facts.leads)
        self._known.starts.see(files, facts, self._tools.facts.policy(files.topic_partition.topic))
        if not facts.leads or facts.reason:
            return PartitionPlan(files, facts, (), self.pending(files), facts.reason or NotLeader())
        if not asks_store and self._known.as_known(files) is None:
            return provisional_plan(self._tools, files, facts, self.pending(files))
        try:
            state = self._known.open(files)
        except LineageUnknown as error:
            if files.segments:
                raise
            # Nothing is to be appended yet: what rolls next may be told apart, and needs no person before.
            return PartitionPlan(files, facts, (), (), LineageUndecided(str(error)))
        self._known.require_reach(files, state, facts.log_start_offset)
        start_offset = self._known.extent.start_offset
        gone = self.held.plannable(files, facts, state.end_offset, start_offset, self._held_back.segment)
        if self.held.in_doubt:
            return PartitionPlan(
                files, facts, (), self.pending(files), Wait.AWAITING_LOG_START, look_again_ms=LOOK_AGAIN_MS
            )
        plan = plan_partition(
            replace(files, segments=(*gone, *files.segments)),
            facts,
            state.end_offset,
            now_ms=self._tools.clock.now_ms(),
            settling=self._tools.policy.settling,
            first_seen_ms=self._seen_rolled(files),
            accept_hole=self._tools.policy.record_lost,
            cut=self._tools.disk.cut,
        )
        plan = self._held_back.apply(replace(plan, files=files))
        if self.before_upload is None or plan.error is not None or plan.hole is not None:
            return plan
        if gone:
            return self.held.only_gone(plan)
        if not asks_store:
            return replace(plan, is_provisional=bool(plan.segments))
        limit_ms = self._tools.facts.policy(files.topic_partition.topic).local_limit_ms

        def known() -> KnownState:
            return self._known.position_before(files, plan.segments[0].base_offset, state).known

        def newest() -> StrategyInUse | None:
            return self._known.newest_strategy(files)

        start_offset = effective_log_start(facts, state)
        return self.before_upload.hold_back(plan, known, limit_ms, start_offset=start_offset, newest=newest)

    def _seen_rolled(self, files: PartitionFiles) -> dict[int, int]:
        now_ms, first_seen_ms = self._tools.clock.now_ms(), self._first_seen_ms
        self._first_seen_ms = {s.end_offset: first_seen_ms.get(s.end_offset, now_ms) for s in files.segments}
        return self._first_seen_ms

    def status(
        self, files: PartitionFiles, plan: PartitionPlan | None, outcome: PartitionOutcome | None
    ) -> PartitionStatus:
        """The partition for people. `plan`: None where none could be made; `outcome`: None before its turn.

        What failed stays failed for them until it has come through: trying it again is no success yet.
        """
        standing = self._standing
        if outcome is None and standing is not None and standing.plan is plan:
            self._last_failure = None
            if standing.status is None:
                standing.status = self._status_of(files, plan, None)
            return self.tail.told(standing.status, files, self.held.holds)
        if outcome is not None:
            self._last_failure = None if outcome.error is None else outcome
        elif plan is None or not (plan.segments or plan.is_provisional):
            self._last_failure = None
        else:
            outcome = self._last_failure
        return self.tail.told(self._status_of(files, plan, outcome), files, self.held.holds)

    def _status_of(
        self, files: PartitionFiles, plan: PartitionPlan | None, outcome: PartitionOutcome | None
    ) -> PartitionStatus:
        end_offset = self._known.end_offset
        return status_of(self._tools, files, self.held.gone, end_offset, plan, outcome, self._stable_end_offset)

    def led(self, plan: PartitionPlan) -> LedPartition | None:
        """The partition as others may work on its archive too; None unless this broker leads it and all was well."""
        state, facts = self._known.state, plan.facts
        if not facts.leads or facts.reason or state is None or state.end_offset is None:
            return None
        starts = self._known.starts
        return LedPartition(
            self._topic_partition,
            state.lineage.root,
            facts.leader_epoch,
            state.end_offset,
            plan.files,
            starts.unnoted_at,
            starts.unnoted_in(state),
            starts.is_unknown,
            partial(self._known.newest_commit, state.lineage.root),
        )

    def not_reached(self, plan: PartitionPlan) -> PartitionOutcome:
        """The outcome where the round was over before the plan's turn came."""
        waiting = len(plan.segments) + len(plan.waiting)
        return PartitionOutcome(
            plan.files, end_offset=self._known.end_offset, waiting=waiting, reason=Wait.ROUND_OVER, look_again_ms=0
        )

    def archive(
        self, plan: PartitionPlan, uploads: Executor, done: Done = lambda _: None, *, round_end_s: float = math.inf
    ) -> PartitionOutcome:
        """Archive the planned segments. Never raises a SidecarError: it stands in the outcome.

        Args:
            uploads: runs the transfers; segments are prepared here while earlier ones are on their way.
            done: called after each commit.
            round_end_s: on the monotonic clock; no segment but the first is begun after it.
        """
        outcome = PartitionOutcome(
            plan.files,
            waiting=len(plan.waiting),
            reason=plan.reason,
            error=plan.error,
            look_again_ms=plan.look_again_ms,
        )
        known, start = self._known, self.held.start_of(plan)
        known.position = start or known.position

        def committed(segment: ArchivedSegment) -> None:
            self.held.archived(segment.end_offset)
            done(segment)

        if plan.segments or (plan.facts.leads and known.state is not None):
            executor = CopyExecutor(self._tools, known, self._held_back, self.before_upload, plan, outcome, committed)
            self._ended(outcome, executor.run(uploads, round_end_s))
        # Else: what an earlier leadership left behind is for the broker that leads now, or for our next task.
        if start is not None and not outcome.archived:
            known.position = None  # The next plan may begin elsewhere.
        outcome.end_offset = known.last_end_offset = known.end_offset
        try:
            if outcome.archived:
                known.rest()
        except SidecarError as error:
            if outcome.error is None:
                outcome.error = error
            known.forget()
        outcome.waiting += len(plan.segments) - len(outcome.archived)
        if self._standing is not None and self._standing.plan is plan:
            self._standing.is_settled = outcome.error is None
        return outcome

    def _ended(self, outcome: PartitionOutcome, error: SidecarError | None) -> None:
        planned_error, outcome.error = outcome.error, error
        if error is None or error is planned_error:
            return
        if isinstance(error, CommitConflict):
            # Not a fault: the other writer's work counts, the next plan decides on top of it.
            self._known.overtaken(error.state, outcome.files)
            return
        self._known.forget()
        if outcome.unprepared is not None:
            self.held.failed(outcome.unprepared, error)
