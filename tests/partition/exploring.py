"""Explores a copy task: every order of answers, every error, and a stop at every moment, for a plan of a few segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from sidecar.archive.keys import Lineage
from sidecar.archive.state import PartitionState, empty_state
from sidecar.errors import (
    BrokerUnavailable,
    CorruptFile,
    Fenced,
    OutcomeUnknown,
    PartitionError,
    SidecarError,
    StoreUnavailable,
)
from sidecar.model import (
    FileIdentity,
    PartitionFiles,
    SegmentFiles,
    TopicPartition,
)
from sidecar.partition.copy_task import CopyLimits, CopyTask, Phase, Step, begin, handle
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
    Prepared,
    RecordLoss,
    Release,
    SettleAttempts,
    TakeCopies,
    Upload,
)
from sidecar.partition.events import (
    Answered,
    CommitLost,
    CommitRefused,
    CommitUnknown,
    Event,
    NotBegun,
    StepFailed,
    StopRequested,
)
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.wait_reason import OpenTransaction
from tests.partition.steps import LEADS_TO, name_of

PARTITION = TopicPartition("orders", 0)
DIRECTORY = Path("logs/orders-0")
SIZE = 10
ARCHIVE = replace(empty_state(Lineage("cluster", PARTITION, "0")), end_offset=0)
LATE_S, EARLY_S = 1e9, 0.0
ERRORS: tuple[SidecarError, ...] = (
    PartitionError("odd"),
    CorruptFile("damaged"),
    BrokerUnavailable("away"),
    StoreUnavailable("away"),
    Fenced("another"),
    OutcomeUnknown("lost"),
)


class Broken(AssertionError):
    """A rule of the copy task does not hold."""


def a_segment(slot: int) -> SegmentFiles:
    """Segment number `slot` of the plan."""
    log = FileIdentity(DIRECTORY, f"{slot * SIZE:020d}.log", slot, 100, 1)
    return SegmentFiles(PARTITION, DIRECTORY.parent, slot * SIZE, (slot + 1) * SIZE, log, None, None, None, None)


SEGMENTS = tuple(map(a_segment, range(6)))
LEADS = PartitionFacts(PARTITION, None, True, 5, 1000, 0)
FACTS = {
    "leads": LEADS,
    "deposed": replace(LEADS, leads=False),
    "later epoch": replace(LEADS, leader_epoch=6),
    "truncated": replace(LEADS, stable_end_offset=0),
    "deleted": replace(LEADS, cluster_start_offset=999),
}


@dataclass(frozen=True, slots=True)
class Case:
    """What is explored. `groups`: sizes of groups by their first slot."""

    segments: int
    uploads_ahead: int = 1
    groups: tuple[tuple[int, int], ...] = ()
    hole: bool = False
    errors: tuple[SidecarError, ...] = ERRORS[:1]
    facts: tuple[str, ...] = ("leads", "deposed")
    losses: bool = True
    stops: bool = True
    time_runs_out: bool = False

    @property
    def plan(self) -> PartitionPlan:
        """Its plan."""
        segments = SEGMENTS[: self.segments]
        files = PartitionFiles(PARTITION, DIRECTORY.parent, DIRECTORY, None, segments, 1000, (), False)
        return PartitionPlan(files, LEADS, segments, (), hole=(-5, 0) if self.hole else None)


@dataclass(frozen=True, slots=True)
class World:
    """What the executor would have. `open`: slots with an open file. `sent`, `begun`: uploads begun, and not ended.

    `fate`: of slots whose commit was sent, by the answer. `gone`: slots whose objects were discarded. `confirmed`, `facts`: as
    they were confirmed last. `copies`: slots that have a copy. `lost`: slots of which nothing was on disk.
    """

    open: frozenset[int] = frozenset()
    begun: frozenset[int] = frozenset()
    sent: frozenset[int] = frozenset()
    fate: tuple[tuple[int, str], ...] = ()
    gone: frozenset[int] = frozenset()
    committed: tuple[tuple[int, ...], ...] = ()
    confirmed: tuple[int, ...] = ()
    facts: PartitionFacts | None = None
    copies: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()
    broken_up: bool = False


@dataclass(slots=True)
class Explored:
    """Figures of an exploration."""

    states: int = 0
    steps: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    transitions: set[tuple[tuple[Phase, str], Phase]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Node:
    """A task, the effects that are not answered yet, and the world."""

    task: CopyTask
    waiting: tuple[Effect, ...]
    world: World


def explore(case: Case) -> Explored:
    """Visit every state that can be reached. Raises Broken with the events that lead there."""
    found, seen = Explored(), set[object]()
    first = _taken(case, begin(case.plan, _limits(case)), (), World())
    stack: list[tuple[Node, tuple[Event, ...]]] = [(first, ())]
    while stack:
        node, trace = stack.pop()
        if (key := _key(node)) in seen:
            continue
        seen.add(key)
        found.states += 1
        try:
            _check(case, node)
            if node.task.phase is Phase.ENDED:
                found.ends[type(node.task.error).__name__] += 1
                continue
            for answered, event, now_s in _possible(case, node):
                found.steps += 1
                world = _happened(node.world, event)
                step = handle(node.task, event, now_s)
                _note_transition(found, node.task.phase, event, step[0].phase)
                left = list(node.waiting)
                if answered is not None:
                    left.remove(answered)
                if isinstance(answered, Abandon):
                    ended = set(map(Upload, answered.slots))
                    left = [effect for effect in left if effect not in ended]
                stack.append((_taken(case, step, tuple(left), world), (*trace, event)))
        except (Broken, KeyError, IndexError) as error:
            raise Broken(f"{error!r} after {[str(event) for event in trace]}") from error
    return found


def _limits(case: Case) -> CopyLimits:
    return CopyLimits(case.uploads_ahead, LATE_S / 2, bool(case.groups))


def _note_transition(found: Explored, before: Phase, event: Event, after: Phase) -> None:
    if isinstance(event, StopRequested):
        return
    key = before, name_of(event)
    if after not in LEADS_TO[key]:
        raise Broken(f"{before} leads to {after} on {key[1]}, which the table does not have")
    found.transitions.add((key, after))


def _taken(case: Case, step: Step, waiting: tuple[Effect, ...], world: World) -> Node:
    """The node behind a step: quiet effects take hold at once."""
    task, effects = step
    left = list(waiting)
    for effect in effects:
        world = _started(case, world, effect, task)
        if not isinstance(effect, Release | DiscardAttempt | Block | BreakUpGroup):
            left.append(effect)
    return Node(task, tuple(left), world)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


def _started(case: Case, world: World, effect: Effect, task: CopyTask) -> World:
    match effect:
        case Release(slots):
            _require(world.open.issuperset(slots), f"{effect} closes what is not open")
            _require(world.begun.isdisjoint(slots), f"{effect} closes a file that is being uploaded")
            return replace(world, open=world.open.difference(slots))
        case Block(slot):
            _require(slot in world.open, f"{effect} closes what is not open")
            return replace(world, open=world.open - {slot})
        case DiscardAttempt(slots):
            _require_discardable(world, slots)
            return replace(world, open=world.open.difference(slots), gone=world.gone.union(slots))
        case Abandon(slots, discards):
            _require(world.open.issuperset(slots), f"{effect} closes what is not open")
            is_kept = task.is_stopping or isinstance(task.error, BrokerUnavailable)
            _require(discards != is_kept, f"{effect} though uploads are {'kept' if is_kept else 'of no use'}")
            if discards:
                _require_discardable(world, slots)
                return replace(world, gone=world.gone.union(slots))
            return world
        case BreakUpGroup():
            return replace(world, broken_up=True)
        case Upload(slot):
            _require(
                slot in world.open and slot not in world.sent, f"{effect} of what is not prepared, or sent already"
            )
            _require(not task.is_stopping, f"{effect} is begun though the process stops")
            _require(
                len(world.begun) < max(case.uploads_ahead, 1), f"{effect} is more than {case.uploads_ahead} at once"
            )
            return replace(world, begun=world.begun | {slot}, sent=world.sent | {slot})
        case Prepare(slot):
            _require(not task.is_stopping, f"{effect} is begun though the process stops")
            _require(slot not in world.open, f"{effect} opens a file twice")
            return world
        case AppendCommit(slots):
            _require(world.confirmed == slots, f"{effect} without a confirmed leadership")
            _require(
                world.open.issuperset(slots) and world.begun.isdisjoint(slots), f"{effect} of what is not uploaded"
            )
            _require(world.gone.isdisjoint(slots), f"{effect} of what was discarded")
            _require_leads(world.facts, effect, world.copies)
            return _with_fate(replace(world, confirmed=()), slots, "in flight")
        case RecordLoss():
            _require(not world.open and not world.begun, f"{effect} while segments are under way")
            return world
        case _:
            return world


def _require_leads(facts: PartitionFacts | None, append: AppendCommit, copies: frozenset[int]) -> None:
    if facts is None:
        raise Broken(f"{append} without confirmed facts")
    end_offset = (append.slots[-1] + 1) * SIZE
    is_ours = facts.leads and facts.leader_epoch == LEADS.leader_epoch
    _require(is_ours and facts.stable_end_offset >= end_offset, f"{append} without leadership")
    start_offset = facts.cluster_start_offset or 0
    is_whole = copies.isdisjoint(append.slots) or start_offset <= append.slots[0] * SIZE
    _require(is_whole, f"{append} of copies from which records were deleted")


def _require_discardable(world: World, slots: tuple[int, ...]) -> None:
    """The rule of the archive: objects are removed only where it is proven that no commit names them."""
    for slot, fate in world.fate:
        _require(slot not in slots or fate == "refused", f"slot {slot} is discarded, and its commit is {fate}")


def _happened(world: World, event: Event) -> World:
    match event:
        case Answered(Prepare(slot), Prepared(lost)):
            is_lost = lost is not None and lost[0] == SEGMENTS[slot].base_offset
            return replace(world, open=world.open | {slot}, lost=world.lost | ({slot} if is_lost else set()))
        case Answered(TakeCopies(), slots):
            return replace(world, copies=world.copies | slots)
        case Answered(Upload(slot)) | StepFailed(Upload(slot)):
            return replace(world, begun=world.begun - {slot})
        case Answered(ConfirmLeadership(slots), facts):
            return replace(world, confirmed=slots, facts=facts)
        case Answered(AppendCommit(slots)):
            world = replace(world, committed=(*world.committed, slots), open=world.open.difference(slots))
            return _with_fate(world, slots, "stored")
        case CommitLost(AppendCommit(slots)):
            return _with_fate(world, slots, "another's")
        case CommitUnknown(AppendCommit(slots)):
            return _with_fate(world, slots, "unknown")
        case CommitRefused(AppendCommit(slots)):
            return _with_fate(world, slots, "refused")
        case StepFailed(AppendCommit(slots)):
            return replace(world, fate=tuple(row for row in world.fate if row[0] not in slots))
        case Answered(Abandon(slots)):
            return replace(world, open=world.open.difference(slots), begun=world.begun.difference(slots))
        case _:
            return world


def _with_fate(world: World, slots: tuple[int, ...], fate: str) -> World:
    others = tuple(row for row in world.fate if row[0] not in slots)
    return replace(world, fate=(*others, *((slot, fate) for slot in slots)))


def _check(case: Case, node: Node) -> None:
    task, world = node.task, node.world
    slots = [slot for unit in world.committed for slot in unit]
    _require(slots == sorted(set(slots)), f"commits are not in the order of offsets: {world.committed}")
    for first, size in case.groups:
        group = tuple(range(first, first + size))
        touched = [unit for unit in world.committed if set(unit) & set(group)]
        _require(world.broken_up or touched in ([], [group]), f"a group was committed in parts: {world.committed}")
    kinds = Counter(type(effect).__name__ for effect in node.waiting)
    commits = kinds["ConfirmLeadership"] + kinds["AppendCommit"] + kinds["RecordLoss"]
    asked = kinds["Prepare"] + kinds["FindGroup"] + kinds["TakeCopies"]
    _require(commits <= 1 and asked <= 1, f"two of a kind at once: {node.waiting}")
    if task.phase is not Phase.ENDED:
        _require(bool(node.waiting), "nothing is under way, and the task has not ended")
        return
    _require(not node.waiting, f"it has ended, and {node.waiting} is under way")
    _require(not world.open and not world.begun, f"it has ended with open files: {world.open}, uploads: {world.begun}")
    is_kept = task.is_stopping or isinstance(task.error, BrokerUnavailable)
    left = world.sent - world.gone - {slot for slot, _ in world.fate}
    _require(is_kept or not left, f"uploads are left that are not discarded: {left}")
    refused = {slot for slot, fate in world.fate if fate == "refused"} - world.gone
    _require(not refused, f"uploads are left whose commit was refused: {refused}")
    is_whole = task.error is None and not task.is_stopping and task.reason is None
    if is_whole and not task.left:
        _require(
            set(slots) | world.lost == set(range(case.segments)),
            f"it has ended well without slots {set(range(case.segments)) - set(slots)}",
        )


def _possible(case: Case, node: Node) -> Iterator[tuple[Effect | None, Event, float]]:
    if case.stops and not node.task.is_stopping:
        yield None, StopRequested(), EARLY_S
    for effect in node.waiting:
        for event in _answers(case, effect, node.task):
            yield effect, event, EARLY_S
            if case.time_runs_out:
                yield effect, event, LATE_S


def _answers(case: Case, effect: Effect, task: CopyTask) -> Iterator[Event]:
    yield from (Answered(effect, result) for result in _results(case, effect, task.archive or ARCHIVE))
    if isinstance(effect, Abandon):
        return
    if task.is_stopping and isinstance(effect, FindGroup | Prepare | TakeCopies):
        yield NotBegun()
    for error in case.errors:
        if isinstance(effect, AppendCommit):
            yield from (CommitLost(effect, error), CommitRefused(effect, error), CommitUnknown(effect, error))
        yield StepFailed(effect, error)


def _results(case: Case, effect: Effect, archive: PartitionState) -> Iterator[object]:
    match effect:
        case OpenArchive():
            yield ARCHIVE
            yield replace(ARCHIVE, highest_leader_epoch=9)
        case RecordLoss() | AppendCommit():
            yield archive
        case FindGroup(slot):
            yield dict(case.groups).get(slot, 0)
        case Prepare(slot):
            yield Prepared()
            if case.losses:
                segment = SEGMENTS[slot]
                yield Prepared(lost=(segment.base_offset, segment.end_offset))
                yield Prepared(lost=(segment.base_offset + 1, segment.end_offset))
                yield Prepared(blocked=OpenTransaction(segment.base_offset, 1, segment.base_offset, 1000))
        case TakeCopies(slots):
            yield frozenset(slots)
            yield frozenset(slots[:1])
        case Upload(slot):
            yield SEGMENTS[slot].end_offset
        case ConfirmLeadership():
            yield from (FACTS[name] for name in case.facts)
        case SettleAttempts() | CheckContinuity() | Abandon():
            yield None
        case _:
            raise Broken(f"{effect} has no answer")


def _key(node: Node) -> object:
    task, world = node.task, node.world
    window = tuple(
        (
            unit.slots,
            unit.is_group,
            unit.queued,
            unit.uploading,
            _said(unit.failed),
        )
        for unit in task.window
    )
    return (
        task.phase,
        task.next_slot,
        task.asking,
        task.prepared,
        task.group_size,
        task.copies,
        window,
        _name(task.committing),
        task.loss,
        (task.is_closed, task.is_stopping, len(task.left), task.recheck_in_ms),
        (task.reason, _said(task.error), task.unprepared),
        tuple(sorted(map(_name, node.waiting))),
        world,
    )


def _said(error: SidecarError | None) -> tuple[type, str] | None:
    """Not the object: where one was freed, another one may have its id."""
    return None if error is None else (type(error), str(error))


@cache
def _name(effect: Effect | None) -> str:
    return "" if effect is None else str(effect)
