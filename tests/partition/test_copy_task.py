"""A copy task keeps its rules in every order of answers, with every error at every step, and if it is stopped at any moment."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from sidecar.errors import PartitionError
from sidecar.partition import copy_task, effects, events
from sidecar.partition.copy_task import STEPS, CopyTask, Phase, Step
from sidecar.partition.effects import Abandon, AppendCommit, DiscardAttempt, Effect, Upload
from sidecar.partition.events import CommitLost, CommitRefused, CommitUnknown, StepFailed
from tests.partition.exploring import ERRORS, FACTS, Broken, Case, Explored, explore
from tests.partition.steps import LEADS_TO, MEANINGS

CASES = {
    "one segment, every error": Case(1, errors=ERRORS, facts=tuple(FACTS), time_runs_out=True),
    "a hole below": Case(2, hole=True, time_runs_out=True),
    "nothing but a hole": Case(0, hole=True),
    "three one by one": Case(3),
    "three at once": Case(3, uploads_ahead=3, losses=False),
    "three, two at once, with losses": Case(3, uploads_ahead=2, stops=False),
    "a group of two": Case(2, groups=((0, 2),), errors=ERRORS[:3], facts=("leads", "deleted")),
    "a group of one": Case(2, uploads_ahead=2, groups=((0, 1),), facts=("leads",)),
    "a segment, then a group": Case(3, uploads_ahead=2, groups=((1, 2),), facts=("leads",), losses=False),
    "a segment, then a group, every error": Case(2, 2, ((1, 1),), errors=ERRORS, facts=tuple(FACTS)),
    "a group, then a segment": Case(3, 2, ((0, 2),), errors=ERRORS[:4], time_runs_out=True),
    "four, three at once, above a hole": Case(4, 3, hole=True, errors=ERRORS[:2]),
    "two groups": Case(4, 2, ((0, 2), (2, 2)), facts=("leads",), losses=False),
    "a group of three among five": Case(5, 2, ((1, 3),), errors=ERRORS[:2], facts=("leads",)),
}


@cache
def explored(name: str) -> Explored:
    """All orders of a case, as the product takes them."""
    return explore(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_every_order_of_answers_keeps_the_rules(name: str) -> None:
    found = explored(name)
    assert found.states > 10
    assert found.ends["NoneType"] > 0
    assert len(found.ends) > 1


def test_the_table_has_the_transitions_that_happen_and_no_others() -> None:
    taken = set().union(*(explored(name).transitions for name in CASES))
    assert taken == {(key, phase) for key, phases in LEADS_TO.items() for phase in phases}
    answered = {key for key in LEADS_TO if key[1].isidentifier() and not hasattr(events, key[1])}
    assert answered == {(phase, effect.__name__) for phase, effect in STEPS}
    assert set(MEANINGS) == set(Phase) == {phase for phase, _ in STEPS} | {Phase.ENDED}


def test_an_attempt_whose_commit_is_unknown_must_not_be_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug that two reviews found: an error behind the put was taken for proof that nothing is committed."""

    def discards(task: CopyTask, event: StepFailed, now_s: float) -> Step:
        if isinstance(event, CommitUnknown):
            return copy_task._abandon(task, event.error, DiscardAttempt(task.window[0].slots))
        return failed(task, event, now_s)

    won, failed = STEPS[Phase.ARCHIVING, AppendCommit]
    monkeypatch.setitem(STEPS, (Phase.ARCHIVING, AppendCommit), (won, discards))  # type: ignore[arg-type]
    with pytest.raises(Broken, match="its commit is unknown"):
        explore(CASES["three one by one"])


def test_a_commit_without_a_confirmed_leadership_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(task: CopyTask, _now_s: float) -> Step:
        task, effects = commit(task, 0.0)
        if task.committing is None or task.phase is not Phase.ARCHIVING or not effects:
            return task, effects
        append = AppendCommit(task.window[0].slots)
        return replace(task, committing=append), (append,)

    commit = copy_task._start_commit
    monkeypatch.setattr(copy_task, "_start_commit", at_once)
    with pytest.raises(Broken, match="without a confirmed leadership"):
        explore(CASES["three one by one"])


@pytest.mark.parametrize(
    ("name", "what"), [("require_leads", "without leadership"), ("require_none_deleted", "records were deleted")]
)
def test_a_commit_that_the_confirmed_facts_forbid_is_found(
    name: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_task, name, lambda *_given: None)
    with pytest.raises(Broken, match=what):
        explore(CASES["a segment, then a group, every error"])


@pytest.mark.parametrize("discards", [True, False])
def test_uploads_that_are_discarded_or_kept_by_mistake_are_found(
    discards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "Abandon", lambda slots, **_decided: Abandon(slots, discards))
    with pytest.raises(Broken, match="though uploads are"):
        explore(CASES["a segment, then a group, every error"])


def test_a_group_in_parts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_by_one(task: CopyTask, now_s: float) -> Step:
        return uploads(replace(task, group_size=0 if task.copies is not None else task.group_size), now_s)

    uploads = copy_task._start_uploads
    monkeypatch.setattr(copy_task, "_start_uploads", one_by_one)
    with pytest.raises(Broken, match="a group was committed in parts"):
        explore(Case(2, groups=((0, 2),), facts=("leads",), losses=False, stops=False))


def test_an_open_file_at_the_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(task: CopyTask) -> tuple[CopyTask, tuple[Effect, ...]]:
        task, _ = finished(task)
        return task, ()

    finished = copy_task._finished
    monkeypatch.setattr(copy_task, "_finished", forgets)
    with pytest.raises(Broken, match=r"open files|nothing is under way"):
        explore(CASES["a group of two"])


def test_more_uploads_at_once_than_allowed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def eager(task: CopyTask, now_s: float) -> Step:
        return uploads(replace(task, limits=replace(task.limits, uploads_ahead=3)), now_s)

    uploads = copy_task._start_uploads
    monkeypatch.setattr(copy_task, "_start_uploads", eager)
    with pytest.raises(Broken, match="more than 1 at once"):
        explore(Case(2, groups=((0, 2),), facts=("leads",), losses=False, stops=False))


def test_an_answer_that_the_phase_does_not_have_is_an_error() -> None:
    task, _ = copy_task.begin(Case(1).plan, copy_task.CopyLimits(1, 1.0, has_groups=False))
    with pytest.raises(KeyError):
        copy_task.handle(task, CommitUnknown(AppendCommit((0,)), PartitionError("odd")), 0.0)
    assert Upload(1) == Upload(1)


def test_only_a_group_that_is_at_fault_goes_as_it_is_the_next_time() -> None:
    """Another writer that was faster says nothing of the copies: a later plan goes on with their uploads."""
    limits, unit = copy_task.CopyLimits(2, 1.0, has_groups=True), copy_task.Unit((0, 1), is_group=True)
    append, conflict = AppendCommit((0, 1)), PartitionError("another writer made commit 7 first")
    task = CopyTask(Case(2).plan, limits, phase=Phase.ARCHIVING, window=(unit,), committing=append)
    broken_up = {
        type(event): any(isinstance(effect, effects.BreakUpGroup) for effect in copy_task.handle(task, event, 0.0)[1])
        for event in (kind(append, conflict) for kind in (CommitLost, CommitRefused, StepFailed))
    }
    assert broken_up == {CommitLost: False, CommitRefused: True, StepFailed: True}
