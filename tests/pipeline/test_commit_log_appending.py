"""Appending to a commit log in a store that fails, lies, and has other writers."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from sidecar.archive.actions import Add, AdoptTopicId, Lost
from sidecar.archive.commit import Writer
from sidecar.clock import ManualClock
from sidecar.errors import (
    CommitRefused,
    CoverageHole,
    Fenced,
    OutcomeUnknown,
    StoreDenied,
    StoreUnsafe,
)
from sidecar.pipeline.commit_log import CommitConflict, CommitLog
from tests.archive.builders import LINEAGE, NAMELESS, WRITER, a_segment
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.pipeline.commit_logs import a_log, filled


@pytest.mark.parametrize(
    "kind", [FaultKind.UNAVAILABLE, FaultKind.LOST_REQUEST, FaultKind.LOST_ANSWER], ids=lambda kind: kind.name
)
def test_an_unknown_outcome_is_settled_by_reading_back(kind: FaultKind) -> None:
    store = MemoryStore(faults=[Fault("put_if_absent", 1, kind)])
    state = filled(store, 3)
    assert (state.next_number, state.end_offset) == (3, 300)
    assert a_log(store).read() == state


def test_an_answer_lost_to_another_writers_commit_is_a_conflict() -> None:
    store = MemoryStore()
    state = filled(store, 1)
    other = a_log(store).append

    def overtake(operation: str, key: str) -> None:
        if operation == "put_if_absent":
            store.before = lambda operation, key: None
            other([Add(a_segment(100, 150, "other"))], WRITER, state)

    store.before = overtake
    store.faults = [Fault("put_if_absent", 1, FaultKind.LOST_REQUEST)]
    with pytest.raises(CommitConflict) as caught:
        a_log(store).append([Add(a_segment(100, 200))], WRITER, state)
    assert caught.value.state.end_offset == 150
    assert caught.value.retryable


def test_a_store_that_stays_silent_leaves_the_outcome_unknown() -> None:
    clock = ManualClock()
    store = MemoryStore(clock, faults=[Fault("put_if_absent", nth, FaultKind.LOST_REQUEST) for nth in range(4)])
    with pytest.raises(OutcomeUnknown, match="it is not known whether this object stands") as caught:
        filled(store, 1)
    assert caught.value.retryable
    assert store.objects == {}
    assert 1 < clock.monotonic_s() < 10


def test_a_lower_leader_epoch_is_fenced_before_and_after_the_race() -> None:
    store = MemoryStore()
    stale = filled(store, 2)
    newer = a_log(store).append([Add(a_segment(200))], Writer(2, 6, "new leader"), stale)
    for expected in (stale, newer):
        with pytest.raises(Fenced):
            a_log(store).append([Add(a_segment(200))], WRITER, expected)
    assert a_log(store).read() == newer


def test_a_conflict_carries_the_state_to_decide_on() -> None:
    store = MemoryStore()
    stale = filled(store, 2)
    newer = filled(store, 1)
    with pytest.raises(CommitConflict) as caught:
        a_log(store).append([Add(a_segment(200))], WRITER, stale)
    assert caught.value.state == newer


def test_a_store_that_lies_about_success_is_unsafe() -> None:
    with pytest.raises(StoreUnsafe, match="confirmed the put, but has no such object"):
        filled(MemoryStore(faults=[Fault("put_if_absent", 0, FaultKind.LIE)]), 1)


def test_a_store_that_overwrites_is_unsafe() -> None:
    store = MemoryStore(ignore_if_none_match=True)
    state = filled(store, 1)

    def overtake(operation: str, key: str) -> None:
        if operation == "read":
            store.before = lambda operation, key: None
            a_log(store).append([Add(a_segment(100, 150, "other"))], WRITER, state)

    store.before = overtake
    with pytest.raises(StoreUnsafe, match="If-None-Match"):
        a_log(store).append([Add(a_segment(100, 200))], WRITER, state)


def test_a_store_that_denies_says_so() -> None:
    with pytest.raises(StoreDenied):
        filled(MemoryStore(faults=[Fault("put_if_absent", 0, FaultKind.DENIED)]), 1)


def test_a_confirmed_commit_stands_even_if_it_cannot_be_read_back_now() -> None:
    store = MemoryStore(faults=[Fault("read", 0, FaultKind.UNAVAILABLE)])
    with capture_logs() as logs:
        state = filled(store, 1)
    assert logs[0]["event"] == "put_not_read_back"
    assert a_log(store).read() == state


@pytest.mark.parametrize(
    ("actions", "error"),
    [
        ([], CommitRefused),
        ([Add(a_segment(500))], CoverageHole),
        ([Add(a_segment(0, name="again"))], CommitRefused),
        ([Lost(100, 200, "x" * 5000)], CommitRefused),
        ([Lost(100, 200, "\ud800")], CommitRefused),
        ([Add(a_segment(100, max_timestamp_ms=2**70))], CommitRefused),
        ([Lost(100 + number, 101 + number, "y" * 4000) for number in range(4500)], CommitRefused),
    ],
    ids=["empty", "hole", "overlap", "long", "surrogate", "range", "large"],
)
def test_what_could_not_be_read_back_is_never_written(actions: list[Add | Lost], error: type[Exception]) -> None:
    store = MemoryStore()
    state = filled(store, 1)
    with pytest.raises(error):
        a_log(store).append(actions, WRITER, state)
    assert a_log(store).read() == state


def test_a_nameless_lineage_adopts_an_id() -> None:
    store = MemoryStore()
    log = CommitLog(store, NAMELESS.root, store.clock)
    state = log.append([Add(a_segment(0))], WRITER, log.read())
    state = log.append([AdoptTopicId(LINEAGE.incarnation), Add(a_segment(100))], WRITER, state)
    assert log.read().topic_id == LINEAGE.incarnation


def test_time_never_goes_back_in_the_log() -> None:
    clock = ManualClock(5000)
    store = MemoryStore(clock)
    state = filled(store, 1)
    clock.advance_ms(-3000)
    state = a_log(store).append([Add(a_segment(100))], WRITER, state)
    assert state.last_committed_at_ms == 5000
