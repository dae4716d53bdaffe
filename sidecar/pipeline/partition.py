"""Archives one partition: from the seam with the archive through its rolled segments, each committed in offset order."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import structlog

from sidecar.archive.commit import Action, Add, AdoptTopicId, Lost
from sidecar.archive.state import PartitionState, newest_part
from sidecar.errors import BrokerUnavailable, LineageUnknown, ObjectMissing, SidecarError
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.metrics import Stage
from sidecar.model import ArchivedSegment, FileIdentity, PartitionFiles, SegmentFiles
from sidecar.pipeline.batch_search import cut_segment
from sidecar.pipeline.bundle import LogPosition, PreparedSegment, position_at, prepare_segment, with_copy
from sidecar.pipeline.commit_log import CommitConflict, CommitLog
from sidecar.pipeline.compaction.before_upload import BeforeUpload
from sidecar.pipeline.compaction.waiting_list import LedPartition
from sidecar.pipeline.fencing import require_leadership, require_not_fenced, writer_of
from sidecar.pipeline.held_back import HeldBack
from sidecar.pipeline.in_flight import InFlight, abandon, finish_transfers, report_commit
from sidecar.pipeline.journal import Attempt
from sidecar.pipeline.plan import PartitionPlan, plan_partition
from sidecar.pipeline.producer_snapshot import KnownState
from sidecar.pipeline.recovery import settle_attempts
from sidecar.pipeline.retention_race import deletion_deadline_ms, is_urgent, largest_timestamp_ms
from sidecar.pipeline.seams import leader_epoch_checkpoint, open_lineage, require_reach, require_seam
from sidecar.pipeline.sources import ensure_unchanged
from sidecar.pipeline.tools import Tools
from sidecar.pipeline.transactions import OpenTransactions, undecided_transactions
from sidecar.pipeline.upload import upload_segment
from sidecar.ports import PartitionFacts

_log = structlog.get_logger(__name__)

NOT_ON_DISK = "no longer on the broker's disk when it was to be archived"

Done: TypeAlias = Callable[[ArchivedSegment], None]


@dataclass(slots=True)
class PartitionOutcome:
    """What was done for a partition, and why it stopped where it did ("" if everything rolled is archived)."""

    files: PartitionFiles
    archived: list[ArchivedSegment] = field(default_factory=list)
    conformance: Counter[str] = field(default_factory=Counter)
    end_offset: int | None = None
    waiting: int = 0
    reason: str = ""
    error: SidecarError | None = None
    look_again_ms: int | None = None


class PartitionArchiver:
    """Keeps what is known of one partition's archive between scans, so that an idle partition costs no request."""

    def __init__(self, tools: Tools, files: PartitionFiles, before_upload: BeforeUpload | None = None) -> None:
        """Args: before_upload: holds segments back that are to be compacted first. Default: nothing is."""
        self._tools = tools
        self._before_upload = before_upload
        self._topic_partition = files.topic_partition
        self._commits: CommitLog | None = None
        self._state: PartitionState | None = None
        self._largest_archived_ms = -1
        self._adopt: str | None = None
        self._position: LogPosition | None = None
        self._seen = (files.topic_id, files.directory_id)
        self._newest: FileIdentity | None = None
        self._reached: FileIdentity | None = None
        self._last_end_offset: int | None = None
        self._held_back = HeldBack(tools)
        self._first_seen_ms: dict[int, int] = {}
        self._led_epoch: int | None = None

    def plan(self, files: PartitionFiles) -> PartitionPlan:
        """What could be archived of these files now, and until when. Reads the archive only the first time."""
        plan = self._plan(files)
        return replace(plan, deadline_ms=self.deadline_ms(files)) if plan.facts.leads else plan

    def deadline_ms(self, files: PartitionFiles) -> int | None:
        """When the broker will delete the first segment that is not known to be archived; None for never, or if none is."""
        end_offset = self._last_end_offset if self._state is None else self._state.end_offset
        policy = self._tools.facts.policy(files.topic_partition.topic)
        pending = [segment for segment in files.segments if end_offset is None or segment.end_offset > end_offset]
        if not pending or (policy.local_limit_ms is None and policy.local_limit_bytes is None):
            return None
        now_ms = self._tools.clock.now_ms()
        return deletion_deadline_ms(files, pending[0], policy, largest_timestamp_ms(pending[0]), now_ms)

    def _plan(self, files: PartitionFiles) -> PartitionPlan:
        facts = self._tools.facts.partition(files)
        led_epoch = facts.leader_epoch if facts.leads else None
        if led_epoch != self._led_epoch:
            self._forget()  # Another leader's sidecar may have gone on with the archive meanwhile.
            self._led_epoch = led_epoch
        if not facts.leads or facts.reason:
            return PartitionPlan(files, facts, (), files.segments, facts.reason or "this broker does not lead here")
        try:
            state = self._open(files)
        except LineageUnknown as error:
            if files.segments:
                raise
            # Nothing is to be appended yet: what rolls next may be told apart, and needs no person before.
            return PartitionPlan(files, facts, (), (), str(error))
        if self._reached is None or not _continues(files.active_log, self._reached):
            require_reach(files, state)
            self._reached = files.active_log
        plan = plan_partition(
            files,
            facts,
            state.end_offset,
            now_ms=self._tools.clock.now_ms(),
            settling=self._tools.policy.settling,
            first_seen_ms=self._seen_rolled(files),
            accept_hole=self._tools.policy.record_lost,
            cut=cut_segment,
        )
        plan = self._held_back.apply(plan)
        if self._before_upload is None or plan.error is not None or plan.hole is not None:
            return plan
        limit_ms = self._tools.facts.policy(files.topic_partition.topic).local_limit_ms
        return self._before_upload.hold_back(plan, partial(self._known_at, files, plan, state), limit_ms)

    def _known_at(self, files: PartitionFiles, plan: PartitionPlan, state: PartitionState) -> KnownState:
        """The producers at the base of what is to be archived next."""
        if self._position is None:
            self._position = self._position_at(files, plan.segments[0].base_offset, state)
        return self._position.known

    def _position_at(self, files: PartitionFiles, base_offset: int, state: PartitionState) -> LogPosition:
        try:
            return position_at(self._tools, files, base_offset, state, self._largest_archived_ms)
        except ObjectMissing:
            # Compacted since it was read, and cleared up: what replaced it tells the same.
            self._forget()
            return position_at(self._tools, files, base_offset, self._open(files), self._largest_archived_ms)

    def _seen_rolled(self, files: PartitionFiles) -> dict[int, int]:
        now_ms = self._tools.clock.now_ms()
        first_seen_ms = self._first_seen_ms
        self._first_seen_ms = {s.end_offset: first_seen_ms.get(s.end_offset, now_ms) for s in files.segments}
        return self._first_seen_ms

    def unarchived(self, files: PartitionFiles) -> tuple[SegmentFiles, ...]:
        """Rolled segments above what is known to be archived, for a partition that cannot be planned now."""
        end_offset = -1 if self._last_end_offset is None else self._last_end_offset
        return tuple(segment for segment in files.segments if segment.end_offset > end_offset)

    def led(self, plan: PartitionPlan) -> LedPartition | None:
        """The partition as others may work on its archive too; None unless this broker leads it and all was well."""
        state, facts = self._state, plan.facts
        if not facts.leads or facts.reason or state is None or state.end_offset is None:
            return None
        return LedPartition(self._topic_partition, state.lineage.root, facts.leader_epoch, state.end_offset, plan.files)

    def archive(self, plan: PartitionPlan, uploads: Executor, done: Done = lambda _: None) -> PartitionOutcome:
        """Archive the planned segments. Never raises a SidecarError: it stands in the outcome.

        Args:
            uploads: runs the transfers; segments are prepared here while earlier ones are on their way.
            done: called after each commit.
        """
        outcome = PartitionOutcome(
            plan.files,
            waiting=len(plan.waiting),
            reason=plan.reason,
            error=plan.error,
            look_again_ms=plan.look_again_ms,
        )
        try:
            self._archive(plan, uploads, outcome, done)
        except CommitConflict as error:
            # Not a fault: the other writer's work counts, the next look decides on top of it.
            self._keep(error.state, plan.files)
            self._position, self._reached = None, None
            outcome.reason, outcome.error = str(error), error
        except SidecarError as error:
            outcome.reason, outcome.error = str(error), error
            self._forget()
        outcome.end_offset = self._last_end_offset if self._state is None else self._state.end_offset
        self._last_end_offset = outcome.end_offset
        outcome.waiting += len(plan.segments) - len(outcome.archived)
        return outcome

    def _opened(self) -> tuple[PartitionState, CommitLog]:
        if self._state is None or self._commits is None:
            raise RuntimeError(f"{self._topic_partition}: no lineage is open")
        return self._state, self._commits

    def _forget(self) -> None:
        if self._state is not None:
            self._last_end_offset = self._state.end_offset
        self._state, self._commits, self._position = None, None, None
        self._newest, self._reached = None, None

    def _open(self, files: PartitionFiles) -> PartitionState:
        seen = (files.topic_id, files.directory_id)
        if seen != self._seen or self._newest_has_changed(files):
            # Deleted and made anew, upgraded and named, or truncated: another lineage may be the right one, or none.
            self._forget()
            self._seen = seen
        if self._state is None:
            self._commits, state, self._adopt = open_lineage(self._tools, files)
            self._largest_archived_ms = -1
            return self._keep(state, files)
        return self._state

    def _keep(self, state: PartitionState, files: PartitionFiles) -> PartitionState:
        """Remember of the archive what local files can be compared with: memory must not grow with the archive."""
        known_end_offset = -1 if self._state is None or self._state.end_offset is None else self._state.end_offset
        for segment in reversed(state.segments):
            if segment.end_offset <= known_end_offset:
                break
            self._largest_archived_ms = max(self._largest_archived_ms, segment.max_timestamp_ms)
        local_start_offset = files.segments[0].base_offset if files.segments else files.active_base_offset
        self._state = newest_part(state, local_start_offset or 0)
        return self._state

    def _newest_has_changed(self, files: PartitionFiles) -> bool:
        newest = self._newest
        if newest is None:
            return False
        present = next((segment.log for segment in files.segments if segment.log.path == newest.path), None)
        is_active = files.active_log is not None and files.active_log.path == newest.path
        return is_active or present not in (None, newest)

    def _archive(
        self,
        plan: PartitionPlan,
        uploads: Executor,
        outcome: PartitionOutcome,
        done: Done,
    ) -> None:
        if not plan.segments and (not plan.facts.leads or self._state is None):
            return  # What an earlier leadership left behind is for the broker that leads now, or for our next turn.
        state = self._open(plan.files)
        require_not_fenced(plan.facts, state)
        resumed = settle_attempts(self._tools, state, plan.segments)
        if not (plan.segments or plan.hole) or plan.error or self._is_draining(outcome):
            return
        require_seam(self._tools, plan.files, state)
        if plan.hole is not None:
            state = self._record_lost(plan, plan.hole)
        if not plan.segments:
            return
        checkpoint = leader_epoch_checkpoint(plan.files)
        position = self._position or self._position_at(plan.files, plan.segments[0].base_offset, state)
        in_flight: InFlight = deque()
        try:
            for segment in plan.segments:
                if self._is_draining(outcome):
                    break
                try:
                    prepared, position, blocker = self._prepare(segment, plan, position, checkpoint, resumed)
                except SidecarError:
                    self._commit_all(in_flight, plan.facts, outcome, done)  # What came before is good.
                    raise
                if blocker is not None:
                    prepared.close()
                    self._held_back.hold(blocker)
                    outcome.reason = blocker.reason
                    break
                in_flight.append((prepared, uploads.submit(upload_segment, self._tools, prepared), position))
                if len(in_flight) > self._tools.policy.uploads_ahead - 1:
                    self._commit_next(in_flight, plan.facts, outcome, done)
            self._commit_all(in_flight, plan.facts, outcome, done)
            if not self._tools.stop.is_set():
                # Commits have passed the numbers for which earlier attempts were kept.
                settle_attempts(self._tools, self._opened()[0], ())
        except BrokerUnavailable:
            finish_transfers(in_flight)
            abandon(self._tools, in_flight, keep=True)
            in_flight.clear()
            raise
        finally:
            abandon(self._tools, in_flight)

    def _prepare(
        self,
        segment: SegmentFiles,
        plan: PartitionPlan,
        position: LogPosition,
        checkpoint: LeaderEpochs | None,
        resumed: dict[int, Attempt],
    ) -> tuple[PreparedSegment, LogPosition, OpenTransactions | None]:
        """The segment, open; the position after it; and which open transactions keep it from being archived, if any."""
        self._tools.beat()
        root = self._opened()[0].lineage.root
        attempt = resumed.pop(segment.base_offset, None)
        log_start_offset = plan.facts.log_start_offset
        with self._tools.turns.reading(
            plan.files.directory_id[0], beat=self._tools.beat, is_urgent=is_urgent(plan.deadline_ms, self._tools.clock)
        ):
            prepared, after = prepare_segment(
                self._tools, root, segment, position, checkpoint, log_start_offset, attempt
            )
        try:
            stable_end_offset = plan.facts.stable_end_offset
            blocker = None
            if not plan.facts.transactions_decided:
                blocker = undecided_transactions(
                    plan.files, segment, prepared.reading.state, stable_end_offset, self._tools.beat
                )
            copy = None if self._before_upload is None else self._before_upload.copy_of(segment)
            if copy is not None and blocker is None and attempt is None and prepared.lost is None:
                prepared = with_copy(prepared, copy, self._tools.new_id(), root)
        except SidecarError:
            prepared.close()
            raise
        return prepared, after, blocker

    def _is_draining(self, outcome: PartitionOutcome) -> bool:
        if self._tools.stop.is_set():
            outcome.reason = "draining: the process was asked to stop"
        return self._tools.stop.is_set()

    def _commit_all(self, in_flight: InFlight, facts: PartitionFacts, outcome: PartitionOutcome, done: Done) -> None:
        while in_flight:
            self._commit_next(in_flight, facts, outcome, done)

    def _commit_next(
        self,
        in_flight: InFlight,
        facts: PartitionFacts,
        outcome: PartitionOutcome,
        done: Done,
    ) -> None:
        prepared, future, position = in_flight[0]
        entry = future.result()
        state, commits = self._opened()
        ensure_unchanged(prepared.segment, outcome.files)
        require_leadership(self._tools, outcome.files, facts)
        actions: list[Action] = [AdoptTopicId(self._adopt)] if self._adopt else []
        lost = [] if prepared.lost is None else [Lost(*prepared.lost, NOT_ON_DISK)]
        self._tools.journal.committing(entry.segment_id, state.next_number)
        in_flight.popleft()  # From here on the store may have made it live: only a later look may discard it.
        try:
            after = commits.append([*actions, Add(entry), *lost], writer_of(self._tools, facts), state)
        except SidecarError as error:
            if not isinstance(error, CommitConflict):
                self._tools.metrics.segment_failed(Stage.COMMITTED)
            raise
        finally:
            prepared.close()
        is_first, self._newest = self._newest is None, prepared.segment.log
        self._keep(after, outcome.files)
        self._adopt, self._position = None, position
        outcome.archived.append(entry)
        outcome.conformance[prepared.snapshot.result] += 1
        if prepared.lost is not None:
            self._tools.metrics.broker.offsets_lost(prepared.lost[1] - prepared.lost[0])
        report_commit(self._tools, prepared, entry)
        done(entry)
        self._tools.journal.end(prepared.attempt.segment_id)
        if self._before_upload is not None:
            self._before_upload.archived(prepared.segment)
        if is_first:
            directory, (_, inode) = outcome.files.directory, outcome.files.directory_id
            self._tools.journal.archived_from(state.lineage.root, directory, inode)

    def _record_lost(self, plan: PartitionPlan, hole: tuple[int, int]) -> PartitionState:
        state, commits = self._opened()
        require_leadership(self._tools, plan.files, plan.facts)
        _log.error("offsets_lost", partition=str(self._topic_partition), from_offset=hole[0], to_offset=hole[1])
        after = commits.append([Lost(*hole, NOT_ON_DISK)], writer_of(self._tools, plan.facts), state)
        self._tools.metrics.broker.offsets_lost(hole[1] - hole[0])
        self._position = None
        return self._keep(after, plan.files)


def _continues(active: FileIdentity | None, earlier: FileIdentity) -> bool:
    """Whether the active segment is the one of an earlier look, and has not become shorter."""
    return active is not None and active.inode == earlier.inode and active.size_bytes >= earlier.size_bytes
