"""Rows 80b: each hole of a window alone. The last segment is the window, those below it are old."""

from __future__ import annotations

from dataclasses import dataclass, field

from producer_state.digest import SegmentDigest, apply
from producer_state.holes import answer, questions_of
from producer_state.snapshot import ProducerEntry
from producer_state.table import ProducerTable
from tests.producer_state.logs_in_memory import EXPIRATION, FRESH, OLD, a_log, full_replay
from tests.producer_state.random_logs import RandomLog, data, digest_batches, marker


@dataclass
class Below:
    """A `LogBelow` over batches, which remembers what was read."""

    log: RandomLog
    tables: dict[int, ProducerTable] = field(default_factory=dict)
    read: list[int] = field(default_factory=list)

    def table(self, offset: int) -> ProducerTable | None:
        return self.tables.get(offset)

    def next_digest(self) -> SegmentDigest | None:
        below = self.log.segments()[: -1 - len(self.read)]
        if not below:
            return None
        base, end = below[-1]
        self.read.append(base)
        return digest_batches(self.log.between(base, end), base, end)

    def state(self, later_markers: set[int]) -> ProducerTable:
        """At the end of the window."""
        base, end = self.log.segments()[-1]
        window = digest_batches(self.log.between(base, end), base, end)
        return apply(answer(self, questions_of([window], base, [end], later_markers), base).table, window)


def through_window(below: Below, later_markers: set[int] | None = None) -> ProducerEntry | None:
    state = below.state(later_markers or set()).unexpired(EXPIRATION)
    assert state == full_replay(below.log, below.log.boundaries[-1]).unexpired(EXPIRATION)
    return state.get(7)


def test_80b_h1_the_coordinator_of_an_older_marker() -> None:
    log = a_log([marker(0, 7, coordinator=3, ts=OLD)], [data(1, 7, ts=FRESH, txn=True)])
    assert through_window(Below(log)) == ProducerEntry(7, 0, 0, 1, 0, FRESH, 3, 1)


def test_80b_h2_a_transaction_begun_before_the_window() -> None:
    log = a_log([data(0, 7, ts=OLD, txn=True)], [data(1, 7, sequence=1, ts=FRESH, txn=True)])
    assert through_window(Below(log)) == ProducerEntry(7, 0, 1, 1, 0, FRESH, -1, 0)


def test_80b_h3_the_batch_before_a_marker_of_the_same_epoch() -> None:
    log = a_log([data(0, 7, sequence=9, ts=OLD, txn=True)], [marker(1, 7, ts=FRESH)])
    assert through_window(Below(log)) == ProducerEntry(7, 0, 9, 0, 0, FRESH, 0)


def test_80b_h3_a_batch_of_another_epoch_ends_the_search() -> None:
    log = a_log(
        [data(0, 7, epoch=1, ts=OLD, txn=True)],
        [data(1, 7, epoch=0, ts=OLD, txn=True)],
        [marker(2, 7, epoch=1, ts=FRESH)],
    )
    below = Below(log)
    assert through_window(below) == ProducerEntry(7, 1, last_timestamp_ms=FRESH, coordinator_epoch=0)
    assert below.read == [1]


def test_80b_h4_an_open_transaction_of_a_producer_that_is_silent_in_the_window() -> None:
    log = a_log([marker(0, 7, coordinator=2, ts=5), data(1, 7, sequence=4, ts=5, txn=True)], [data(2, 8, ts=FRESH)])
    assert through_window(Below(log), later_markers={7}) == ProducerEntry(7, 0, 4, 1, 0, 5, 2, 1)


def test_80b_h4_a_marker_before_the_window_says_that_nothing_is_open() -> None:
    below = Below(a_log([data(0, 7, ts=5, txn=True)], [marker(1, 7, ts=5)], [data(2, 8, ts=FRESH)]))
    assert through_window(below, later_markers={7}) is None
    assert below.read == [1]


def test_an_idempotent_producer_does_not_send_the_scan_backwards() -> None:
    below = Below(a_log([data(0, 7, ts=OLD)], [data(1, 7, sequence=1, ts=FRESH)]))
    assert through_window(below) == ProducerEntry(7, 0, 1, 1, 0, FRESH)
    assert below.read == []


def test_the_scan_ends_at_a_snapshot() -> None:
    log = a_log([data(0, 9, ts=5)], [data(1, 7, ts=5, txn=True)], [data(2, 7, sequence=1, ts=FRESH, txn=True)])
    below = Below(log, {1: ProducerTable.from_entries(1, [ProducerEntry(7, 0, 8, 0, 0, 4, 6, 0)])})
    assert below.state(set()).get(7) == ProducerEntry(7, 0, 1, 2, 0, FRESH, 6, 0)
    assert below.read == [1]


def test_an_empty_snapshot_does_not_end_the_scan() -> None:
    log = a_log([data(0, 7, ts=5, txn=True)], [data(1, 9, ts=5)], [data(2, 8, ts=FRESH)])
    below = Below(log, {1: ProducerTable.blank(1)})
    assert below.state({7}).get(7) == ProducerEntry(7, 0, 0, 0, 0, 5, -1, 0)
