"""What holds for every compaction, whatever its input: idempotence, independence of splits, what readers are left with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_state.replay import CompletedTransaction
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.bodies.records import read_records
from tests.compaction.engine import DAY_MS, compact
from tests.compaction.partitions import Partition, partition_of
from tests.compaction.reference.ranks import sort_key
from tests.compaction.reference.values import ReferenceSegment
from tests.oracle.log_shape import CLEANER
from tests.oracle.random_batches import VERSION_HEADER
from tests.oracle.random_segments import random_log

PLAIN = replace(CLEANER, transactions=False, compacted_before=False)


def random_partition(seed: int, *, transactions: bool = False) -> tuple[Partition, int]:
    shape = replace(PLAIN, transactions=transactions, legacy=seed % 4 == 0, open_transactions=False)
    log = random_log(seed, shape)
    return partition_of([(segment.base_offset, segment.log, log.now_ms) for segment in log.segments]), log.now_ms


def rules_at(now_ms: int, seed: int) -> CompactionRules:
    return CompactionRules(now_ms, strategy=list(Strategy)[seed % 3], header=VERSION_HEADER)


@pytest.mark.parametrize("seed", range(24))
def test_what_was_compacted_stays_as_it_is(seed: int) -> None:
    partition, now_ms = random_partition(seed)
    rules, producers = rules_at(now_ms, seed), partition.last_batches(now_ms)
    results, logs = compact(partition.segments, rules, partition, last_batches=producers)
    again = [
        ReferenceSegment(result.base_offset, result.end_offset, log, now_ms)
        for result, log in zip(results, logs, strict=True)
    ]
    repeated, same = compact(again, rules, partition, last_batches=producers)
    assert same == logs
    assert all(result.unchanged for result in repeated)


@pytest.mark.parametrize("seed", range(24))
def test_the_result_does_not_depend_on_how_the_input_is_split_or_hashed(seed: int) -> None:
    partition, now_ms = random_partition(seed, transactions=True)
    rules, producers = rules_at(now_ms, seed), partition.last_batches(now_ms)
    decided = partition.decided
    _, expected = compact(decided, rules, partition, last_batches=producers)
    for split_bytes in (1, 300, 1000):
        assert compact(decided, rules, partition, last_batches=producers, split_bytes=split_bytes)[1] == expected
    exact = replace(rules, exact_keys=True)
    assert compact(decided, exact, partition, last_batches=producers, slots=1024)[1] == expected


@pytest.mark.parametrize("seed", range(12))
def test_a_clock_that_jumps_takes_no_value(seed: int) -> None:
    """Backwards, to the beginning and to the end of time, round after round: only tombstones and markers may go sooner."""
    partition, now_ms = random_partition(seed, transactions=True)
    held = list(partition.decided)
    producers = partition.last_batches(now_ms)
    values: list[set[tuple[int, bytes | None, bytes | None]]] = []
    for clock_ms in (now_ms, now_ms - 10 * DAY_MS, 2**63 - 1, 0, now_ms + 400 * DAY_MS):
        results, logs = compact(held, rules_at(clock_ms, seed), partition, last_batches=producers)
        held = [
            ReferenceSegment(result.base_offset, result.end_offset, log, clock_ms % 2**40)
            for result, log in zip(results, logs, strict=True)
        ]
        records = [record for log in logs for record in all_records(log) if record.control is None]
        values.append({(record.offset, record.key, record.value) for record in records if record.value is not None})
    assert values == values[:1] * 5


@pytest.mark.parametrize("seed", range(0, 24, 2))
def test_a_reader_to_the_end_has_the_same_table(seed: int) -> None:
    """Also a read_committed one: both sides are read with what transactions aborted."""
    log = random_log(seed, replace(CLEANER, compacted_before=False, delete_horizons=False, open_transactions=False))
    partition = partition_of([(segment.base_offset, segment.log, 0) for segment in log.segments])
    rolled = partition.rolled
    for strategy in Strategy:
        rules = CompactionRules(log.now_ms, strategy=strategy, header=VERSION_HEADER)
        if not rolled:
            continue
        results, logs = compact(rolled, rules, partition, last_batches=partition.last_batches(log.now_ms))
        kept = tuple(found for result in results for found in result.transactions)
        unread = tuple(found for found in partition.aborted if found.last_offset >= rolled[-1].end_offset)
        before = table_of([segment.log for segment in rolled], rules, partition.aborted)
        unchanged = {
            found
            for result in results
            if result.unchanged
            for found in partition.aborted
            if result.base_offset <= found.last_offset < result.end_offset
        }
        assert table_of(logs, rules, (*kept, *unread, *unchanged)) == before


def table_of(
    logs: list[bytes], rules: CompactionRules, aborted: tuple[CompletedTransaction, ...]
) -> dict[bytes, tuple[int, bytes | None]]:
    table: dict[bytes, Record] = {}
    for record in (record for log in logs for record in all_records(log)):
        hidden = record.transactional and any(
            found.producer_id == record.producer_id and found.first_offset <= record.offset < found.last_offset
            for found in aborted
        )
        if record.control is None and record.key is not None and not hidden:
            table[record.key] = max(record, table.get(record.key, record), key=lambda found: sort_key(found, rules))
    return {key: (found.offset, found.value) for key, found in table.items()}


def all_records(log: bytes) -> list[Record]:
    at, found = 0, []
    while at < len(log):
        size = int.from_bytes(log[at + 8 : at + 12]) + 12
        found += read_records(log[at : at + size])
        at += size
    return found
