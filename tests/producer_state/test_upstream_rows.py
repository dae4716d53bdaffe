"""The scenarios of Kafka's ProducerStateManagerTest, by their names, under the rules of replication."""

from __future__ import annotations

import pytest

from producer_state.digest import SegmentDigest, apply
from producer_state.facts import BatchProblem
from producer_state.replay import CompletedTransaction, replay
from producer_state.snapshot import ProducerEntry
from producer_state.table import Expiration, ProducerTable
from tests.producer_state.random_logs import SEQUENCES, Batch, data, digest_batches, empty_control, facts_of, marker

PID = 1
MAX = SEQUENCES - 1


def replayed(*batches: Batch, on: ProducerTable | None = None) -> tuple[ProducerTable, list[CompletedTransaction]]:
    """Replay, and see that a digest of the same batches gives the same."""
    start = on if on is not None else ProducerTable.blank()
    table, completed = replay(start, facts_of(batches))
    digest = digest_batches(facts_of(batches), start.end_offset, table.end_offset)
    assert apply(start, digest) == table
    return table, list(completed)


def entry_after(*batches: Batch) -> ProducerEntry:
    entry = replayed(*batches)[0].get(PID)
    assert entry is not None
    return entry


def reloaded(table: ProducerTable) -> ProducerTable:
    return ProducerTable.from_snapshot(table.end_offset, table.to_snapshot())


def test_57_producer_sequence_wrap_around() -> None:
    assert entry_after(data(735, PID, sequence=MAX)).last_sequence == MAX
    assert entry_after(data(735, PID, sequence=MAX), data(1235, PID, sequence=0)).last_sequence == 0


def test_58_producer_sequence_with_wrap_around_batch_record() -> None:
    entry = entry_after(data(2000, PID, sequence=MAX - 10, count=21))
    assert (entry.last_sequence, entry.last_offset, entry.offset_delta) == (9, 2020, 20)


def test_59_no_validation_on_first_entry_when_loading_log() -> None:
    assert entry_after(data(0, PID, epoch=5, sequence=16)) == ProducerEntry(PID, 5, 16, 0, 0, 0)


def test_60_append_txn_marker_with_no_producer_state() -> None:
    assert entry_after(marker(27, PID, epoch=2)) == ProducerEntry(PID, 2, last_timestamp_ms=0, coordinator_epoch=0)


def test_61_control_record_bumps_producer_epoch() -> None:
    entry = entry_after(data(0, PID, epoch=0, txn=True), marker(1, PID, epoch=1, abort=True))
    assert entry == ProducerEntry(PID, 1, last_timestamp_ms=0, coordinator_epoch=0)


def test_62_update_producer_transaction_state() -> None:
    batches = [data(9, PID), data(16, PID, sequence=1, count=5, txn=True), data(26, PID, sequence=6, count=5, txn=True)]
    assert entry_after(*batches).current_txn_first_offset == 16
    table, completed = replayed(*batches, marker(40, PID, coordinator=15, ts=20))
    assert completed == [CompletedTransaction(PID, 16, 40, 41, aborted=False)]
    assert table.entries() == (ProducerEntry(PID, 0, 10, 30, 4, 20, 15),)


def test_63_non_transactional_append_with_ongoing_transaction() -> None:
    open_transaction, plain = data(0, PID, txn=True), data(1, PID, sequence=1)
    with pytest.raises(BatchProblem, match="offset 1, producer 1: a batch outside of transactions") as found:
        replay(ProducerTable.blank(), facts_of([open_transaction, plain]))
    assert (found.value.producer_id, found.value.offset) == (PID, 1)
    before, _ = replayed(open_transaction)
    with pytest.raises(BatchProblem, match="offset 1, producer 1: a batch outside of transactions"):
        apply(before, digest_batches(facts_of([plain]), 1, 2))


def test_64_recover_from_snapshot_unfinished_transaction() -> None:
    table, _ = replayed(data(0, PID, sequence=0, txn=True), data(1, PID, sequence=1, txn=True))
    assert reloaded(table).entries() == (ProducerEntry(PID, 0, 1, 1, 0, 0, -1, 0),)


def test_65_recover_from_snapshot_finished_transaction() -> None:
    batches = [data(0, PID, sequence=0, txn=True), data(1, PID, sequence=1, txn=True), marker(2, PID, abort=True)]
    assert reloaded(replayed(*batches)[0]).entries() == (ProducerEntry(PID, 0, 1, 1, 0, 0, 0),)


def test_66_recover_from_snapshot_empty_transaction() -> None:
    table, completed = replayed(marker(0, PID, abort=True, ts=77))
    assert completed == []
    assert reloaded(table).entries() == (ProducerEntry(PID, 0, last_timestamp_ms=77, coordinator_epoch=0),)


def test_67_producer_state_after_fencing_abort_marker() -> None:
    table, _ = replayed(data(0, PID, ts=10, txn=True), marker(1, PID, epoch=1, abort=True, ts=900))
    (entry,) = table.unexpired(Expiration(now_ms=1000, window_ms=200)).entries()
    assert (entry.last_offset, entry.producer_epoch) == (-1, 1)


