"""A sample of schedules, that the same seed does the same, and that known bugs are found."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sidecar.archive import continuity
from sidecar.commits import continuity as commits_continuity
from sidecar.model import ObjectKey
from tests.simulation.clocks import SimClock, VirtualTime
from tests.simulation.cluster import LogShape
from tests.simulation.drawing import random_schedule
from tests.simulation.findings import Finding
from tests.simulation.known_bugs import KNOWN_BUGS, Bug
from tests.simulation.minimise import finding_of, minimised
from tests.simulation.regressions import REGRESSIONS
from tests.simulation.run import lived, run, simulating
from tests.simulation.schedule import (
    Append,
    Clean,
    Compact,
    DeleteRecords,
    Retention,
    Roll,
    Round,
    Schedule,
    Shrink,
    UncleanLeader,
    Wait,
)
from tests.simulation.shares import SHARE, several
from tests.simulation.sizes import entries_kept
from tests.simulation.store import SimStore

SAMPLE = int(os.environ.get("SCHEDULES", "10000"))


@pytest.fixture(autouse=True, scope="module")
def _simulating() -> Iterator[None]:
    """Once for all schedules: setting up takes nearly as long as running one."""
    with simulating():
        yield


@pytest.mark.parametrize("first", range(1, SAMPLE + 1, SHARE))
def test_random_schedules_break_no_rule(first: int) -> None:
    _, found = several(range(first, first + SHARE))
    assert not found, f"make simulate SEED={found[0][0]} SCHEDULES=1 minimises the first one"


@pytest.mark.parametrize("name", REGRESSIONS)
def test_what_was_once_found_is_not_found_again(name: str) -> None:
    assert finding_of(REGRESSIONS[name]) is None


def test_the_store_forgets_the_facts_of_a_damaged_object() -> None:
    store, key = SimStore(SimClock(VirtualTime())), ObjectKey("orders")
    store.put_if_absent(key, b"sound")
    facts = store.head(key)
    sound = store.take_away(key)
    store.give_back(key, b"wrong", sound[1])
    assert store.head(key) != facts
    store.give_back(key, *sound)
    assert store.head(key) == facts


def test_a_schedule_runs_the_same_way_each_time() -> None:
    for seed in range(1, 6):
        first, second = (run(random_schedule(seed)) for _ in "ab")
        assert first == second
        assert first.trace


def test_another_seed_runs_another_way() -> None:
    assert len({run(random_schedule(seed)).trace for seed in range(1, 6)}) == 5


def test_what_is_rolled_is_archived() -> None:
    figures = run(Schedule(1, (Append(1, 9), Round())))
    assert figures.segments >= 3
    assert figures.commits >= figures.segments


def _kept_after(turns: int, schedule: Schedule) -> list[int]:
    """What sidecars keep after so many segments came and went."""
    archived = (Append(7, 6), Roll(0), Roll(1), Round(), Wait(60_000), Compact(), Round(), Wait(11 * 60_000), Round())
    turn = (*archived, Retention(0, 9), Retention(1, 9), Wait(60_000))
    world = lived(replace(schedule, steps=turn * turns))
    return [entries_kept(sidecar) for sidecar in world.sidecars]


@pytest.mark.parametrize("compacts", [False, True])
def test_what_a_sidecar_keeps_does_not_grow_with_the_archive(*, compacts: bool) -> None:
    schedule = Schedule(1, (), LogShape(transactions=False), compacts=compacts)
    few, many = _kept_after(12, schedule), _kept_after(48, schedule)
    assert max(few) > 20
    assert many == few


@pytest.mark.parametrize("name", KNOWN_BUGS)
def test_a_known_bug_is_found(name: str) -> None:
    bug = KNOWN_BUGS[name]
    with bug.patch():
        found = _first_finding(bug)
    assert found is not None, f"not within {bug.schedules} schedules from seed {bug.first_seed} on"
    assert found.rule == bug.rule


@pytest.mark.parametrize("is_checked", [True, False])
@pytest.mark.parametrize(("cleaned", "batches", "cleaned_later"), [(0, 14, ()), (1, 8, (Clean(1, 0, 9),))])
def test_a_log_that_an_unclean_election_truncated_is_refused_where_cleaners_and_deletions_hide_it(
    *, is_checked: bool, cleaned: int, batches: int, cleaned_later: tuple[Clean, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leader epochs begin above the archive's end. Only the batches below the log start show another leader.

    The cleaner was on the broker that archived, or on the one that leads now.
    """
    if not is_checked:
        monkeypatch.setattr(
            continuity, "_may_be_rewritten", lambda _archived, local, _batch: local.may_be_cleaned or local.is_compacted
        )
    truncated = (
        *(Append(2, 4), Append(1002, 7, lags=True), Roll(0), Shrink(), Append(2002, 3, lags=True)),
        *(Clean(cleaned, 0, 9), Round(), UncleanLeader(), Append(3002, batches), DeleteRecords(0.9)),
        *(*cleaned_later, Round()),
    )
    shape = LogShape(roll_batches=(3, 2), transactions=False, idempotent=False, is_cleaned=True)
    found = finding_of(Schedule(2, truncated, shape))
    assert (None if found is None else found.rule) == (None if is_checked else "appended-to-fork")


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_log_that_differed_is_not_continued_once_all_that_differed_is_deleted(
    *, is_noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rule of the simulation finds that it is: nothing is left that the archive could be compared with."""
    if not is_noted:
        monkeypatch.setattr(commits_continuity, "_note_that_it_differs", lambda *_: None)
    begun = (Append(2, 4), Append(1002, 7, lags=True), Roll(0), Shrink(), Append(2002, 3, lags=True))
    stopped = (*begun, Round(), UncleanLeader(), Append(3002, 20), Round())
    deleted = (Retention(0, 20), Retention(1, 20), Append(4002, 6), Round())
    shape = LogShape(roll_batches=(3, 2), transactions=False, idempotent=False)
    before, after = (
        {key for key in lived(Schedule(2, steps, shape)).store.objects if key.endswith(".log")}
        for steps in (stopped, stopped + deleted)
    )
    assert before
    assert (len(after) == len(before)) == is_noted


def _first_finding(bug: Bug) -> Finding | None:
    seeds = range(bug.first_seed, bug.first_seed + bug.schedules)
    return next((found for seed in seeds if (found := finding_of(random_schedule(seed))) is not None), None)


def test_a_schedule_that_finds_something_is_made_short() -> None:
    bug = KNOWN_BUGS["descriptor-kept"]
    with bug.patch():
        short = minimised(random_schedule(bug.first_seed), bug.rule, tries=60)
        found = finding_of(short)
    assert found is not None
    assert found.rule == bug.rule
    assert len(short.steps) <= 2
