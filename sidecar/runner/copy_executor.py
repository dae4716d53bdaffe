"""Carries out what a copy task asks for: each effect that may last is a step on another thread, whose result is an event."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from producer_state.compare import Conformance
from sidecar.archive.actions import Action, Add, AdoptTopicId
from sidecar.archive.keys import fresh_id
from sidecar.archive.state import PartitionState
from sidecar.commits.attempts import discard_quietly, resumed_or_fresh, settle_attempts, upload_segment
from sidecar.commits.commit_log import CommitConflict, CommitLog
from sidecar.commits.commit_window import CommitWindow
from sidecar.commits.continuity import note_source, require_continuity
from sidecar.commits.stored_commits import proves_not_committed
from sidecar.compaction.rules import DAY_MS
from sidecar.compactor.before_upload import CopyGroup
from sidecar.compactor.topic_counts import RawReason
from sidecar.compactor.topic_rule import RuleChanged, RuleUnknown
from sidecar.errors import SidecarError
from sidecar.host.journal import Attempt
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import ArchivedSegment, SegmentFiles
from sidecar.partition import effects, events
from sidecar.partition.copy_task import CopyLimits, CopyTask, Phase, begin, handle
from sidecar.partition.domain_events import (
    CommitFailed,
    DeletesMayBeMissing,
    OffsetsLost,
    SegmentCommitted,
    SnapshotMismatch,
)
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.retention import is_urgent
from sidecar.partition.status import PartitionOutcome
from sidecar.retention.deleted_records import LogStartCheck, emit_committed, lost_below, record_lost, writer_of
from sidecar.retention.log_starts import LogStarts
from sidecar.runner.context import RunContext
from sidecar.runner.partition_archiver import PartitionArchiver
from sidecar.runner.step_threads import Pool, Run, Step
from sidecar.segment.bundle import PreparedSegment, with_copy
from sidecar.segment.open_transactions import OpenTransactions, open_transactions
from sidecar.segment.prepare import LogPosition, prepare_segment


@dataclass(slots=True)
class _Piece:
    """What the executor has of a slot. `position`: the state of the preparation behind it."""

    prepared: PreparedSegment
    position: LogPosition
    blocker: OpenTransactions | None = None
    window: CommitWindow | None = None
    entry: ArchivedSegment | None = None


@dataclass(frozen=True, slots=True)
class _Committed:
    """How a commit ended, and what it found out of the log's beginning. `archive`: after it, None where it may not be stored."""

    event: events.Event
    starts: LogStarts
    archive: PartitionState | None = None
    entries: tuple[ArchivedSegment, ...] = ()


