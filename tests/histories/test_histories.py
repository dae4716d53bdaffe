"""A sample of random histories, all that ever found something, and that the rules do fire."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.archive.coverage import Hole
from sidecar.archive.keys import Lineage
from sidecar.archive.state import empty_state
from sidecar.commits import attempts
from sidecar.compaction.rules import CompactionRules
from sidecar.compactor.archive import finishing
from sidecar.retention import deleted_records
from sidecar.rewriting import run as run_compaction
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.histories.archive_view import ArchiveView
from tests.histories.broker import CLUSTER_ID, PARTITION, TOPIC_ID, BrokerPartition, LogShape
from tests.histories.checker import Checker, Uncompacted
from tests.histories.faults import Fault
from tests.histories.findings import Finding
from tests.histories.history import (
    HOUR_MS,
    Append,
    Collect,
    Compact,
    HideCommit,
    History,
    LoseFile,
    Meanwhile,
    NewLeader,
    Restore,
    Settings,
    Step,
    Undo,
    Upload,
    random_history,
)
from tests.histories.minimise import finding_of, minimised
from tests.histories.plain_log import Batch
from tests.histories.regressions import REGRESSIONS
from tests.histories.run import World, run

SAMPLE = int(os.environ.get("HISTORIES", "40"))
AT_ONCE = 20


@pytest.mark.parametrize("first", range(1, SAMPLE + 1, AT_ONCE))
def test_random_histories_break_no_rule(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        found = finding_of(random_history(seed))
        assert found is None, f"seed {seed}: {found}; make histories SEED={seed} HISTORIES=1 minimises it"


@pytest.mark.parametrize("name", REGRESSIONS)
def test_what_once_broke_a_rule_breaks_none(name: str) -> None:
    run(REGRESSIONS[name])


def test_a_history_runs_the_same_way_each_time() -> None:
    first, second = (
        run(REGRESSIONS["deleted-before-grace: gc measured ages by a clock that was two days ahead"]) for _ in "ab"
    )
    assert first == second
    assert first.trace


PLAIN = History(7, Settings(), (Append(1, 3, rolls=True), Append(2, 3, rolls=True), Upload(), Compact(), Restore()))


def tampering(change: Callable[[World], None], monkeypatch: pytest.MonkeyPatch) -> Finding:
    """What is found where this is done to the world before each compaction."""
    compact = World._compact

    def changed(world: World, step: Compact) -> None:
        change(world)
        compact(world, step)

    monkeypatch.setattr(World, "_compact", changed)
    found = finding_of(PLAIN)
    assert found is not None
    return found


def segment_log(world: World) -> str:
    return next(key for key in world.store.objects if key.endswith(".log"))


def commit(world: World) -> str:
    return next(key for key in world.store.objects if "/commits/" in key)


def forget_producers(world: World) -> None:
    world.checker._boundaries.clear()
    for producers in world.broker.boundaries.values():
        producers.clear()


@pytest.mark.parametrize(
    ("rule", "change", "damage"),
    [
        ("live-object-missing", lambda world: world.store.objects.pop(segment_log(world)), "missing_object"),
        (
            "live-object-damaged",
            lambda world: world.store.damage(segment_log(world), lambda body: body[:-1]),
            "size_mismatch",
        ),
        ("commit-changed", lambda world: world.store.damage(commit(world), lambda body: body + b" "), "commit_log"),
        ("came-back", lambda world: world.checker.present.clear(), ""),
        ("producer-state", forget_producers, ""),
    ],
)
def test_the_rules_fire(
    rule: str,
    change: Callable[[World], None],
    damage: str,
    monkeypatch: pytest.MonkeyPatch,
    expect_damage: Callable[[str], None],
) -> None:
    if damage:
        expect_damage(damage)
    assert tampering(change, monkeypatch).rule == rule


@pytest.mark.parametrize(
    "later",
    [NewLeader(), Compact((Fault("Crash"),)), Upload((Fault("Crash"),)), HideCommit()],
    ids=lambda step: type(step).__name__,
)
def test_a_silent_loss_is_found_whatever_follows(later: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that nobody logs stays one when a process dies or begins after it."""
    for module in (deleted_records, attempts):
        monkeypatch.setattr(module, "committed_events", lambda *_given: ())
    begun = (*(Append(seed, 1, rolls=True) for seed in range(1, 6)), LoseFile(1), Upload())
    found = finding_of(History(1, Settings(LogShape(transactions=False)), (*begun, later)))
    assert found is not None
    assert found.rule == "silent-loss"