def test_68_remove_expired_pids_on_reload() -> None:
    table, _ = replayed(data(0, PID, ts=0), data(1, 2, ts=1))
    assert [entry.producer_id for entry in reloaded(table).unexpired(Expiration(1000, 1000)).entries()] == [2]


def test_69_accept_append_with_sequence_gaps_on_replica() -> None:
    assert entry_after(data(0, PID, sequence=0), data(1, PID, sequence=3)).last_sequence == 3


def test_70_pid_expiration_timeout_and_producers_with_ongoing_transactions_dont_expire() -> None:
    table, _ = replayed(data(0, PID, ts=0), data(1, 2, ts=0, txn=True))
    assert [entry.producer_id for entry in table.unexpired(Expiration(1001, 1000)).entries()] == [2]


def test_71_first_undecided_offset() -> None:
    steps = [data(99, 1, txn=True), data(105, 2, txn=True)]
    table, completed = replayed(*steps)
    assert (table.first_open_transaction_offset(), completed) == (99, [])
    steps.append(marker(109, 1))
    table, completed = replayed(*steps)
    assert table.first_open_transaction_offset() == 105
    assert [(found.first_offset, found.last_offset) for found in completed] == [(99, 109)]
    table, completed = replayed(*steps, marker(112, 2, abort=True))
    assert table.first_open_transaction_offset() is None
    assert [(found.first_offset, found.last_offset) for found in completed] == [(99, 109), (105, 112)]


def test_72_last_stable_offset_completed_txn() -> None:
    batches = [data(offset, producer_id, txn=True) for offset, producer_id in ((10, 1), (20, 2), (30, 3))]
    _, completed = replayed(*batches, marker(40, 1), marker(41, 3), marker(42, 2))
    assert [found.last_stable_offset for found in completed] == [20, 20, 43]


def test_72_a_snapshot_may_list_open_transactions_in_any_order_of_offsets() -> None:
    entries = [ProducerEntry(1, 0, 0, 50, 0, 0, -1, 50), ProducerEntry(2, 0, 0, 10, 0, 0, -1, 10)]
    entries.append(ProducerEntry(3, 0, 0, 30, 0, 0, -1, 30))
    start = ProducerTable.from_entries(60, entries)
    _, completed = replayed(marker(60, 2), marker(61, 3), marker(62, 1), on=start)
    assert [found.last_stable_offset for found in completed] == [30, 50, 63]


def test_73_skip_empty_transactions() -> None:
    table, completed = replayed(
        data(16, PID, count=5, txn=True), marker(21, PID), marker(22, PID), marker(23, PID, abort=True),
        data(24, PID, count=4, txn=True), marker(28, PID, abort=True), marker(29, PID, abort=True),
        data(30, PID, count=2, txn=True),
    )  # fmt: skip
    assert [(found.first_offset, found.last_offset, found.aborted) for found in completed] == [
        (16, 21, False),
        (24, 28, True),
    ]
    assert table.first_open_transaction_offset() == 30


def test_76_append_empty_control_batch() -> None:
    table, completed = replayed(empty_control(0, PID, epoch=4, ts=9))
    assert (table.entries(), completed) == ((ProducerEntry(PID),), [])
    assert len(table.unexpired(Expiration(0, None))) == 0
    known, _ = replayed(data(0, PID, txn=True), empty_control(1, PID, epoch=4, ts=9))
    assert known.entries() == (ProducerEntry(PID, 0, 0, 0, 0, 0, -1, 0),)


def test_78_without_new_batches_the_snapshot_is_the_same() -> None:
    """testSkipSnapshotIfOffsetUnchanged: a broker writes none; ours would have the same bytes."""
    table, _ = replayed(data(0, PID))
    assert apply(table, SegmentDigest.empty(1, 9)).to_snapshot() == table.to_snapshot()


def test_80_coordinator_fencing() -> None:
    batches = [marker(offset, PID, coordinator=epoch) for offset, epoch in enumerate((1, 1, 2, 1))]
    stored = [entry_after(*batches[: count + 1]).coordinator_epoch for count in range(4)]
    assert stored == [1, 1, 2, 1]


def test_the_epoch_follows_the_log_downwards() -> None:
    entry = entry_after(data(0, PID, epoch=5, sequence=8), data(1, PID, epoch=3, sequence=2, ts=6))
    assert entry == ProducerEntry(PID, 3, 2, 1, 0, 6)
    assert entry_after(data(0, PID, epoch=5), marker(1, PID, epoch=3)).last_offset == -1


def test_batches_without_sequence_keep_their_offsets() -> None:
    assert entry_after(data(0, PID, sequence=-1, count=2)) == ProducerEntry(PID, 0, -1, 1, 1, 0)


def test_the_timestamp_is_the_last_one_not_the_largest() -> None:
    assert entry_after(data(0, PID, ts=90), data(1, PID, ts=-1)).last_timestamp_ms == -1


def test_compacted_batches_count_in_full() -> None:
    assert entry_after(Batch(5, 9, 0, PID, 0, 100, 7)) == ProducerEntry(PID, 0, 104, 9, 4, 7)