class CopyExecutor:
    """Runs the copy task of one plan: its methods on the loop's thread, its steps on others, one at a time, but for uploads.

    `outcome`: what it has done. `blocker`: what a segment waits for, if one was found to wait.
    """

    def __init__(
        self,
        context: RunContext,
        partition: PartitionArchiver,
        plan: PartitionPlan,
        *,
        run: Run,
        committed: Callable[[ArchivedSegment], None],
        ended: Callable[[], None],
    ) -> None:
        """Args:
        partition: whose plan it is; what it knows of the archive belongs to the steps until the end.
        committed, ended: called on the loop's thread, for each committed segment and at the end.
        """
        self._context, self._partition, self.plan = context, partition, plan
        self._known, self._before_upload = partition.known, partition.before_upload
        self._run, self._when_committed, self._when_ended = run, committed, ended
        self.outcome = PartitionOutcome(plan.files, waiting=len(plan.waiting))
        self.blocker: OpenTransactions | None = None
        self._task: CopyTask | None = None
        self._later: deque[effects.Effect] = deque()
        self._running: effects.Effect | None = None
        self._pieces: dict[int, _Piece] = {}
        self._uploads: dict[int, Future[None]] = {}
        self._is_stopping = False
        # Of the steps.
        self._group: CopyGroup | None = None
        self._resumed: dict[int, Attempt] = {}
        self._position: LogPosition | None = None
        self._checkpoint: LeaderEpochs | None = None
        self._committed_ms: int | None = None

    def begin(self, end_s: float) -> None:
        """Archive the planned segments, and record the gap below them if the plan has one.

        `end_s`: on the monotonic clock; no segment but the first is begun after it.
        """
        limits = CopyLimits(self._context.policy.uploads_ahead, end_s, self._before_upload is not None)
        self._go_on(begin(self.plan, limits))

    def stop(self) -> None:
        """The process is to end: what is uploaded is committed, nothing else is begun."""
        if not self._is_stopping:
            self._is_stopping = True
            self._handle(events.StopRequested())

    def close(self) -> None:
        """Close all files. Only where no step is under way any more, and the task will not go on."""
        self._close(tuple(self._pieces))

    def _handle(self, event: events.Event) -> None:
        if self._task is not None and self._task.phase is not Phase.ENDED:
            self._go_on(handle(self._task, event, self._context.clock.monotonic_s()))

    def _go_on(self, step: tuple[CopyTask, tuple[effects.Effect, ...]]) -> None:
        self._task, wanted = step
        for effect in wanted:
            self._start(effect)
        if self._task.phase is Phase.ENDED and self._running is None and not self._later:
            self._end(self._task)
        else:
            self._begin_next()

    def _start(self, effect: effects.Effect) -> None:
        match effect:
            case effects.Upload(slot):
                ended = partial(self._answered, effect, partial(self._uploaded, effect))
                self._uploads[slot] = self._run(partial(self._upload, self._pieces[slot]), ended, Pool.UPLOADS)
            case effects.Release(slots):
                self._close(slots)
            case effects.Block(slot):
                self.blocker = self._pieces[slot].blocker
                self._close((slot,))
            case effects.AppendCommit():
                self._later.appendleft(effect)  # Nothing comes between it and the leadership that was just confirmed.
            case effects.Abandon(slots):
                for slot in slots:
                    if slot in self._uploads and self._uploads[slot].cancel():
                        del self._uploads[slot]
                self._later.append(effect)
            case _:
                self._later.append(effect)

    def _begin_next(self) -> None:
        """The next step, if none is under way. An upload must end before its objects are removed, and its file stays open."""
        if self._context.stop.is_set():
            self.stop()
        if self._running is not None or not self._later:
            return
        effect = self._later[0]
        if isinstance(effect, effects.Abandon) and any(slot in self._uploads for slot in effect.slots):
            return
        self._later.popleft()
        if self._is_stopping and isinstance(effect, effects.FindGroup | effects.Prepare | effects.TakeCopies):
            self._handle(events.NotBegun())
            return
        self._running = effect
        step, event_of = self._step_of(effect)
        self._run(step, partial(self._answered, effect, event_of), Pool.STEPS)

    def _answered(
        self,
        effect: effects.Effect,
        event_of: Callable[[Any], events.Event | None],
        result: Any,
        error: SidecarError | None,
    ) -> None:
        if self._context.stop.is_set():
            self.stop()  # Before the answer: an upload that fails because of it is kept for the next start.
        if isinstance(effect, effects.Upload):
            self._uploads.pop(effect.slot, None)
        else:
            self._running = None
        ends_anyway = isinstance(effect, effects.DiscardAttempt | effects.Abandon | effects.BreakUpGroup)
        event = event_of(result) if error is None or ends_anyway else events.StepFailed(effect, error)
        if event is not None:
            self._handle(event)
        elif self._task is not None:
            self._go_on((self._task, ()))

    def _end(self, task: CopyTask) -> None:
        """Leave what spares the next process requests, and give back what is known of the archive."""
        self._task = None
        outcome = self.outcome
        outcome.reason, outcome.recheck_in_ms, outcome.unprepared = task.reason, task.recheck_in_ms, task.unprepared
        outcome.error = task.error

        def rested(_result: None, error: SidecarError | None) -> None:
            if error is not None:
                outcome.error = outcome.error or error
                self._known.forget()
            self._when_ended()

        if outcome.archived:
            self._run(self._known.rest, rested, Pool.STEPS)
        else:
            self._when_ended()

    def _step_of(self, effect: effects.Effect) -> tuple[Step, Callable[[Any], events.Event | None]]:
        """What is to be done for an effect, on another thread, and what the task hears of its result; None for the quiet ones."""
        known, starts, answered = self._known, self._partition.starts, partial(events.Answered, effect)
        match effect:
            case effects.OpenArchive():
                return partial(known.open, self.plan.files), answered
            case effects.SettleAttempts(segments):
                return partial(self._settle, segments), answered
            case effects.CheckContinuity():
                return self._check_continuity, answered
            case effects.RecordLoss():
                return partial(self._record_loss, effect, starts), lambda found: answered(self._loss_recorded(*found))
            case effects.FindGroup(slot):
                return partial(self._find_group, slot), answered
            case effects.Prepare(slot):
                return partial(self._prepare, slot), lambda lost: answered(self._prepared(slot, lost))
            case effects.TakeCopies(slots):
                return partial(self._take_copies, self._pieces_of(slots)), lambda taken: answered(
                    self._copies_taken(slots, taken)
                )
            case effects.ConfirmLeadership(slots):
                return partial(self._confirm, self._pieces_of(slots)), answered
            case effects.AppendCommit(slots):
                return partial(self._commit, effect, self._pieces_of(slots), starts), partial(self._committed, slots)
            case effects.DiscardAttempt(slots):
                return partial(self._discard, self._pieces_of(slots)), lambda _: self._close(slots)
            case effects.Abandon(slots, discards):
                # The process may stop while uploads are waited for.
                is_kept = not discards or self._context.stop.is_set()
                return partial(self._discard, () if is_kept else self._pieces_of(slots)), partial(
                    self._abandoned, effect
                )
            case effects.BreakUpGroup():
                return partial(self._break_up, effect), lambda _: None
            case _:
                raise TypeError(f"{effect} is no step")

    def _pieces_of(self, slots: Sequence[int]) -> tuple[_Piece, ...]:
        return tuple([self._pieces[slot] for slot in slots])

    # Steps, on other threads.

    def _settle(self, segments: Sequence[SegmentFiles]) -> None:
        state = self._known.opened()[0]
        if self._context.journal.attempts(state.lineage.root):
            self._context.require_safe_store()
        self._resumed = settle_attempts(self._context, state, segments)
        self._known.keep(state, self.plan.files)  # All of it was kept for them.

    def _check_continuity(self) -> None:
        self._known.require_alone(self.plan.files)
        state = self._known.opened()[0]
        require_continuity(self._context, self.plan.files, state)
        self._committed_ms = state.last_committed_at_ms if state.segments else None
        if self.plan.hole is None:
            self._find_position()

    def _confirm(self, pieces: Sequence[_Piece]) -> PartitionFacts:
        self._context.require_safe_store()
        for piece in pieces:
            self._context.disk.require_unchanged(piece.prepared.segment, self.plan.files, self._context.clock.now_ms())
        return self._context.facts.confirm(self.plan.files)

    def _upload(self, piece: _Piece) -> tuple[CommitWindow, ArchivedSegment]:
        window = CommitWindow.begin(self._context.store, self._context.clock, self._context.randomness)
        is_resumed = piece.prepared.attempt.log_crc32c is not None
        entry = upload_segment(self._context, piece.prepared)
        return replace(window, begun=None) if is_resumed else window, entry

    def _record_loss(self, effect: effects.RecordLoss, starts: LogStarts) -> tuple[PartitionState, LogStarts]:
        known, lost = self._known, (effect.from_offset, effect.to_offset)
        self._context.require_safe_store()
        if effect.segment is None:
            _, starts = record_lost(self._context, known, self.plan, starts, lost)
            self._find_position()
            return known.opened()[0], starts
        self._context.disk.require_unchanged(effect.segment, self.plan.files, self._context.clock.now_ms())
        state = known.opened()[0]
        if state.end_offset is not None:
            return record_lost(self._context, known, self.plan, starts, lost)
        # At an earlier try it may have been reported: no commit of this partition has come through since.
        if lost[1] > known.reported_lost_below:
            known.forget()  # Another broker's sidecar may have archived them since it was read.
            state = known.open(self.plan.files)
            if state.end_offset is not None:
                raise CommitConflict(f"{state.lineage.root}: another writer has committed meanwhile", state)
            known.reported_lost_below = lost[1]
            facts = self.plan.facts
            self._context.emit(OffsetsLost(facts.topic_partition, *lost, facts.cluster_start_offset, is_recorded=False))
        return state, starts

    def _find_group(self, slot: int) -> int:
        """How many segments from a slot on are to be committed together, 0 where the first goes by itself."""
        self._group = None if self._before_upload is None else self._before_upload.group_from(self.plan.segments[slot:])
        if self._group is not None and any(s.base_offset in self._resumed for s in self._group.segments):
            self._break_up(effects.BreakUpGroup("an upload of the original segment continues"))
        return 0 if self._group is None else len(self._group.segments)

    def _break_up(self, effect: effects.BreakUpGroup) -> None:
        if self._group is not None and self._before_upload is not None:
            self._before_upload.break_up(self._group, _raw_reason(effect.error), effect.detail)
        self._group = None

    def _find_position(self) -> None:
        """Where the first segment begins. An error of it is none of the segment's: it must not be given up for it."""
        segments, files = self.plan.segments, self.plan.files
        if segments:
            self._checkpoint = self._context.disk.leader_epochs(files)
            state = self._known.opened()[0]
            self._position = self._known.position_before(files, segments[0].base_offset, state)

    def _prepare(self, slot: int) -> tuple[int, int] | None:
        """Prepare the segment. Which offsets at its end are on no disk."""
        context, known, plan = self._context, self._known, self.plan
        segment, state = plan.segments[slot], known.opened()[0]
        context.beat()
        if self._position is None:
            raise RuntimeError(f"{segment}: its position in the log is not known")
        attempt = self._resumed.pop(segment.base_offset, None)
        urgent = is_urgent(plan.deadline_ms, context.clock.now_ms())
        with context.disk_readers.reading(plan.files.directory_id[0], beat=context.beat, is_urgent=urgent):
            prepared, after = prepare_segment(
                context,
                plan.files,
                state,
                segment,
                self._position,
                self._checkpoint,
                plan.facts.log_start_offset,
                attempt,
            )
        with ExitStack() as unless_known:
            unless_known.callback(prepared.close)
            piece = _Piece(resumed_or_fresh(context, prepared), after)
            if prepared.reading.looks_cleaned:
                self._tell_lost_deletes(segment)
            if not plan.facts.transactions_decided:
                # Markers that are lost decide no transaction: the broker's snapshot behind them does, if there is one.
                is_known_behind = prepared.lost is not None and segment.snapshot is not None
                at_end = after.known.table if is_known_behind else prepared.reading.state
                if (waiting := open_transactions(segment, at_end)) is not None:
                    stable_end_offset, take = plan.facts.stable_end_offset, context.budget.reads.take
                    blocker = context.disk.look_ahead(plan.files, waiting, stable_end_offset, context.beat, take)
                    piece.blocker = None if blocker is None else context.disk.undecided(plan.files, blocker)
            unless_known.pop_all()
        # Here, not when the loop takes the event: a fault may end the loop before, and `close` must find the open file.
        self._position, self._pieces[slot] = after, piece
        return prepared.lost

    def _tell_lost_deletes(self, segment: SegmentFiles) -> None:
        """Report that tombstones may be gone whose keys were archived before, by earlier tasks.

        A tombstone stays for `delete.retention.ms` after its first cleaning, which follows the last write to its file; a cleaned
        file keeps that time. Not found are files that were merged with younger ones, or that a replica has fetched since.
        Source: Cleaner.cleanSegments, MemoryRecords.filterTo.
        """
        now_ms, context = self._context.clock.now_ms(), self._context
        retention_ms = context.facts.policy(segment.topic_partition.topic).delete_retention_ms
        retention_ms = DAY_MS if retention_ms is None else retention_ms
        if self._committed_ms is not None and now_ms - max(self._committed_ms, segment.log.mtime_ms) > retention_ms:
            context.emit(DeletesMayBeMissing(segment, now_ms - self._committed_ms))

    def _take_copies(self, pieces: Sequence[_Piece]) -> list[PreparedSegment | None]:
        """Each segment as its copy, None where it has none. Raises PartitionError; then there is no copy of any."""
        root, taken = self._known.opened()[0].lineage.root, list[PreparedSegment | None]()
        copies = () if self._group is None else self._group.copies
        with ExitStack() as unless_whole:
            for piece, copy in zip(pieces, copies, strict=True):
                prepared = None
                if copy is not None:
                    prepared = with_copy(piece.prepared, copy, fresh_id(self._context.randomness), root)
                    unless_whole.callback(prepared.close)
                taken.append(prepared)
            unless_whole.pop_all()
        return taken

    def _commit(self, effect: effects.AppendCommit, pieces: tuple[_Piece, ...], starts: LogStarts) -> _Committed:
        """The proof that `DiscardAttempt` needs is made here: after the put was sent, an error is unknown until it proves more.

        Raises what keeps the put from being sent.
        """
        entries = tuple(piece.entry for piece in pieces if piece.entry is not None)
        try:
            state, commits, actions, starts = self._what_is_said(pieces, entries, starts)
            for entry in entries:
                self._context.journal.committing(entry.segment_id, state.next_number)
        except CommitConflict as error:
            return _Committed(events.CommitLost(effect, error), starts)
        try:
            after = commits.append(actions, writer_of(self._context, self.plan.facts), state)
        except CommitConflict as error:
            return _Committed(events.CommitLost(effect, error), starts)
        except SidecarError as error:
            self._context.emit(CommitFailed())
            kind = events.CommitRefused if proves_not_committed(error) else events.CommitUnknown
            return _Committed(kind(effect, error), starts)
        try:
            self._note_commit(after, pieces, entries, actions)
        except SidecarError as error:
            # It is stored. The journal still has it, and settles it with the next task.
            return _Committed(events.CommitUnknown(effect, error), starts, after, entries)
        return _Committed(events.Answered(effect, after), starts, after, entries)

    def _what_is_said(
        self, pieces: Sequence[_Piece], entries: Sequence[ArchivedSegment], starts: LogStarts
    ) -> tuple[PartitionState, CommitLog, list[Action], LogStarts]:
        """The state to commit on, and the actions. Raises what proves that nothing was committed."""
        state, commits = self._known.opened()
        is_group = any(piece.prepared.copy is not None for piece in pieces)
        # Not as of the task's begin: a reload may have replaced the settings since.
        before_upload = self._partition.before_upload
        if is_group and before_upload is not None and self._group is not None:
            newest = self._known.newest_strategy(self.plan.files)
            before = state.last_commit
            state, commits = self._known.opened()  # Finding the strategy may have read the archive again.
            if state.last_commit != before:
                raise CommitConflict(f"{state.lineage.root}: another writer has committed meanwhile", state)
            before_upload.require_rule(self._group, newest)
        # Without an id, it is the lineage of a known one only if continuity has proven that. See `choose_lineage`.
        adopted = self.plan.files.topic_id if state.topic_id is None else None
        actions: list[Action] = [AdoptTopicId(adopted)] if adopted else []
        gaps = [piece.prepared.lost for piece in pieces if piece.prepared.lost]
        end_offset = max([entries[-1].end_offset, *(gap_end for _, gap_end in gaps)])
        check = LogStartCheck(self.plan.facts, state, commits.read, self._context.emit)
        deleted, starts = check.deleted_on_purpose(starts, end_offset)
        # Each by its own: uploads of a group overlap, and the first of them need not have begun first.
        for piece, entry in zip(pieces, entries, strict=True):
            if piece.window is not None:
                piece.window.require_open(state.lineage.root, [entry])
        deleted_end = max([state.deleted_before_offset, *(action.before_offset for action in deleted)])
        lost = [action for gap in gaps for action in lost_below(gap, deleted_end)]
        return state, commits, [*actions, *map(Add, entries), *lost, *deleted], starts

    def _note_commit(
        self,
        after: PartitionState,
        pieces: Sequence[_Piece],
        entries: Sequence[ArchivedSegment],
        actions: Sequence[Action],
    ) -> None:
        context, last = self._context, pieces[-1]
        is_first = self._known.committed(after, self.plan.files, last.prepared.segment.log, last.position)
        for piece, entry in zip(pieces, entries, strict=True):
            segment, snapshot = piece.prepared.segment, piece.prepared.snapshot
            replaced = piece.prepared.reading.indexes.replaced
            context.emit(SegmentCommitted(segment, entry, snapshot.result, replaced))
            if snapshot.result in {Conformance.WRONG, "corrupt"}:
                context.emit(SnapshotMismatch(segment, entry, snapshot.note))
            context.journal.end(entry.segment_id)
        # Not before: what the journal still has is reported when it is settled.
        emit_committed(context, self.plan.facts, actions)
        if self._before_upload is not None:
            self._before_upload.archived([piece.prepared.segment for piece in pieces])
        if self._group is not None and self._group.segments[0] == pieces[0].prepared.segment:
            self._group = None  # Segments below a group are committed while it is prepared.
        note_source(context, after.lineage.root, self.plan.files, is_first=is_first)

    def _discard(self, pieces: Sequence[_Piece]) -> None:
        for piece in pieces:
            discard_quietly(self._context, piece.prepared.attempt)

    # What steps have found, on the loop's thread.

    def _loss_recorded(self, archive: PartitionState, starts: LogStarts) -> PartitionState:
        self._partition.learn(starts)
        self._partition.committed(archive, ())
        return archive

    def _prepared(self, slot: int, lost: tuple[int, int] | None) -> effects.Prepared:
        blocker = self._pieces[slot].blocker
        return effects.Prepared(lost, None if blocker is None else blocker.reason)

    def _copies_taken(self, slots: Sequence[int], taken: Sequence[PreparedSegment | None]) -> frozenset[int]:
        found = {slot: prepared for slot, prepared in zip(slots, taken, strict=True) if prepared is not None}
        for slot, prepared in found.items():
            self._pieces[slot].prepared.close()
            self._pieces[slot].prepared = prepared
        return frozenset(found)

    def _committed(self, slots: Sequence[int], done: _Committed) -> events.Event:
        self._partition.learn(done.starts)
        if done.archive is None:
            return done.event
        for slot, entry in zip(slots, done.entries, strict=True):
            self.outcome.archived.append(entry)
            self.outcome.conformance[self._pieces[slot].prepared.snapshot.result] += 1
        self._partition.committed(done.archive, done.entries)
        for entry in done.entries:
            self._when_committed(entry)
        if isinstance(done.event, events.Answered):
            self._close(slots)
        return done.event

    def _uploaded(self, effect: effects.Upload, found: tuple[CommitWindow, ArchivedSegment]) -> events.Event | None:
        piece = self._pieces.get(effect.slot)
        if piece is None:
            return None
        piece.window, piece.entry = found
        return events.Answered(effect, piece.entry.end_offset)

    def _abandoned(self, effect: effects.Abandon, _result: None) -> events.Event:
        self._close(effect.slots)
        return events.Answered(effect, None)

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
