"""Short commit logs are listed in one request, long ones as far as they must be; the state is the same."""

from __future__ import annotations

import pytest

from sidecar.archive.keys import COMMITS, below
from sidecar.commits.commit_log import CommitLog
from sidecar.ports import LISTED_AT_FIRST
from tests.commits.commit_logs import ROOT, a_log, filled, key_of
from tests.fakes.memory_store import MemoryStore


@pytest.mark.parametrize("lists_by_page", [True, False])
@pytest.mark.parametrize(
    ("commits", "checkpoint_every"),
    [
        (0, 100),
        (12, 10),
        (LISTED_AT_FIRST - 1, 100),
        (LISTED_AT_FIRST, 100),
        (LISTED_AT_FIRST - 2, 30),
        (LISTED_AT_FIRST - 1, 30),
        (LISTED_AT_FIRST + 5, 2),
        (2 * LISTED_AT_FIRST, 1),
    ],
)
def test_the_state_is_that_of_the_whole_chain(lists_by_page: bool, commits: int, checkpoint_every: int) -> None:
    store = MemoryStore()
    filled(store, commits, checkpoint_every)
    store.lists_by_page = lists_by_page
    log = a_log(store)
    state = log.read()
    assert state == a_log(store).read_whole_chain()
    assert state.next_number == commits
    assert bool(log.mark(commits - 1)) == bool(commits)
    assert log.newest_checkpoint == max(
        (number for number in range(commits) if _has_checkpoint(store, number)), default=-1
    )


def _has_checkpoint(store: MemoryStore, number: int) -> bool:
    return key_of(number).replace("/commits/", "/checkpoints/") in store.objects


@pytest.mark.parametrize(
    ("commits", "checkpoint_every", "expected"),
    [
        (LISTED_AT_FIRST - 2, 30, ["c"]),
        (LISTED_AT_FIRST + 5, 30, ["c", "commits/"]),
        (2 * LISTED_AT_FIRST, 1, ["c", "checkpoints/", "commits/"]),
    ],
)
def test_no_more_is_listed_than_tells_something(commits: int, checkpoint_every: int, expected: list[str]) -> None:
    store = MemoryStore()
    filled(store, commits, checkpoint_every)
    listed: list[str] = []
    store.before = lambda operation, key: listed.append(key) if operation == "list" else None
    a_log(store).read()
    assert listed == [below(ROOT, folder) for folder in expected]


def test_a_store_whose_listings_are_made_whole_is_not_asked_for_what_lies_beside() -> None:
    """The segments: twice as many as commits."""
    store = MemoryStore()
    filled(store, 12, 10)
    store.lists_by_page = False
    listed: list[str] = []
    store.before = lambda operation, key: listed.append(key) if operation == "list" else None
    CommitLog(store, ROOT, store.clock).read()
    assert listed == [below(ROOT, "checkpoints/"), below(ROOT, COMMITS)]
