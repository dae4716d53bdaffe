"""The copy task of a partition: its planned segments are prepared, uploaded and committed, in offset order. A pure state machine.

`begin` and `handle` are functions of values: a task and an event give the task behind it and what is to be done. `STEPS` has
every step that there is. Where each leads is in `docs/explanation/architecture.md`.

Segments are prepared one after the other, because each begins with the producers of the one below. Uploads overlap. Commits keep
the order of offsets. Segments that were compacted among themselves are a group: all are prepared, then all copies uploaded, then
one commit adds them. If anything keeps one of them back, all of the group go as they are, each by itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias, cast

from sidecar.archive.state import PartitionState
from sidecar.errors import BrokerUnavailable, Fenced, PartitionError, SidecarError
from sidecar.model import SegmentFiles
from sidecar.partition import effects, events
from sidecar.partition.facts import PartitionFacts, require_leads, require_none_deleted, require_not_fenced
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.wait_reason import Wait, WaitReason


class Phase(StrEnum):
    OPENING = "Opening"
    SETTLING = "Settling"
    CHECKING = "Checking"
    RECORDING_LOSS = "RecordingLoss"
    ARCHIVING = "Archiving"
    ABANDONING = "Abandoning"
    CLEARING = "Clearing"
    ENDED = "Ended"


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """`uploads_ahead`: commits whose uploads may be under way at once. `end_s`: on the monotonic clock; but for the first, no
    segment is begun after it. `has_groups`: segments may have been compacted in groups.
    """

    uploads_ahead: int
    end_s: float
    has_groups: bool


@dataclass(frozen=True, slots=True)
class Unit:
    """What one commit adds: a segment, or a group. A slot is `queued`, then `uploading`, then uploaded.

    `is_group`: none of it may be committed without the rest. `failed`: the first error of an upload. `end_offset`: where the
    archive ends after the commit of what is uploaded.
    """

    slots: tuple[int, ...]
    is_group: bool = False
    queued: tuple[int, ...] = ()
    uploading: frozenset[int] = frozenset()
    failed: SidecarError | None = None
    end_offset: int = 0


@dataclass(frozen=True, slots=True)
class CopyTask:
    """A task between two events.

    `next_slot`: the segment to be prepared next. `asking`, `committing`: what is not answered yet, of the preparation and of the
    commit. `prepared`: slots that are prepared and not sent. `group_size`: how many of them go as a group, 0 for none, None while
    that is not known. `copies`: slots of the group that have a copy, None before it was tried. `window`: what is under way.
    `loss`: to be recorded as soon as the window is empty. `is_closed`: nothing more is prepared. `left`: segments for a later
    task. `unprepared`: the segment that could not be prepared, if that is the error.
    """

    plan: PartitionPlan
    limits: CopyLimits
    phase: Phase = Phase.OPENING
    archive: PartitionState | None = None
    next_slot: int = 0
    asking: effects.Effect | None = None
    prepared: tuple[int, ...] = ()
    group_size: int | None = None
    copies: frozenset[int] | None = None
    window: tuple[Unit, ...] = ()
    committing: effects.Effect | None = None
    loss: effects.RecordLoss | None = None
    is_closed: bool = False
    is_stopping: bool = False
    left: tuple[SegmentFiles, ...] = ()
    reason: WaitReason | None = None
    recheck_in_ms: int | None = None
    error: SidecarError | None = None
    unprepared: SegmentFiles | None = None

    @property
    def has_segments_left(self) -> bool:
        return bool(self.prepared) or self.next_slot < len(self.plan.segments)


Step: TypeAlias = tuple[CopyTask, tuple[effects.Effect, ...]]


def begin(plan: PartitionPlan, limits: CopyLimits) -> Step:
    task = CopyTask(plan, limits, reason=plan.reason, recheck_in_ms=plan.recheck_in_ms, error=plan.error)
    return task, (effects.OpenArchive(),)


def handle(task: CopyTask, event: events.Event, now_s: float) -> Step:
    """What an event makes of a task. `now_s`: on the monotonic clock. Raises KeyError for an answer that the phase does not have.

    A stop keeps `Archiving` from beginning anything, and changes no other phase.
    """
    match event:
        case events.Answered(effect):
            return STEPS[task.phase, type(effect)][0](task, event, now_s)
        case events.StepFailed(effect):
            return STEPS[task.phase, type(effect)][1](task, event, now_s)
        case events.StopRequested():
            task = replace(task, is_stopping=True)
            return _advance(task, now_s) if task.phase is Phase.ARCHIVING else (task, ())
        case events.NotBegun():
            task = replace(task, asking=None)
            return _advance(task, now_s) if task.phase is Phase.ARCHIVING else _end_if_abandoned(task)


def _opened(task: CopyTask, event: events.Answered[PartitionState], _now_s: float) -> Step:
    try:
        require_not_fenced(task.plan.facts, event.result)
    except Fenced as error:
        return _ended(task, error)
    task = replace(task, phase=Phase.SETTLING, archive=event.result)
    return task, (effects.SettleAttempts(task.plan.segments),)


def _settled(task: CopyTask, _event: events.Answered[None], _now_s: float) -> Step:
    plan = task.plan
    if task.is_stopping and (plan.segments or plan.hole):
        task = replace(task, reason=Wait.DRAINING)
    elif (plan.segments or plan.hole) and not plan.error:
        return replace(task, phase=Phase.CHECKING), (effects.CheckContinuity(),)
    return replace(task, phase=Phase.ENDED), ()


def _continued(task: CopyTask, _event: events.Answered[None], now_s: float) -> Step:
    if task.plan.hole is not None:
        return replace(task, phase=Phase.RECORDING_LOSS), (effects.RecordLoss(*task.plan.hole),)
    return _advance(replace(task, phase=Phase.ARCHIVING), now_s)


def _loss_recorded(task: CopyTask, event: events.Answered[PartitionState], now_s: float) -> Step:
    task = replace(task, archive=event.result, loss=None)
    if not task.plan.segments:
        return replace(task, phase=Phase.ENDED), ()
    return _advance(replace(task, phase=Phase.ARCHIVING), now_s)


def _group_found(task: CopyTask, event: events.Answered[int], now_s: float) -> Step:
    return _advance(replace(task, asking=None, group_size=event.result), now_s)


def _prepared(task: CopyTask, event: events.Answered[effects.Prepared], now_s: float) -> Step:
    wanted: list[effects.Effect] = []
    slot, lost, blocked = task.next_slot, event.result.lost, event.result.blocked
    task = replace(task, asking=None, next_slot=slot + 1)
    if lost is not None or blocked is not None:
        task = _go_raw(task, wanted, "a segment of it cannot be archived as a whole")
    segment = task.plan.segments[slot]
    if lost is not None and lost[0] == segment.base_offset:
        wanted.append(effects.Release((slot,)))
        task = replace(task, loss=effects.RecordLoss(*lost, segment))
    elif blocked is not None:
        wanted.append(effects.Block(slot))
        task = replace(task, is_closed=True, reason=blocked)
    else:
        task = replace(task, prepared=(*task.prepared, slot))
    return _advance(task, now_s, wanted)


def _not_prepared(task: CopyTask, event: events.StepFailed, now_s: float) -> Step:
    """What came before is good, and is committed first."""
    wanted: list[effects.Effect] = []
    task = _go_raw(task, wanted, "a segment of it cannot be read")
    unprepared = task.plan.segments[task.next_slot]
    task = replace(task, asking=None, is_closed=True, error=event.error, unprepared=unprepared)
    return _advance(task, now_s, wanted)


def _copies_taken(task: CopyTask, event: events.Answered[frozenset[int]], now_s: float) -> Step:
    return _advance(replace(task, asking=None, copies=event.result), now_s)


def _copies_refused(task: CopyTask, event: events.StepFailed, now_s: float) -> Step:
    if not isinstance(event.error, PartitionError):
        return _not_asked(task, event, now_s)
    broken_up = effects.BreakUpGroup(str(event.error), event.error)
    return _advance(replace(task, asking=None, group_size=0), now_s, [broken_up])


def _not_asked(task: CopyTask, event: events.StepFailed, now_s: float) -> Step:
    return _advance(replace(task, asking=None, is_closed=True, error=event.error), now_s)


def _upload_ended(task: CopyTask, event: events.Answered[int] | events.StepFailed, now_s: float) -> Step:
    slot = cast("effects.Upload", event.effect).slot

    def of(unit: Unit) -> Unit:
        if slot not in unit.slots:
            return unit
        unit = replace(unit, uploading=unit.uploading - {slot})
        if isinstance(event, events.StepFailed):
            return replace(unit, failed=unit.failed or event.error)
        return replace(unit, end_offset=max(unit.end_offset, event.result))

    return _advance(replace(task, window=tuple(map(of, task.window))), now_s)


def _confirmed(task: CopyTask, event: events.Answered[PartitionFacts], _now_s: float) -> Step:
    head, planned = task.window[0], task.plan.facts
    try:
        require_leads(planned, event.result, head.end_offset)
        if head.is_group and task.copies and task.archive is not None:
            require_none_deleted(planned, event.result, task.archive, task.plan.segments[head.slots[0]].base_offset)
    except SidecarError as error:
        return _abandon(task, error)
    append = effects.AppendCommit(head.slots)
    return replace(task, committing=append), (append,)


def _won(task: CopyTask, event: events.Answered[PartitionState], now_s: float) -> Step:
    copies = None if task.window[0].is_group else task.copies
    task = replace(task, archive=event.result, window=task.window[1:], committing=None, copies=copies)
    return _advance(task, now_s)


def _not_committed(task: CopyTask, event: events.StepFailed, _now_s: float) -> Step:
    slots = task.window[0].slots
    match event:
        case events.CommitLost():
            return _abandon(task, event.error, effects.Release(slots), breaks_up=False)
        case events.CommitRefused():  # Nothing may come back to what the rules of the archive refuse.
            return _abandon(task, event.error, effects.DiscardAttempt(slots))
        case events.CommitUnknown():  # A commit may name the objects: whoever reads it next decides.
            return _abandon(task, event.error, effects.Release(slots))
    return _abandon(task, event.error)


def _abandoned(task: CopyTask, _event: events.Event, _now_s: float) -> Step:
    return _end_if_abandoned(replace(task, committing=None))


def _too_late(task: CopyTask, event: events.Answered[object] | events.StepFailed, _now_s: float) -> Step:
    """An answer of the preparation that is of no use any more."""
    is_open = isinstance(event.effect, effects.Prepare) and isinstance(event, events.Answered)
    prepared = (*task.prepared, task.next_slot) if is_open else task.prepared
    return _end_if_abandoned(replace(task, asking=None, prepared=prepared))


def _ignored(task: CopyTask, _event: events.Event, _now_s: float) -> Step:
    return task, ()


def _failed(task: CopyTask, event: events.StepFailed, _now_s: float) -> Step:
    return _ended(task, event.error)


def _cleared(task: CopyTask, _event: events.Answered[None], _now_s: float) -> Step:
    return replace(task, phase=Phase.ENDED), ()


def _ended(task: CopyTask, error: SidecarError) -> Step:
    return replace(task, phase=Phase.ENDED, error=error), ()


def _end_if_abandoned(task: CopyTask) -> Step:
    if task.asking is not None or task.committing is not None:
        return task, ()
    unsent = (effects.Release(task.prepared),) if task.prepared else ()
    return replace(task, phase=Phase.ENDED, prepared=()), unsent


def _go_raw(task: CopyTask, wanted: list[effects.Effect], detail: str) -> CopyTask:
    """What is prepared of a group goes as it is, as will the rest."""
    if task.group_size:
        wanted.append(effects.BreakUpGroup(detail))
    return replace(task, group_size=0)


def _abandon(
    task: CopyTask, error: SidecarError | None, first: effects.Effect | None = None, *, breaks_up: bool = True
) -> Step:
    """End all that is under way. `error`: None where the process stops in the middle of a group.

    `first`: what becomes of the head of the window, whose commit was sent. Without it the head is abandoned as the rest.
    """
    wanted: list[effects.Effect] = [] if first is None else [first]
    head, window = task.window[:1], task.window if first is None else task.window[1:]
    if head and head[0].is_group and breaks_up and isinstance(error, PartitionError):
        wanted.append(effects.BreakUpGroup(str(error), error))
    unsent = (*task.prepared, *(slot for unit in window for slot in unit.queued))
    sent = tuple(slot for unit in window for slot in unit.slots if slot not in unit.queued)
    # Where the broker does not answer, or the process ends, a later task goes on with what is uploaded.
    is_kept = task.is_stopping or isinstance(error, BrokerUnavailable)
    abandon = effects.Abandon(sent, discards=not is_kept)
    reason = task.reason if error is not None else Wait.DRAINING
    task = replace(
        task,
        phase=Phase.ABANDONING,
        window=(),
        prepared=unsent,
        committing=abandon,
        error=error,
        unprepared=None,
        reason=reason,
    )
    return task, (*wanted, abandon)


def _advance(task: CopyTask, now_s: float, wanted: list[effects.Effect] | None = None) -> Step:
    wanted = [] if wanted is None else wanted
    for start in (_start_commit, _start_uploads, _start_loss, _start_preparation):
        task, begun = start(task, now_s)
        wanted += begun
        if task.phase is not Phase.ARCHIVING:
            return task, tuple(wanted)
    if task.asking is None and task.committing is None and not task.window:
        task, last = _finished(task)
        wanted += last
    return task, tuple(wanted)


def _start_commit(task: CopyTask, _now_s: float) -> Step:
    head = task.window[0] if task.window else None
    if head is None or task.committing is not None:
        return task, ()
    if head.failed is not None:
        return _abandon(task, head.failed)
    if task.is_stopping and head.queued:
        return _abandon(task, None)
    if head.queued or head.uploading:
        return task, ()
    confirm = effects.ConfirmLeadership(head.slots)
    return replace(task, committing=confirm), (confirm,)


def _start_uploads(task: CopyTask, _now_s: float) -> Step:
    if not (task.prepared or task.group_size or (task.window and task.window[0].queued)):
        return task, ()
    window, prepared, wanted = list(task.window), task.prepared, list[effects.Effect]()
    if task.group_size:
        if task.copies is not None and not window and not task.is_stopping:
            window, prepared = [Unit(prepared, is_group=True, queued=prepared)], ()
    else:
        while prepared and len(window) < task.limits.uploads_ahead and not task.is_stopping:
            window.append(Unit(prepared[:1], uploading=frozenset(prepared[:1])))
            wanted.append(effects.Upload(prepared[0]))
            prepared = prepared[1:]
    if window and window[0].queued and not task.is_stopping:
        unit = window[0]
        begun = unit.queued[: task.limits.uploads_ahead - len(unit.uploading)]
        window[0] = replace(unit, queued=unit.queued[len(begun) :], uploading=unit.uploading.union(begun))
        wanted += map(effects.Upload, begun)
    group_size = task.group_size if prepared or not task.prepared else None
    return replace(task, window=tuple(window), prepared=prepared, group_size=group_size), tuple(wanted)


def _start_loss(task: CopyTask, _now_s: float) -> Step:
    if task.loss is None or task.window or task.prepared:
        return task, ()
    return replace(task, phase=Phase.RECORDING_LOSS, group_size=None), (task.loss,)


def _start_preparation(task: CopyTask, now_s: float) -> Step:
    segments, ahead = task.plan.segments, task.limits.uploads_ahead
    if task.asking is not None or task.loss is not None or task.is_stopping:
        return task, ()
    if task.prepared and len(task.prepared) == task.group_size:
        return (
            _ask(task, effects.TakeCopies(task.prepared)) if task.copies is None and not task.is_closed else (task, ())
        )
    is_full = len(task.window) >= ahead or any(unit.is_group for unit in task.window)
    if task.is_closed or is_full or task.next_slot == len(segments):
        return task, ()
    if not task.prepared:
        if task.next_slot and now_s >= task.limits.end_s:
            left = segments[task.next_slot :]
            return replace(task, is_closed=True, left=left, reason=Wait.TASK_OVER, recheck_in_ms=0), ()
        if task.group_size is None and task.limits.has_groups:
            return _ask(task, effects.FindGroup(task.next_slot))
    return _ask(task, effects.Prepare(task.next_slot))


def _ask(task: CopyTask, effect: effects.Effect) -> Step:
    return replace(task, asking=effect), (effect,)


def _finished(task: CopyTask) -> Step:
    unsent = (effects.Release(task.prepared),) if task.prepared else ()
    if task.error is not None:
        return replace(task, phase=Phase.ENDED, prepared=()), unsent
    if task.is_stopping:
        reason = Wait.DRAINING if task.has_segments_left else task.reason
        return replace(task, phase=Phase.ENDED, prepared=(), reason=reason), unsent
    # Commits have passed the numbers for which earlier attempts were kept.
    return replace(task, phase=Phase.CLEARING), (effects.SettleAttempts(task.left),)


_Handler: TypeAlias = Callable[[CopyTask, Any, float], Step]

STEPS: Final[Mapping[tuple[Phase, type[effects.Effect]], tuple[_Handler, _Handler]]] = {
    (Phase.OPENING, effects.OpenArchive): (_opened, _failed),
    (Phase.SETTLING, effects.SettleAttempts): (_settled, _failed),
    (Phase.CHECKING, effects.CheckContinuity): (_continued, _failed),
    (Phase.RECORDING_LOSS, effects.RecordLoss): (_loss_recorded, _failed),
    (Phase.ARCHIVING, effects.FindGroup): (_group_found, _not_asked),
    (Phase.ARCHIVING, effects.Prepare): (_prepared, _not_prepared),
    (Phase.ARCHIVING, effects.TakeCopies): (_copies_taken, _copies_refused),
    (Phase.ARCHIVING, effects.Upload): (_upload_ended, _upload_ended),
    (Phase.ARCHIVING, effects.ConfirmLeadership): (_confirmed, _not_committed),
    (Phase.ARCHIVING, effects.AppendCommit): (_won, _not_committed),
    (Phase.ABANDONING, effects.FindGroup): (_too_late, _too_late),
    (Phase.ABANDONING, effects.Prepare): (_too_late, _too_late),
    (Phase.ABANDONING, effects.TakeCopies): (_too_late, _too_late),
    (Phase.ABANDONING, effects.Upload): (_ignored, _ignored),
    (Phase.ABANDONING, effects.Abandon): (_abandoned, _abandoned),
    (Phase.CLEARING, effects.SettleAttempts): (_cleared, _failed),
}
"""By phase and effect: what its answer leads to, and what its failure."""
