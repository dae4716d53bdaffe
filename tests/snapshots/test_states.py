"""Rows 80a, 80e, 80f and expiry: the state at a boundary, by a full replay and by a window. See test_window_replay.py, too."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_state.replay import replay
from producer_state.snapshot import ProducerEntry
from producer_state.table import SKEW_MARGIN_MS, Expiration
from sidecar.snapshots import Replay
from sidecar.snapshots.jobs import Forgetting, StateAt, Stopped
from sidecar.snapshots.planning import plan_job
from sidecar.snapshots.starts import StartKind
from tests.producer_state.logs_in_memory import EXPIRATION, FRESH, OLD, a_log, full_replay
from tests.producer_state.random_logs import NOW_MS, WINDOW_MS, RandomLog, data, empty_control, marker, random_log
from tests.snapshots.test_window_replay import LogInMemory, events_of, states_of

FORGETTING = Forgetting(NOW_MS, WINDOW_MS, NOW_MS)


def by_full_replay(log: RandomLog, *wanted: int) -> list[StateAt]:
    return states_of(LogInMemory(log), wanted, Replay.FULL, FORGETTING)


def by_window(log: RandomLog, wanted: int) -> StateAt:
    """A snapshot at the log's end names the transactions that are open there."""
    end = log.boundaries[-1]
    witness = full_replay(log, end).unexpired(EXPIRATION).to_snapshot()
    (state,) = states_of(LogInMemory(log, {end: witness}), [wanted], Replay.WINDOW, FORGETTING)
    assert state.start is not None
    assert (state.start.kind, state.refused) == (StartKind.WINDOW, "")
    return state


# --- 80a


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_80a_every_boundary_comes_out_of_one_reading(seed: int, mixed: bool) -> None:
    log = random_log(seed, segments=12, mixed=mixed)
    source = LogInMemory(log)
    states = states_of(source, log.boundaries[1:], Replay.FULL, FORGETTING)
    assert [state.table for state in states] == [full_replay(log, boundary) for boundary in log.boundaries[1:]]
    assert source.read == [base for base, _ in log.segments()]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.data())
def test_80a_producers_that_mix_may_only_lose_their_coordinator(seed: int, cleaned: bool, draw: st.DataObject) -> None:
    log = random_log(seed, segments=12, cleaned=cleaned, mixed=True)
    wanted = draw.draw(st.lists(st.sampled_from(log.boundaries[1:]), min_size=1, unique=True))
    end = log.boundaries[-1]
    source = LogInMemory(log, {end: full_replay(log, end).unexpired(EXPIRATION).to_snapshot()})
    states = states_of(source, wanted, Replay.WINDOW, FORGETTING)
    assert [state.table.end_offset for state in states] == sorted(wanted)
    for state in states:
        assert state.start is not None
        ours, theirs = state.table.unexpired(EXPIRATION), full_replay(log, state.table.end_offset).unexpired(EXPIRATION)
        facts = log.between(state.start.offset, state.table.end_offset)
        # A control batch that compaction emptied says nothing of its producer.
        tells = (facts.attributes & 0x10 != 0) & ((facts.attributes & 0x20 == 0) | (facts.record_count > 0))
        in_transactions = set(facts.producer_id[tells].tolist())
        assert len(ours) == len(theirs)
        for our, their in zip(ours.entries(), theirs.entries(), strict=True):
            forgotten = our.producer_id not in in_transactions and our.coordinator_epoch == -1
            assert our == (replace(their, coordinator_epoch=-1) if forgotten else their)


def test_timestamps_need_not_ascend() -> None:
    """The window begins below the old segment, at the young one."""
    log = a_log([data(0, 6, ts=5)], [data(1, 7, ts=FRESH)], [data(2, 8, ts=5)], [data(3, 9, ts=FRESH)])
    state = by_window(log, 4)
    assert state.start is not None
    assert state.start.offset == 1
    assert [entry.producer_id for entry in FORGETTING.snapshot_table(state).entries()] == [7, 9]


# --- 80e, 80f


def test_80e_a_boundary_in_an_offset_gap() -> None:
    log = a_log([data(0, 7, ts=FRESH)], [data(20, 7, sequence=1, ts=FRESH)], bases=(0, 10), end=30)
    states = by_full_replay(log, 10, 30)
    assert [state.table.end_offset for state in states] == [10, 30]
    assert [state.table.get(7) for state in states] == [
        ProducerEntry(7, 0, 0, 0, 0, FRESH),
        ProducerEntry(7, 0, 1, 20, 0, FRESH),
    ]
    assert not any(state.exact for state in states)


def test_80e_an_empty_segment_changes_nothing() -> None:
    log = a_log([data(0, 7, ts=FRESH)], [], [data(10, 7, ts=FRESH)], bases=(0, 1, 10))
    before, after = by_full_replay(log, 1, 10)
    assert before.table.to_snapshot() == after.table.to_snapshot()


def test_80f_a_transaction_open_at_the_boundary_and_aborted_after_it() -> None:
    log = a_log([data(0, 7, ts=5, txn=True)], [data(1, 8, ts=FRESH)], [marker(2, 7, abort=True, ts=FRESH)])
    middle = FORGETTING.snapshot_table(by_window(log, 2))
    assert middle.get(7) == ProducerEntry(7, 0, 0, 0, 0, 5, -1, 0)
    assert middle.first_open_transaction_offset() == 0
    _, completed = replay(middle, log.between(2, 3))
    assert [(found.first_offset, found.last_offset, found.aborted) for found in completed] == [(0, 2, True)]


# --- expiry, and what a broker would refuse too


@pytest.mark.parametrize(("window_ms", "known"), [(WINDOW_MS, [2, 4, 6]), (None, [1, 2, 3, 4, 6])])
def test_expired_producers_are_left_out_unless_a_transaction_is_open(window_ms: int | None, known: list[int]) -> None:
    batches = [data(0, 1, ts=OLD), data(1, 2, ts=OLD + 1), data(2, 3, ts=-1), data(3, 4, ts=OLD, txn=True)]
    log = a_log([*batches, empty_control(4, 5), data(5, 6, ts=NOW_MS * 9)])
    (state,) = by_full_replay(log, 6)
    written = Forgetting(NOW_MS, window_ms, NOW_MS).snapshot_table(state)
    assert [entry.producer_id for entry in written.entries()] == known


def test_margins_only_ever_keep_more() -> None:
    expiration = Forgetting(NOW_MS, WINDOW_MS).expiration(NOW_MS + 1)
    assert expiration == Expiration(NOW_MS - SKEW_MARGIN_MS, WINDOW_MS + SKEW_MARGIN_MS)
    assert Forgetting(NOW_MS, None).expiration(NOW_MS).keeps(-1)


def test_a_batch_that_a_broker_would_refuse_stops_the_replay_at_its_segment() -> None:
    log = a_log([data(0, 7, txn=True)], [data(1, 8)], [data(2, 7, sequence=1)], [data(3, 8)])
    source = LogInMemory(log)
    events = events_of(source, plan_job(source, log.boundaries[1:], Replay.FULL, FORGETTING))
    tables = [event.table.end_offset for event in events if isinstance(event, StateAt)]
    (stopped,) = (event for event in events if isinstance(event, Stopped))
    assert (tables, stopped.offset, stopped.resumes_at) == ([1, 2], 2, None)
    assert "offset 2, producer 7" in stopped.reason


def test_no_boundaries_are_no_work() -> None:
    assert plan_job(LogInMemory(a_log([data(0, 7)])), [], Replay.WINDOW, FORGETTING).tasks == ()