def test_a_gap_is_too_narrow_only_for_more_markers_than_lost_offsets(tmp_path: Path) -> None:
    """Else a refused restore is a finding."""
    clock = ManualClock(0)
    broker = BrokerPartition(tmp_path, clock, LogShape())
    view = ArchiveView(
        MemoryStore(clock),
        state=replace(empty_state(Lineage(CLUSTER_ID, PARTITION, TOPIC_ID)), holes=(Hole(4, 5, "lost"),)),
    )
    checker = Checker(view, broker, Settings())
    for number, offset in enumerate((0, 1, 2)):
        broker.log.add(Batch(offset, offset + 1, b"", producer_id=number, epoch=0, transaction=number))
    broker.log.add(Batch(3, 4, b"", producer_id=0, epoch=0, commits=True))
    assert checker.is_too_narrow(2, 4, 4, 5)
    assert not checker.is_too_narrow(3, 4, 4, 5), "only two are open there"
    assert not checker.is_too_narrow(1, 4, 4, 5), "one marker fits"
    assert not checker.is_too_narrow(2, 3, 3, 4), "nothing is lost there"


def test_a_finding_is_made_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction that forgets a record is found, and of the history stays what is needed for that."""
    actions = finishing._actions

    def forgets(request: object, sources: object, replaced: object, added: object) -> object:
        raise ValueError("odd data")

    assert finding_of(PLAIN) is None
    monkeypatch.setattr(finishing, "_actions", forgets)
    found = finding_of(PLAIN)
    assert found is not None
    assert found.rule == "untyped-error"
    noisy = History(7, Settings(), (*PLAIN.steps, Upload((Fault("StoreDenied"),)), Restore()))
    assert len(minimised(noisy, found.rule, 60).steps) == 1
    monkeypatch.setattr(finishing, "_actions", actions)


UNDONE = (*PLAIN.steps[:4], Undo())
ALL_WAS_GONE = Uncompacted(frozenset(), frozenset(), None, {})


def test_an_undo_brings_back_what_was_before_the_compaction() -> None:
    """The checker compares; that it does so is what the next test shows."""
    assert finding_of(replace(PLAIN, steps=UNDONE)) is None


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("live-again", lambda world: setattr(world.done, "undos", -1)),
        ("came-back", lambda world: world.checker._held.clear()),
        ("not-undone", lambda world: setattr(world.checker, "_uncompacted", ALL_WAS_GONE)),
    ],
)
def test_the_rules_of_an_undo_fire(rule: str, change: Callable[[World], None], monkeypatch: pytest.MonkeyPatch) -> None:
    undo = World._undo

    def changed(world: World, step: Undo) -> None:
        change(world)
        undo(world, step)

    monkeypatch.setattr(World, "_undo", changed)
    found = finding_of(replace(PLAIN, steps=UNDONE))
    assert found is not None
    assert found.rule == rule


def test_a_compaction_of_run_commits_nothing_once_another_leads() -> None:
    """By hand nobody asks, and it commits."""
    commits = [
        run(
            replace(PLAIN, steps=(*PLAIN.steps[:3], Compact(meanwhile=Meanwhile(5, NewLeader()), is_by_hand=by_hand)))
        ).errors
        for by_hand in (False, True)
    ]
    assert commits == [{"Fenced": 1}, {}]


def test_gc_runs_on_a_stale_listing() -> None:
    """The listing lacks new commits and segments; the probe by which gc reads the clock is there."""
    figures = run(replace(PLAIN, steps=(*PLAIN.steps[:4], Collect(is_stale=True))))
    assert not figures.errors


LEGACY = "record-lost: of the model, which gave tombstones of magic 0 and 1 a delete horizon and asked the clock"
BEHIND_A_GAP = (
    "record-lost: of the model, which let a tombstone's time begin late where a gap hides how its transaction ended"
)


def test_a_legacy_tombstone_that_goes_before_its_file_is_old_enough_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an hour of retention the same history has to keep it: all files are of about the same time."""
    history = REGRESSIONS[LEGACY]
    history = replace(history, settings=replace(history.settings, delete_retention_ms=HOUR_MS))
    assert finding_of(history) is None
    monkeypatch.setattr(run_compaction, "legacy_tombstones_kept", lambda segments, *_: [False] * len(segments))
    found = finding_of(history)
    assert found is not None
    assert found.rule == "record-lost"


def test_a_legacy_tombstone_that_the_first_compaction_takes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without any retention: nothing is clean then."""
    monkeypatch.setattr(run_compaction, "legacy_tombstones_kept", lambda segments, *_: [False] * len(segments))
    found = finding_of(REGRESSIONS[LEGACY])
    assert found is not None
    assert found.rule == "record-lost"


def test_a_tombstone_that_goes_before_its_horizon_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compacted twice within its hour."""
    history = REGRESSIONS[BEHIND_A_GAP]
    history = replace(history, steps=(*history.steps, Append(5, 2, rolls=True), Upload(), Compact(is_by_hand=True)))
    assert finding_of(history) is None
    monkeypatch.setattr(CompactionRules, "horizons_passed_ms", property(lambda rules: rules.now_ms + 2 * HOUR_MS))
    found = finding_of(history)
    assert found is not None
    assert found.rule == "record-lost"
