"""Rows 80a to 80f, 80b in test_holes.py: state at every boundary, from any start, is the full replay without expired producers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_state.facts import InvalidTxnState
from producer_state.partition_log import Segment
from producer_state.reconstruct import choose_start, reconstruct
from producer_state.replay import replay
from producer_state.snapshot import ProducerEntry, write_snapshot
from producer_state.table import Expiration
from tests.producer_state.logs_in_memory import EXPIRATION, FRESH, OLD, LogInMemory, a_log, full_replay, one
from tests.producer_state.random_logs import (
    NOW_MS,
    WINDOW_MS,
    Batch,
    RandomLog,
    data,
    empty_control,
    facts_of,
    marker,
    random_log,
)


def markers_above(log: RandomLog, offset: int) -> set[int]:
    facts = log.facts
    return set(facts.producer_id[(facts.marker_type >= 0) & (facts.base_offset >= offset)].tolist())


def decided(log: RandomLog) -> RandomLog:
    """The log with every open transaction ended behind its last boundary, as the last stable offset demands."""
    end = log.boundaries[-1]
    open_entries = [entry for entry in full_replay(log, end).entries() if entry.current_txn_first_offset is not None]
    ends = [marker(end + n, entry.producer_id, entry.producer_epoch) for n, entry in enumerate(open_entries)]
    batches = log.batches + tuple(ends)
    return RandomLog(batches, log.boundaries, facts_of(batches))


# --- 80a


@settings(max_examples=600, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from((1, 3, 20)), st.booleans(), st.booleans(), st.data())
def test_80a_window_and_holes_are_the_filtered_full_replay(
    seed: int, producers: int, cleaned: bool, with_time_index: bool, draw: st.DataObject
) -> None:
    log = decided(random_log(seed, producers=producers, segments=12, cleaned=cleaned))
    wanted = draw.draw(st.lists(st.sampled_from(log.boundaries), min_size=1, unique=True))
    source = LogInMemory(log, with_time_index=with_time_index)
    states = list(reconstruct(source, wanted, EXPIRATION, later_markers=markers_above(log, max(wanted))))
    assert [state.end_offset for state in states] == sorted(wanted)
    for state in states:
        assert state.unexpired() == full_replay(log, state.end_offset).unexpired(EXPIRATION)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.data())
def test_80a_producers_that_mix_may_only_lose_their_coordinator(seed: int, cleaned: bool, draw: st.DataObject) -> None:
    log = decided(random_log(seed, segments=12, cleaned=cleaned, mixed=True))
    wanted = draw.draw(st.lists(st.sampled_from(log.boundaries), min_size=1, unique=True))
    for state in reconstruct(LogInMemory(log), wanted, EXPIRATION, later_markers=markers_above(log, max(wanted))):
        expected = full_replay(log, state.end_offset).unexpired(EXPIRATION)
        facts = log.between(min(state.start_offset, state.end_offset), state.end_offset)
        # A control batch that compaction emptied says nothing of its producer.
        tells = (facts.attributes & 0x10 != 0) & ((facts.attributes & 0x20 == 0) | (facts.record_count > 0))
        in_transactions = set(facts.producer_id[tells].tolist())
        assert len(state.unexpired()) == len(expected)
        for ours, theirs in zip(state.unexpired().entries(), expected.entries(), strict=True):
            forgotten = ours.producer_id not in in_transactions and ours.coordinator_epoch == -1
            assert ours == (replace(theirs, coordinator_epoch=-1) if forgotten else theirs)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.data())
def test_80a_from_a_brokers_older_snapshot(seed: int, windowed: bool, draw: st.DataObject) -> None:
    """What the broker had expired when it wrote may be gone, but for coordinator and batch that is no difference."""
    log = decided(random_log(seed, segments=12))
    offset = draw.draw(st.sampled_from(log.boundaries))
    written_at = Expiration(NOW_MS - draw.draw(st.integers(0, 2 * WINDOW_MS)), WINDOW_MS)
    wanted = [boundary for boundary in log.boundaries if boundary >= offset]
    source = LogInMemory(log, {offset: full_replay(log, offset).unexpired(written_at).to_snapshot()})
    later = markers_above(log, wanted[-1]) if windowed else None
    for state in reconstruct(source, wanted, EXPIRATION, later_markers=later):
        expected = full_replay(log, state.end_offset).unexpired(EXPIRATION)
        ours = state.unexpired()
        assert ours.rows["producer_id"].tolist() == expected.rows["producer_id"].tolist()
        for name in ("producer_epoch", "last_timestamp_ms", "current_txn_first_offset"):
            assert ours.rows[name].tolist() == expected.rows[name].tolist()
        known = ours.rows["last_offset"] >= 0
        assert ours.rows["last_sequence"][known].tolist() == expected.rows["last_sequence"][known].tolist()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_every_boundary_comes_out_of_one_reading(seed: int, mixed: bool) -> None:
    log = random_log(seed, segments=12, mixed=mixed)
    source = LogInMemory(log)
    states = list(reconstruct(source, log.boundaries, Expiration(NOW_MS, None)))
    assert [state.table for state in states] == [full_replay(log, boundary) for boundary in log.boundaries]
    assert source.read == [base for base, _ in log.segments()]


def test_without_knowledge_of_later_markers_the_whole_log_is_folded() -> None:
    log = a_log([data(0, 7, ts=5, txn=True)], [data(1, 8, ts=FRESH)])
    state = one(log, 2)
    assert (state.windowed, state.start_offset) == (False, 0)
    assert state.unexpired().get(7) is not None


def test_timestamps_need_not_ascend() -> None:
    log = a_log([data(0, 7, ts=FRESH)], [data(1, 8, ts=5)], [data(2, 9, ts=FRESH)])
    state = one(log, 3, later_markers=set())
    assert state.start_offset == 0
    assert [entry.producer_id for entry in state.unexpired().entries()] == [7, 9]


# --- 80d


def test_80d_an_empty_snapshot_beside_idempotent_data_is_refused() -> None:
    log = a_log([data(0, 7, ts=FRESH)], [data(1, 7, sequence=1, ts=FRESH)])
    log.snapshots[1] = write_snapshot([])
    start = choose_start(log, 1, EXPIRATION, windowed=False)
    assert start.table.end_offset == 0
    assert [refused.offset for refused in start.refused] == [1]
    assert start.refused[0].reason == f"empty, though a producer wrote at {FRESH} ms in [0, 1)"
    assert one(log, 1).table.get(7) == ProducerEntry(7, 0, 0, 0, 0, FRESH)


@pytest.mark.parametrize("batch", [data(0, 7, ts=5), data(0, -1, -1, -1, ts=FRESH)])
def test_80d_an_empty_snapshot_beside_expired_or_plain_data_is_believed(batch: Batch) -> None:
    log = a_log([batch], [data(1, 8, ts=FRESH)])
    log.snapshots[1] = write_snapshot([])
    assert choose_start(log, 2, EXPIRATION, windowed=False).from_snapshot


def test_a_snapshot_above_the_high_watermark_is_refused() -> None:
    log = a_log([data(0, 7)], [data(1, 7)], [data(2, 7)])
    log.snapshots |= {2: write_snapshot([ProducerEntry(7)]), 1: write_snapshot([ProducerEntry(7)])}
    start = choose_start(log, 3, EXPIRATION, windowed=False, high_watermark=1)
    assert start.table.end_offset == 1
    assert start.refused[0].reason == "above the high watermark 1"


@pytest.mark.parametrize("damaged", [b"", write_snapshot([ProducerEntry(7)])[:28], bytes(56)])
def test_75_a_damaged_snapshot_is_passed_over_for_the_one_before(damaged: bytes) -> None:
    """testLoadFromEmpty/Truncated/CorruptSnapshotFile."""
    log = a_log([data(0, 7)], [data(1, 7)], [data(2, 7)])
    log.snapshots |= {2: damaged, 1: full_replay(log.log, 1).to_snapshot()}
    (state,) = reconstruct(log, [3], EXPIRATION)
    assert (state.start_offset, state.from_snapshot) == (1, True)
    assert state.table == full_replay(log.log, 3)


# --- 80e, 80f


def test_80e_a_boundary_in_an_offset_gap() -> None:
    log = a_log([data(0, 7, ts=FRESH)], [data(20, 7, sequence=1, ts=FRESH)], bases=(0, 10), end=30)
    states = list(reconstruct(log, [10, 30], EXPIRATION))
    assert [state.table.get(7) for state in states] == [
        ProducerEntry(7, 0, 0, 0, 0, FRESH),
        ProducerEntry(7, 0, 1, 20, 0, FRESH),
    ]
    assert [state.end_offset for state in states] == [10, 30]
    assert not any(state.exact for state in states)


def test_an_empty_segment_changes_nothing() -> None:
    log = a_log([data(0, 7, ts=FRESH)], [], [data(10, 7, ts=FRESH)], bases=(0, 1, 10))
    before, after = reconstruct(log, [1, 10], EXPIRATION)
    assert before.to_snapshot() == after.to_snapshot()


def test_80f_a_transaction_open_at_the_boundary_and_aborted_after_it() -> None:
    log = a_log([data(0, 7, ts=5, txn=True)], [data(1, 8, ts=FRESH)], [marker(2, 7, abort=True, ts=FRESH)])
    middle = one(log, 2, later_markers={7})
    assert middle.unexpired().get(7) == ProducerEntry(7, 0, 0, 0, 0, 5, -1, 0)
    assert middle.unexpired().first_open_transaction_offset() == 0
    _, completed = replay(middle.table, log.log.between(2, 3))
    assert [(found.first_offset, found.last_offset, found.aborted) for found in completed] == [(0, 2, True)]


# --- expiry and what cannot be answered


def test_expired_producers_are_left_out_unless_a_transaction_is_open() -> None:
    batches = [data(0, 1, ts=OLD), data(1, 2, ts=OLD + 1), data(2, 3, ts=-1), data(3, 4, ts=OLD, txn=True)]
    log = a_log([*batches, empty_control(4, 5), data(5, 6, ts=NOW_MS * 9)])
    (state,) = reconstruct(log, [6], EXPIRATION)
    assert [entry.producer_id for entry in state.unexpired().entries()] == [2, 4, 6]
    (state,) = reconstruct(log, [6], Expiration(NOW_MS, None))
    assert [entry.producer_id for entry in state.unexpired().entries()] == [1, 2, 3, 4, 6]


def test_margins_only_ever_keep_more() -> None:
    with_margins = Expiration.with_margins(NOW_MS, WINDOW_MS, skew_margin_ms=10)
    assert (with_margins.now_ms, with_margins.window_ms) == (NOW_MS - 10, WINDOW_MS + 10)
    assert Expiration.with_margins(NOW_MS, None).keeps(-1)


def test_a_problem_stops_at_its_segment() -> None:
    log = a_log([data(0, 7, txn=True)], [data(1, 8)], [data(2, 7, sequence=1)], [data(3, 8)])
    states = reconstruct(log, [1, 2, 3, 4], EXPIRATION)
    assert [next(states).end_offset, next(states).end_offset] == [1, 2]
    with pytest.raises(InvalidTxnState, match="offset 2, producer 7"):
        next(states)


def test_boundaries_and_segments_must_fit() -> None:
    log = a_log([data(0, 7)], [data(1, 7)])
    with pytest.raises(ValueError, match="no segment begins or ends at 5"):
        list(reconstruct(log, [1, 5], EXPIRATION))
    torn = a_log([data(0, 7)], [data(1, 7)])
    torn.__class__ = type("Torn", (LogInMemory,), {"segments": [Segment(0, 1), Segment(2, 3)]})
    with pytest.raises(ValueError, match="ends at 1, the next begins at 2"):
        list(reconstruct(torn, [3], EXPIRATION))


def test_no_boundaries_are_no_work() -> None:
    log = a_log([data(0, 7)])
    assert list(reconstruct(log, [], EXPIRATION)) == []
    assert log.read == []
