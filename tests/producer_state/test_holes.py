"""Rows 80b: each hole of a window alone. Two segments, the first one old, the second in the window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from producer_state.digest import HAS_MARKER, digest_batches
from producer_state.holes import markers_of
from producer_state.snapshot import ProducerEntry, write_snapshot
from tests.producer_state.logs_in_memory import EXPIRATION, FRESH, OLD, LogInMemory, a_log, full_replay, one
from tests.producer_state.random_logs import (
    data,
    facts_of,
    marker,
)


def through_window(log: LogInMemory, **more: set[int]) -> ProducerEntry | None:
    state = one(log, log.log.boundaries[-1], **({"later_markers": set()} | more))
    assert state.windowed
    assert state.start_offset == log.log.boundaries[-2]
    expected = full_replay(log.log, log.log.boundaries[-1]).unexpired(EXPIRATION)
    assert state.unexpired() == expected
    return state.unexpired().get(7)


def test_80b_h1_the_coordinator_of_an_older_marker() -> None:
    log = a_log([marker(0, 7, coordinator=3, ts=OLD)], [data(1, 7, ts=FRESH, txn=True)])
    assert through_window(log) == ProducerEntry(7, 0, 0, 1, 0, FRESH, 3, 1)


def test_80b_h2_a_transaction_begun_before_the_window() -> None:
    log = a_log([data(0, 7, ts=OLD, txn=True)], [data(1, 7, sequence=1, ts=FRESH, txn=True)])
    assert through_window(log) == ProducerEntry(7, 0, 1, 1, 0, FRESH, -1, 0)


def test_80b_h3_the_batch_before_a_marker_of_the_same_epoch() -> None:
    log = a_log([data(0, 7, sequence=9, ts=OLD, txn=True)], [marker(1, 7, ts=FRESH)])
    assert through_window(log) == ProducerEntry(7, 0, 9, 0, 0, FRESH, 0)


def test_80b_h3_a_batch_of_another_epoch_ends_the_search() -> None:
    log = a_log(
        [data(0, 7, epoch=1, ts=OLD, txn=True)],
        [data(1, 7, epoch=0, ts=OLD, txn=True)],
        [marker(2, 7, epoch=1, ts=FRESH)],
    )
    assert through_window(log) == ProducerEntry(7, 1, last_timestamp_ms=FRESH, coordinator_epoch=0)
    assert log.read == [2, 1]


def test_80b_h4_an_open_transaction_of_a_producer_that_is_silent_in_the_window() -> None:
    log = a_log([marker(0, 7, coordinator=2, ts=5), data(1, 7, sequence=4, ts=5, txn=True)], [data(2, 8, ts=FRESH)])
    assert through_window(log, later_markers={7}) == ProducerEntry(7, 0, 4, 1, 0, 5, 2, 1)


def test_80b_h4_a_marker_before_the_window_says_that_nothing_is_open() -> None:
    log = a_log([data(0, 7, ts=5, txn=True)], [marker(1, 7, ts=5)], [data(2, 8, ts=FRESH)])
    assert through_window(log, later_markers={7}) is None
    assert log.read == [2, 1]


def test_an_idempotent_producer_does_not_send_the_scan_backwards() -> None:
    log = a_log([data(0, 7, ts=OLD)], [data(1, 7, sequence=1, ts=FRESH)])
    assert through_window(log) == ProducerEntry(7, 0, 1, 1, 0, FRESH)
    assert log.read == [1]


def test_the_scan_ends_at_a_trusted_snapshot() -> None:
    log = a_log([data(0, 9, ts=5)], [data(1, 7, ts=5, txn=True)], [data(2, 7, sequence=1, ts=FRESH, txn=True)])
    log.snapshots[2] = full_replay(log.log, 2).to_snapshot()
    log.snapshots[1] = b"cut off"
    later = one(log, 3, later_markers=set())
    assert (later.from_snapshot, later.start_offset) == (True, 2)  # at the window's start it is simply taken
    log = replace(log, snapshots={1: write_snapshot([ProducerEntry(7, 0, 8, 0, 0, 4, 6, 0)])}, read=[])
    state = one(log, 3, later_markers=set())
    assert log.read == [2, 1]
    assert state.table.get(7) == ProducerEntry(7, 0, 1, 2, 0, FRESH, 6, 0)


def test_an_empty_snapshot_does_not_end_the_scan() -> None:
    log = a_log([data(0, 7, ts=5, txn=True)], [data(1, 9, ts=5)], [data(2, 8, ts=FRESH)])
    log.snapshots[1] = write_snapshot([])
    assert one(log, 3, later_markers={7}).table.get(7) == ProducerEntry(7, 0, 0, 0, 0, 5, -1, 0)


def test_markers_of_digests() -> None:
    digest = digest_batches(facts_of([data(0, 7, txn=True), marker(1, 7), data(2, 8)]), 0, 3)
    assert markers_of([digest]) == {7}
    assert np.count_nonzero(digest.rows["flags"] & HAS_MARKER) == 1
