"""One turn of a partition: its planned segments are prepared, uploaded and committed, in offset order.

A segment goes by itself. Segments that were compacted among themselves go as a group: all are prepared, then all copies
uploaded, then one commit adds them. If anything keeps one of them back, all of the group go as they are, each by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import replace
from typing import TypeAlias

from sidecar.archive.actions import Action, Add, AdoptTopicId, LossReason, Lost
from sidecar.archive.keys import fresh_id
from sidecar.archive.state import PartitionState
from sidecar.commits.commit_log import CommitConflict
from sidecar.commits.commit_window import CommitWindow
from sidecar.commits.put_once import proves_not_committed
from sidecar.compactor.policy_rules import RuleChanged, RuleUnknown
from sidecar.compactor.raw_uploads import RawReason
from sidecar.compactor.staged_copies import CopyGroup
from sidecar.errors import BrokerUnavailable, PartitionError, SegmentChanged, SidecarError
from sidecar.host.journal import Attempt
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import ArchivedSegment, SegmentFiles
from sidecar.partition.domain_events import CommitFailed, committed_events
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.outcome import PartitionOutcome
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.retention import is_urgent
from sidecar.partition.wait_reason import Wait
from sidecar.pipeline.bundle import PreparedSegment, with_copy
from sidecar.pipeline.compaction.before_upload import BeforeUpload, effective_log_start
from sidecar.pipeline.fencing import require_leadership, require_not_fenced, writer_of
from sidecar.pipeline.in_flight import InFlight, Transfer, abandon, committed_segment_events, finish_transfers
from sidecar.pipeline.known_archive import KnownArchive
from sidecar.pipeline.losses.deleted_records import deleted_on_purpose
from sidecar.pipeline.losses.passing_over import pass_over, record_lost
from sidecar.pipeline.pins.held_back import HeldBack
from sidecar.pipeline.preparing import LogPosition, prepare_segment
from sidecar.pipeline.recovery import settle_attempts
from sidecar.pipeline.seams import note_source, require_seam
from sidecar.pipeline.tools import Tools
from sidecar.pipeline.upload import discard_quietly, upload_segment
from sidecar.segment.open_transactions import OpenTransactions, open_transactions

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
        self._group: CopyGroup | None = None
        self._prepared: list[tuple[PreparedSegment, LogPosition]] = []
        """What goes with the next commit, as far as it is prepared: of the group, or one segment."""

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
        checkpoint = self._tools.disk.leader_epochs(plan.files)
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
            for prepared, _ in self._prepared:
                prepared.close()

    def _archive_segments(
        self, uploads: Executor, position: LogPosition, checkpoint: LeaderEpochs | None, resumed: dict[int, Attempt]
    ) -> None:
        left: tuple[SegmentFiles, ...] = ()
        for number, segment in enumerate(self._plan.segments):
            if self._is_draining():
                break
            if not self._prepared:
                if number and self._is_round_over():
                    left = self._plan.segments[number:]
                    break
                self._group = self._group_at(number, resumed)
            try:
                prepared, position, blocker = self._prepare(segment, position, checkpoint, resumed)
            except SidecarError:
                self._send_raw(uploads, RawReason.GROUP_CHANGED, "a segment of it cannot be read")
                self._commit_all()  # What came before is good.
                self._outcome.unprepared = segment
                raise
            if prepared.lost is not None or blocker is not None:
                self._send_raw(uploads, RawReason.GROUP_CHANGED, "a segment of it cannot be archived whole")
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
            self._prepared.append((prepared, position))
            if self._group is None:
                self._send(uploads)
            elif len(self._prepared) == len(self._group.segments):
                self._send_group(uploads, self._group)
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
            plan.files.directory_id[0], beat=self._tools.beat, is_urgent=is_urgent(plan.deadline_ms, self._tools.clock.now_ms())
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
                if (waiting := open_transactions(segment, at_end)) is not None:
                    tools = self._tools
                    blocker = tools.disk.look_ahead(
                        plan.files, waiting, stable_end_offset, tools.beat, tools.budget.reads.take
                    )
        except SidecarError:
            prepared.close()
            raise
        return prepared, after, blocker

    def _is_draining(self) -> bool:
        if self._tools.stop.is_set():
            self._outcome.reason = Wait.DRAINING
        return self._tools.stop.is_set()

    def _is_round_over(self) -> bool:
        is_over = self._tools.clock.monotonic_s() >= self._round_end_s
        if is_over:
            self._outcome.reason, self._outcome.look_again_ms = Wait.ROUND_OVER, 0
        return is_over

    def _group_at(self, number: int, resumed: dict[int, Attempt]) -> CopyGroup | None:
        """The group that begins with this segment of the plan, None if the segment goes by itself."""
        if self._before_upload is None:
            return None
        group = self._before_upload.group_from(self._plan.segments[number:])
        if group is not None and any(segment.base_offset in resumed for segment in group.segments):
            self._before_upload.break_up(group, RawReason.GROUP_CHANGED, "an upload of the log as it is goes on")
            return None
        return group

    def _send_raw(self, uploads: Executor, reason: RawReason, detail: str) -> None:
        """What is prepared of a group goes as it is, as will the rest."""
        if self._group is not None and self._before_upload is not None:
            self._before_upload.break_up(self._group, reason, detail)
        self._group = None
        self._send(uploads)

    def _send(self, uploads: Executor) -> None:
        """Upload what is prepared, each segment for a commit of its own."""
        while self._prepared:
            self._in_flight.append([])
            self._submit(uploads)
            if len(self._in_flight) > self._tools.policy.uploads_ahead - 1:
                self._commit_next()

    def _send_group(self, uploads: Executor, group: CopyGroup) -> None:
        """Upload a group's copies, and commit all of them at once. All go as they are where the copies are at fault."""
        try:
            self._take_copies(group)
        except PartitionError as error:
            self._send_raw(uploads, RawReason.GROUP_REFUSED, str(error))
            return
        self._commit_all()
        unit: list[Transfer] = []
        self._in_flight.append(unit)
        try:
            while self._prepared and not self._is_draining():
                if len(unit) >= self._tools.policy.uploads_ahead:
                    unit[-self._tools.policy.uploads_ahead].upload.result()
                self._submit(uploads)
            if not self._prepared:
                self._commit_next()
        except PartitionError as error:
            if self._before_upload is not None and not isinstance(error, CommitConflict):
                self._before_upload.break_up(group, _raw_reason(error), str(error))
            raise
        finally:
            self._group = None
        if self._in_flight:  # Only a whole group is committed.
            abandon(self._tools, self._in_flight)
            self._in_flight.clear()

    def _take_copies(self, group: CopyGroup) -> None:
        """Have each copy in the place of its prepared segment. Raises PartitionError; then no segment is replaced."""
        root = self._known.opened()[0].lineage.root
        with ExitStack() as unless_whole:
            taken = list[tuple[PreparedSegment, LogPosition]]()
            for (raw, position), copy in zip(self._prepared, group.copies, strict=True):
                prepared = raw if copy is None else with_copy(raw, copy, fresh_id(self._tools.randomness), root)
                if prepared is not raw:
                    unless_whole.callback(prepared.close)
                taken.append((prepared, position))
            unless_whole.pop_all()
        for (raw, _), (prepared, _) in zip(self._prepared, taken, strict=True):
            if prepared is not raw:
                raw.close()
        self._prepared = taken

    def _submit(self, uploads: Executor) -> None:
        """Upload the first of what is prepared, for the last commit in flight."""
        prepared, position = self._prepared[0]
        window = CommitWindow.begin(self._tools.store, self._tools.clock, self._tools.randomness)
        if prepared.attempt.log_crc32c is not None:
            window = replace(window, begun=None)
        upload = uploads.submit(upload_segment, self._tools, prepared)
        self._in_flight[-1].append(Transfer(prepared, upload, position, window))
        del self._prepared[0]

    def _commit_all(self) -> None:
        while self._in_flight:
            self._commit_next()

    def _commit_next(self) -> None:
        transfers = self._in_flight[0]
        entries = [transfer.upload.result() for transfer in transfers]
        state = self._known.opened()[0]
        after, actions = self._append(transfers, entries)
        last = transfers[-1]
        is_first = self._known.committed(after, self._outcome.files, last.prepared.segment.log, last.position)
        for transfer, entry in zip(transfers, entries, strict=True):
            self._outcome.archived.append(entry)
            self._outcome.conformance[transfer.prepared.snapshot.result] += 1
            for event in committed_segment_events(transfer.prepared, entry):
                self._tools.emit(event)
            self._done(entry)
            self._tools.journal.end(transfer.prepared.attempt.segment_id)
        # Not before: what the journal still has is told when it is settled.
        facts = self._plan.facts
        for event in committed_events(facts.topic_partition, actions, facts.leader_epoch, facts.cluster_start_offset):
            self._tools.emit(event)
        if self._before_upload is not None:
            self._before_upload.archived([transfer.prepared.segment for transfer in transfers])
        note_source(self._tools, state.lineage.root, self._outcome.files, is_first=is_first)

    def _append(
        self, transfers: Sequence[Transfer], entries: Sequence[ArchivedSegment]
    ) -> tuple[PartitionState, list[Action]]:
        """Commit the first ones in flight, and close them; the state after that, and what was committed."""
        state, commits = self._known.opened()
        for transfer in transfers:
            self._tools.disk.require_unchanged(transfer.prepared.segment, self._outcome.files)
        end_offset = entries[-1].end_offset
        now = require_leadership(self._tools, self._outcome.files, self._plan.facts, end_offset)
        if any(transfer.prepared.copy is not None for transfer in transfers):
            _require_none_deleted(self._plan.facts, now, state, entries[0].base_offset)
            if self._before_upload is not None and self._group is not None:
                newest = self._known.newest_strategy(self._outcome.files)
                before = state.last_commit
                state, commits = self._known.opened()  # Telling the strategy may have read the archive anew.
                if state.last_commit != before:
                    raise CommitConflict(f"{state.lineage.root}: another writer has committed meanwhile", state)
                self._before_upload.require_rule(self._group, newest)
        adopted = self._known.adopt_topic_id
        actions: list[Action] = [AdoptTopicId(adopted)] if adopted else []
        lost = [
            Lost(*found, LossReason.NOT_ON_DISK)
            for transfer in transfers
            if (found := transfer.prepared.lost) is not None
        ]
        deleted = deleted_on_purpose(self._plan.facts, state, self._known.starts, end_offset, commits.read)
        transfers[0].window.require_open(state.lineage.root, entries)  # The first upload began first.
        for entry in entries:
            self._tools.journal.committing(entry.segment_id, state.next_number)
        self._in_flight.popleft()  # From here on a commit may name it: only proof of the contrary lets us discard it.
        try:
            actions += [*map(Add, entries), *lost, *deleted]
            return commits.append(actions, writer_of(self._tools, self._plan.facts), state), actions
        except SidecarError as error:
            if proves_not_committed(error) and not isinstance(error, CommitConflict):
                # After a conflict the next plan resumes the upload. After a refusal no plan may come back to it.
                for transfer in transfers:
                    discard_quietly(self._tools, transfer.prepared.attempt)
            if not isinstance(error, CommitConflict):
                self._tools.emit(CommitFailed(self._plan.facts.topic_partition))
            raise
        finally:
            for transfer in transfers:
                transfer.prepared.close()


def _raw_reason(error: PartitionError) -> RawReason:
    if isinstance(error, RuleUnknown):
        return RawReason.RULE_UNKNOWN
    return RawReason.RULE_CHANGED if isinstance(error, RuleChanged) else RawReason.GROUP_REFUSED


def _require_none_deleted(
    planned: PartitionFacts, now: PartitionFacts, state: PartitionState, base_offset: int
) -> None:
    """Raise SegmentChanged if records that took part in a group's decisions are deleted by now, or if that is unknown."""
    is_known = now.cluster_start_offset is not None or planned.cluster_start_offset is None
    start_offset = effective_log_start(now, state)
    if not is_known or start_offset > base_offset:
        where = f"begins at {start_offset}" if is_known else "begins at an offset that the leader does not tell"
        raise SegmentChanged(
            f"{planned.topic_partition}: segments from offset {base_offset} were compacted together, and now the log {where}: a "
            f"record that was deleted since may have won; nothing was committed, and they are archived as they are"
        )
