"""One turn of a partition: its planned segments are prepared, uploaded and committed, in offset order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeAlias

from sidecar.archive.actions import Action, Add, AdoptTopicId, Lost
from sidecar.archive.state import PartitionState
from sidecar.errors import BrokerUnavailable, Fenced, SidecarError
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.metrics import Stage
from sidecar.model import ArchivedSegment, SegmentFiles
from sidecar.pipeline.bundle import PreparedSegment, with_copy
from sidecar.pipeline.commit_log import CommitConflict
from sidecar.pipeline.compaction.before_upload import BeforeUpload
from sidecar.pipeline.deleted_records import deleted_on_purpose, tell_deleted
from sidecar.pipeline.fencing import require_leadership, require_not_fenced, writer_of
from sidecar.pipeline.held_back import HeldBack
from sidecar.pipeline.in_flight import InFlight, abandon, finish_transfers, report_commit
from sidecar.pipeline.journal import Attempt
from sidecar.pipeline.known_archive import KnownArchive
from sidecar.pipeline.lost_offsets import NOT_ON_DISK, tell_lost
from sidecar.pipeline.partition_outcome import PartitionOutcome
from sidecar.pipeline.passing_over import pass_over, record_lost
from sidecar.pipeline.plan import PartitionPlan
from sidecar.pipeline.preparing import LogPosition, prepare_segment
from sidecar.pipeline.recovery import settle_attempts
from sidecar.pipeline.retention_race import is_urgent
from sidecar.pipeline.seams import leader_epoch_checkpoint, note_source, require_seam
from sidecar.pipeline.sources import ensure_unchanged
from sidecar.pipeline.tools import Tools
from sidecar.pipeline.transactions import OpenTransactions, undecided_transactions
from sidecar.pipeline.upload import discard_quietly, upload_segment

ROUND_IS_OVER = "the round is over; the next one goes on"

Done: TypeAlias = Callable[[ArchivedSegment], None]


class PartitionTurn:
    """The work on one plan. What it learns of the archive goes to `known`, what it did to `outcome`."""

    def __init__(
        self,
        tools: Tools,
        known: KnownArchive,
        held_back: HeldBack,
        before_upload: BeforeUpload | None,
        plan: PartitionPlan,
        outcome: PartitionOutcome,
        done: Done,
        round_end_s: float,
    ) -> None:
        """Take up a plan.

        Args:
            before_upload: has the compacted copies; None where there are none.
            done: called after each commit.
            round_end_s: on the monotonic clock; no segment but the first is begun after it.
        """
        self._tools = tools
        self._known = known
        self._held_back = held_back
        self._before_upload = before_upload
        self._plan = plan
        self._outcome = outcome
        self._done = done
        self._round_end_s = round_end_s
        self._in_flight: InFlight = deque()

    def run(self, uploads: Executor) -> None:
        """Archive the planned segments, and record the hole below them if the plan has one.

        Raises CommitConflict where another writer was first, and what preparation, transfers and commits raise.
        """
        plan = self._plan
        if not plan.segments and (not plan.facts.leads or self._known.state is None):
            return  # What an earlier leadership left behind is for the broker that leads now, or for our next turn.
        state = self._known.open(plan.files)
        require_not_fenced(plan.facts, state)
        resumed = settle_attempts(self._tools, state, plan.segments)
        if not (plan.segments or plan.hole) or plan.error or self._is_draining():
            return
        self._known.require_alone(plan.files)
        require_seam(self._tools, plan.files, state)
        if plan.hole is not None:
            state = record_lost(self._tools, self._known, plan, plan.hole)
        if not plan.segments:
            return
        checkpoint = leader_epoch_checkpoint(plan.files)
        base_offset = plan.segments[0].base_offset
        position = self._known.position_before(plan.files, base_offset, state)
        try:
            self._archive_segments(uploads, position, checkpoint, resumed)
        except BrokerUnavailable:
            finish_transfers(self._in_flight)
            abandon(self._tools, self._in_flight, keep=True)
            self._in_flight.clear()
            raise
        finally:
            abandon(self._tools, self._in_flight)

    def _archive_segments(
        self, uploads: Executor, position: LogPosition, checkpoint: LeaderEpochs | None, resumed: dict[int, Attempt]
    ) -> None:
        left: tuple[SegmentFiles, ...] = ()
        for number, segment in enumerate(self._plan.segments):
            if self._is_draining():
                break
            if number and self._is_round_over():
                left = self._plan.segments[number:]
                break
            try:
                prepared, position, blocker = self._prepare(segment, position, checkpoint, resumed)
            except SidecarError:
                self._commit_all()  # What came before is good.
                self._outcome.unprepared = segment
                raise
            if prepared.lost_whole is not None:
                prepared.close()
                self._commit_all()
                pass_over(self._tools, self._known, self._plan, segment, prepared.lost_whole)
                continue
            if blocker is not None:
                prepared.close()
                self._held_back.hold(blocker)
                self._outcome.reason = blocker.reason
                break
            self._in_flight.append((prepared, uploads.submit(upload_segment, self._tools, prepared), position))
            if len(self._in_flight) > self._tools.policy.uploads_ahead - 1:
                self._commit_next()
        self._commit_all()
        if not self._tools.stop.is_set():
            # Commits have passed the numbers for which earlier attempts were kept.
            settle_attempts(self._tools, self._known.opened()[0], left)

    def _prepare(
        self,
        segment: SegmentFiles,
        position: LogPosition,
        checkpoint: LeaderEpochs | None,
        resumed: dict[int, Attempt],
    ) -> tuple[PreparedSegment, LogPosition, OpenTransactions | None]:
        """The segment, open; the position after it; and which open transactions keep it from being archived, if any."""
        plan = self._plan
        self._tools.beat()
        root = self._known.opened()[0].lineage.root
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
                # Markers that are lost decide no transaction: what is known behind them does.
                at_end = prepared.reading.state if prepared.lost is None else after.known.table
                blocker = undecided_transactions(plan.files, segment, at_end, stable_end_offset, self._tools.beat)
            copy = None if self._before_upload is None else self._before_upload.copy_of(segment)
            if copy is not None and blocker is None and attempt is None and prepared.lost is None:
                prepared = with_copy(prepared, copy, self._tools.new_id(), root)
        except SidecarError:
            prepared.close()
            raise
        return prepared, after, blocker

    def _is_draining(self) -> bool:
        if self._tools.stop.is_set():
            self._outcome.reason = "draining: the process was asked to stop"
        return self._tools.stop.is_set()

    def _is_round_over(self) -> bool:
        is_over = self._tools.clock.monotonic_s() >= self._round_end_s
        if is_over:
            self._outcome.reason, self._outcome.look_again_ms = ROUND_IS_OVER, 0
        return is_over

    def _commit_all(self) -> None:
        while self._in_flight:
            self._commit_next()

    def _commit_next(self) -> None:
        prepared, future, position = self._in_flight[0]
        entry = future.result()
        state = self._known.opened()[0]
        after, actions = self._append(prepared, entry)
        is_first = self._known.committed(after, self._outcome.files, prepared.segment.log, position)
        self._outcome.archived.append(entry)
        self._outcome.conformance[prepared.snapshot.result] += 1
        report_commit(self._tools, prepared, entry)
        self._done(entry)
        self._tools.journal.end(prepared.attempt.segment_id)
        # Not before: what the journal still has is told when it is settled.
        facts = self._plan.facts
        tell_lost(self._tools, facts.topic_partition, actions, facts.cluster_start_offset)
        tell_deleted(facts.topic_partition, actions, facts.leader_epoch, facts.cluster_start_offset)
        if self._before_upload is not None:
            self._before_upload.archived(prepared.segment)
        note_source(self._tools.journal, state.lineage.root, self._outcome.files, is_first=is_first)

    def _append(self, prepared: PreparedSegment, entry: ArchivedSegment) -> tuple[PartitionState, list[Action]]:
        """Commit the first segment in flight, and close it; the state after that, and what was committed."""
        state, commits = self._known.opened()
        ensure_unchanged(prepared.segment, self._outcome.files)
        require_leadership(self._tools, self._outcome.files, self._plan.facts, entry.end_offset)
        adopted = self._known.adopt_topic_id
        actions: list[Action] = [AdoptTopicId(adopted)] if adopted else []
        lost = [] if prepared.lost is None else [Lost(*prepared.lost, NOT_ON_DISK)]
        deleted = deleted_on_purpose(self._plan.facts, state, self._known.starts, entry.end_offset, commits.read)
        self._tools.journal.committing(entry.segment_id, state.next_number)
        self._in_flight.popleft()  # From here on the store may have made it live: only a later look may discard it.
        try:
            actions += [Add(entry), *lost, *deleted]
            return commits.append(actions, writer_of(self._tools, self._plan.facts), state), actions
        except SidecarError as error:
            if isinstance(error, Fenced):
                # Its number is another's, so that it never lands; and we may not lead again to clear up behind it.
                discard_quietly(self._tools, prepared.attempt)
            if not isinstance(error, CommitConflict):
                self._tools.metrics.segment_failed(Stage.COMMITTED)
            raise
        finally:
            prepared.close()
