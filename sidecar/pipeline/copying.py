"""Carries out what a copy task asks for: on this thread, but for uploads, which have a pool."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TypeAlias

import structlog

from producer_state.compare import Conformance
from sidecar.archive.actions import Action, Add, AdoptTopicId, LossReason, Lost
from sidecar.archive.keys import fresh_id
from sidecar.archive.state import PartitionState
from sidecar.commits.commit_log import CommitConflict, CommitLog
from sidecar.commits.commit_window import CommitWindow
from sidecar.commits.put_once import proves_not_committed
from sidecar.compactor.policy_rules import RuleChanged, RuleUnknown
from sidecar.compactor.raw_uploads import RawReason
from sidecar.compactor.staged_copies import CopyGroup
from sidecar.errors import SidecarError
from sidecar.host.journal import Attempt
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import ArchivedSegment
from sidecar.partition.copy_task import CopyLimits, CopyTask, Phase, begin, handle
from sidecar.partition.domain_events import (
    CommitFailed,
    OffsetsLost,
    SegmentCommitted,
    SnapshotMismatch,
    committed_events,
)
from sidecar.partition.effects import (
    Abandon,
    AppendCommit,
    Block,
    BreakUpGroup,
    CheckContinuity,
    ConfirmLeadership,
    DiscardAttempt,
    Effect,
    FindGroup,
    OpenArchive,
    Prepare,
    RecordLoss,
    Release,
    SettleAttempts,
    TakeCopies,
    Upload,
)
from sidecar.partition.events import (
    Abandoned,
    ArchiveOpened,
    AttemptsSettled,
    CommitLost,
    CommitRefused,
    CommitUnknown,
    CommitWon,
    ContinuityShown,
    CopiesTaken,
    Event,
    GroupFound,
    LeadershipConfirmed,
    LossRecorded,
    NotBegun,
    SegmentPrepared,
    StepFailed,
    StopRequested,
    UploadFailed,
    UploadFinished,
)
from sidecar.partition.outcome import PartitionOutcome
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.retention import is_urgent
from sidecar.pipeline.bundle import PreparedSegment, with_copy
from sidecar.pipeline.compaction.before_upload import BeforeUpload
from sidecar.pipeline.known_archive import KnownArchive
from sidecar.pipeline.losses.deleted_records import deleted_on_purpose
from sidecar.pipeline.losses.recording import record_lost, writer_of
from sidecar.pipeline.pins.held_back import HeldBack
from sidecar.pipeline.preparing import LogPosition, prepare_segment
from sidecar.pipeline.recovery import settle_attempts
from sidecar.pipeline.seams import note_source, require_seam
from sidecar.pipeline.tools import Tools
from sidecar.pipeline.upload import discard_quietly, upload_segment
from sidecar.segment.open_transactions import OpenTransactions, open_transactions

_log = structlog.get_logger(__name__)

Done: TypeAlias = Callable[[ArchivedSegment], None]


@dataclass(slots=True)
class _Piece:
    """What the executor has of a slot. `position`: where the preparation stands behind it."""

    prepared: PreparedSegment
    position: LogPosition
    blocker: OpenTransactions | None = None
    upload: Future[ArchivedSegment] | None = None
    window: CommitWindow | None = None
    entry: ArchivedSegment | None = None


class CopyExecutor:
    """Runs the copy task of one plan. What it learns of the archive goes to `known`, what it did to `outcome`."""

    def __init__(
        self,
        tools: Tools,
        known: KnownArchive,
        held_back: HeldBack,
        before_upload: BeforeUpload | None,
        plan: PartitionPlan,
        outcome: PartitionOutcome,
        done: Done,
    ) -> None:
        """Args: before_upload: has the compacted copies; None where there are none. done: called after each commit."""
        self._tools, self._known, self._held_back = tools, known, held_back
        self._before_upload, self._plan, self._outcome, self._done = before_upload, plan, outcome, done
        self._events: deque[Event] = deque()
        self._later: deque[Effect] = deque()
        self._pieces: dict[int, _Piece] = {}
        self._is_told_to_stop = False
        self._group: CopyGroup | None = None
        self._resumed: dict[int, Attempt] = {}
        self._position: LogPosition | None = None
        self._checkpoint: LeaderEpochs | None = None

    def run(self, uploads: Executor, end_s: float) -> SidecarError | None:
        """Archive the planned segments, and record the hole below them if the plan has one; the error that ended it, if one did.

        Args:
            uploads: runs the transfers; segments are prepared here while earlier ones are on their way.
            end_s: on the monotonic clock; no segment but the first is begun after it.
        """
        limits = CopyLimits(self._tools.policy.uploads_ahead, end_s, self._before_upload is not None)
        task, effects = begin(self._plan, limits)
        try:
            while True:
                for effect in effects:
                    self._start(effect, uploads)
                if task.phase is Phase.ENDED:
                    return self._ended(task)
                task, effects = handle(task, self._next_event(), self._tools.clock.monotonic_s())
        finally:
            self._end_uploads(tuple(self._pieces))
            self._close(tuple(self._pieces))

    def _ended(self, task: CopyTask) -> SidecarError | None:
        outcome = self._outcome
        outcome.reason, outcome.look_again_ms, outcome.unprepared = task.reason, task.look_again_ms, task.unprepared
        return task.error

    def _next_event(self) -> Event:
        """What has happened; if nothing has, the next thing to be done here is done first.

        Trap: nothing that may last is done while an answer waits.
        """
        if not self._events:
            self._note_uploads(wait_s=0.0)
        if not (self._events or self._is_newly_stopped()) and self._later:
            self._answer(self._later.popleft())
        if not (self._events or self._is_newly_stopped()):
            self._note_uploads(wait_s=None)
        if self._is_newly_stopped():
            self._is_told_to_stop = True
            return StopRequested()  # Before the answer: an upload that fails because of it is kept for the next start.
        return self._events.popleft()

    def _is_newly_stopped(self) -> bool:
        return self._tools.stop.is_set() and not self._is_told_to_stop

    def _note_uploads(self, wait_s: float | None) -> None:
        """Answer uploads that have ended. `wait_s`: for the first to end, None: as long as it takes."""
        slots = {piece.upload: slot for slot, piece in self._pieces.items() if piece.upload and piece.entry is None}
        ended, _ = wait(slots, timeout=wait_s, return_when=FIRST_COMPLETED)
        for slot in sorted(slots[upload] for upload in ended):
            piece = self._pieces[slot]
            upload, piece.upload = piece.upload, None
            error = None if upload is None else upload.exception()
            if upload is None or (error is not None and not isinstance(error, SidecarError)):
                raise error or RuntimeError(f"slot {slot} has no upload")
            if isinstance(error, SidecarError):
                self._events.append(UploadFailed(slot, error))
            else:
                piece.entry = upload.result()
                self._events.append(UploadFinished(slot, piece.entry))

    def _start(self, effect: Effect, uploads: Executor) -> None:
        match effect:
            case Upload(slot):
                self._submit(self._pieces[slot], uploads)
            case Release(slots):
                self._close(slots)
            case DiscardAttempt(slots):
                self._discard(slots)
            case Block(slot):
                self._block(slot)
            case BreakUpGroup():
                self._break_up(effect)
            case AppendCommit():
                self._later.appendleft(effect)  # Nothing comes between it and the leadership that was just confirmed.
            case _:
                self._later.append(effect)

    def _answer(self, effect: Effect) -> None:
        if self._is_told_to_stop and isinstance(effect, FindGroup | Prepare | TakeCopies):
            self._events.append(NotBegun(effect))
            return
        try:
            self._events.append(self._carried_out(effect))
        except SidecarError as error:
            self._events.append(StepFailed(effect, error))

    def _carried_out(self, effect: Effect) -> Event:
        tools, known, files = self._tools, self._known, self._plan.files
        match effect:
            case OpenArchive():
                return ArchiveOpened(known.open(files))
            case SettleAttempts(segments):
                self._resumed = settle_attempts(tools, known.opened()[0], segments)
                return AttemptsSettled()
            case CheckContinuity():
                known.require_alone(files)
                require_seam(tools, files, known.opened()[0])
                if self._plan.hole is None:
                    self._find_position()
                return ContinuityShown()
            case RecordLoss():
                return LossRecorded(self._record_loss(effect))
            case FindGroup(slot):
                self._group = self._group_at(slot)
                return GroupFound(0 if self._group is None else len(self._group.segments))
            case Prepare(slot):
                return self._prepare(slot)
            case TakeCopies(slots):
                return CopiesTaken(self._take_copies(slots))
            case ConfirmLeadership(slots):
                for slot in slots:
                    tools.disk.require_unchanged(self._pieces[slot].prepared.segment, files)
                return LeadershipConfirmed(tools.facts.confirm(files))
            case AppendCommit(slots):
                return self._commit(slots)
            case Abandon(slots, discards):
                self._end_uploads(slots)
                if discards and not tools.stop.is_set():  # The process may stop while uploads are waited for.
                    self._discard(slots)
                self._close(slots)
                return Abandoned()
            case _:
                raise TypeError(f"{effect} has no answer")

    def _record_loss(self, effect: RecordLoss) -> PartitionState:
        known, lost = self._known, (effect.from_offset, effect.to_offset)
        if effect.segment is None:
            record_lost(self._tools, known, self._plan, lost)
            self._find_position()
            return known.opened()[0]
        self._tools.disk.require_unchanged(effect.segment, self._plan.files)
        state = known.opened()[0]
        if state.end_offset is not None:
            return record_lost(self._tools, known, self._plan, lost)
        # At an earlier try it may have been reported: no commit of this partition has come through since.
        if lost[1] > known.told_lost_below:
            known.told_lost_below = lost[1]
            facts = self._plan.facts
            reason = f"{LossReason.NOT_ON_DISK}; the archive begins behind them"
            found = OffsetsLost(facts.topic_partition, *lost, reason, facts.cluster_start_offset, is_recorded=False)
            self._tools.emit(found)
        return state

    def _group_at(self, slot: int) -> CopyGroup | None:
        if self._before_upload is None:
            return None
        group = self._before_upload.group_from(self._plan.segments[slot:])
        if group is not None and any(segment.base_offset in self._resumed for segment in group.segments):
            self._before_upload.break_up(group, RawReason.GROUP_CHANGED, "an upload of the log as it is goes on")
            return None
        return group

    def _break_up(self, effect: BreakUpGroup) -> None:
        if self._group is not None and self._before_upload is not None:
            self._before_upload.break_up(self._group, _raw_reason(effect.error), effect.detail)
        self._group = None

    def _find_position(self) -> None:
        """Where the first segment begins. An error of it is none of the segment's: it must not be given up for it."""
        segments, files = self._plan.segments, self._plan.files
        if segments:
            self._checkpoint = self._tools.disk.leader_epochs(files)
            state = self._known.opened()[0]
            self._position = self._known.position_before(files, segments[0].base_offset, state)

    def _prepare(self, slot: int) -> SegmentPrepared:
        tools, known, plan = self._tools, self._known, self._plan
        segment, state = plan.segments[slot], known.opened()[0]
        tools.beat()
        if self._position is None:
            raise RuntimeError(f"{segment}: its position in the log is not known")
        attempt = self._resumed.pop(segment.base_offset, None)
        urgent = is_urgent(plan.deadline_ms, tools.clock.now_ms())
        with tools.turns.reading(plan.files.directory_id[0], beat=tools.beat, is_urgent=urgent):
            prepared, after = prepare_segment(
                tools,
                state.lineage.root,
                segment,
                self._position,
                self._checkpoint,
                plan.facts.log_start_offset,
                attempt,
            )
        piece = self._pieces[slot] = _Piece(prepared, after)
        if not plan.facts.transactions_decided:
            # Markers that are lost decide no transaction: what is known behind them does.
            at_end = prepared.reading.state if prepared.lost is None else after.known.table
            piece.blocker = self._open_behind(open_transactions(segment, at_end))
        self._position = after
        return SegmentPrepared(slot, prepared.lost, None if piece.blocker is None else piece.blocker.reason)

    def _open_behind(self, waiting: OpenTransactions | None) -> OpenTransactions | None:
        if waiting is None:
            return None
        tools, stable_end_offset = self._tools, self._plan.facts.stable_end_offset
        return tools.disk.look_ahead(self._plan.files, waiting, stable_end_offset, tools.beat, tools.budget.reads.take)

    def _block(self, slot: int) -> None:
        blocker = self._pieces[slot].blocker
        if blocker is not None:
            self._held_back.hold(blocker)
        self._close((slot,))

    def _take_copies(self, slots: Sequence[int]) -> frozenset[int]:
        """Have each copy in the place of its prepared segment. Raises PartitionError; then no segment is replaced."""
        root, taken = self._known.opened()[0].lineage.root, dict[int, PreparedSegment]()
        copies = () if self._group is None else self._group.copies
        with ExitStack() as unless_whole:
            for slot, copy in zip(slots, copies, strict=True):
                if copy is not None:
                    raw = self._pieces[slot].prepared
                    taken[slot] = with_copy(raw, copy, fresh_id(self._tools.randomness), root)
                    unless_whole.callback(taken[slot].close)
            unless_whole.pop_all()
        for slot, prepared in taken.items():
            self._pieces[slot].prepared.close()
            self._pieces[slot].prepared = prepared
        return frozenset(taken)

    def _submit(self, piece: _Piece, uploads: Executor) -> None:
        window = CommitWindow.begin(self._tools.store, self._tools.clock, self._tools.randomness)
        is_resumed = piece.prepared.attempt.log_crc32c is not None
        piece.window = replace(window, begun=None) if is_resumed else window
        piece.upload = uploads.submit(upload_segment, self._tools, piece.prepared)

    def _commit(self, slots: Sequence[int]) -> Event:
        """The proof that `DiscardAttempt` needs is made here: after the put was sent, an error is unknown until it proves more.

        Raises what keeps the put from being sent.
        """
        pieces = [self._pieces[slot] for slot in slots]
        entries = [piece.entry for piece in pieces if piece.entry is not None]
        try:
            state, commits, actions = self._what_is_said(pieces, entries)
            for entry in entries:
                self._tools.journal.committing(entry.segment_id, state.next_number)
        except CommitConflict as error:
            return CommitLost(error)
        try:
            after = commits.append(actions, writer_of(self._tools, self._plan.facts), state)
        except CommitConflict as error:
            return CommitLost(error)
        except SidecarError as error:
            self._tools.emit(CommitFailed(self._plan.facts.topic_partition))
            return CommitRefused(error) if proves_not_committed(error) else CommitUnknown(error)
        try:
            self._note_commit(after, pieces, entries, actions)
        except SidecarError as error:
            return CommitUnknown(error)  # It is stored. The journal still has it, and settles it with the next task.
        self._close(slots)
        return CommitWon(after)

    def _what_is_said(
        self, pieces: Sequence[_Piece], entries: Sequence[ArchivedSegment]
    ) -> tuple[PartitionState, CommitLog, list[Action]]:
        """The state to commit on, and the actions. Raises what proves that nothing was committed."""
        state, commits = self._known.opened()
        is_group = any(piece.prepared.copy is not None for piece in pieces)
        if is_group and self._before_upload is not None and self._group is not None:
            newest = self._known.newest_strategy(self._plan.files)
            before = state.last_commit
            state, commits = self._known.opened()  # Telling the strategy may have read the archive again.
            if state.last_commit != before:
                raise CommitConflict(f"{state.lineage.root}: another writer has committed meanwhile", state)
            self._before_upload.require_rule(self._group, newest)
        adopted = self._known.adopt_topic_id
        actions: list[Action] = [AdoptTopicId(adopted)] if adopted else []
        end_offset = entries[-1].end_offset
        deleted = deleted_on_purpose(self._plan.facts, state, self._known.starts, end_offset, commits.read)
        window = pieces[0].window  # The first upload began first.
        if window is not None:
            window.require_open(state.lineage.root, entries)
        lost = [Lost(*piece.prepared.lost, LossReason.NOT_ON_DISK) for piece in pieces if piece.prepared.lost]
        return state, commits, [*actions, *map(Add, entries), *lost, *deleted]

    def _note_commit(
        self,
        after: PartitionState,
        pieces: Sequence[_Piece],
        entries: Sequence[ArchivedSegment],
        actions: Sequence[Action],
    ) -> None:
        tools, last, facts = self._tools, pieces[-1], self._plan.facts
        is_first = self._known.committed(after, self._plan.files, last.prepared.segment.log, last.position)
        for piece, entry in zip(pieces, entries, strict=True):
            segment, snapshot = piece.prepared.segment, piece.prepared.snapshot
            self._outcome.archived.append(entry)
            self._outcome.conformance[snapshot.result] += 1
            tools.emit(
                SegmentCommitted(segment, entry, snapshot.result, tuple(piece.prepared.reading.replaced_indexes))
            )
            if snapshot.result in {Conformance.WRONG, "corrupt"}:
                tools.emit(SnapshotMismatch(segment, entry, snapshot.note))
            self._done(entry)
            tools.journal.end(entry.segment_id)
        # Not before: what the journal still has is reported when it is settled.
        for event in committed_events(facts.topic_partition, actions, facts.leader_epoch, facts.cluster_start_offset):
            tools.emit(event)
        if self._before_upload is not None:
            self._before_upload.archived([piece.prepared.segment for piece in pieces])
        if self._group is not None and self._group.segments[0] == pieces[0].prepared.segment:
            self._group = None  # Segments below a group are committed while it is prepared.
        note_source(tools, after.lineage.root, self._plan.files, is_first=is_first)

    def _end_uploads(self, slots: Sequence[int]) -> None:
        """An upload must end before its objects are removed, and its file stays open until then."""
        for slot in slots:
            piece = self._pieces.get(slot)
            upload = None if piece is None else piece.upload
            if piece is None or upload is None or upload.cancel():
                continue
            error = upload.exception()
            if not isinstance(error, SidecarError | None):
                _log.error("transfer_crashed", segment=str(piece.prepared.segment), exc_info=error)
            piece.upload = None

    def _discard(self, slots: Sequence[int]) -> None:
        for slot in slots:
            attempt = self._pieces[slot].prepared.attempt
            self._close((slot,))
            discard_quietly(self._tools, attempt)

    def _close(self, slots: Sequence[int]) -> None:
        for slot in slots:
            piece = self._pieces.pop(slot, None)
            if piece is not None:
                piece.prepared.close()


def _raw_reason(error: SidecarError | None) -> RawReason:
    if error is None:
        return RawReason.GROUP_CHANGED
    if isinstance(error, RuleUnknown):
        return RawReason.RULE_UNKNOWN
    return RawReason.RULE_CHANGED if isinstance(error, RuleChanged) else RawReason.GROUP_REFUSED
