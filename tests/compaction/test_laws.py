"""What holds for every compaction, whatever its input: idempotence, and independence of splits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.compaction.rules import CompactionRules, Strategy
from tests.compaction.engine import DAY_MS, compact
from tests.compaction.partitions import Partition, partition_of
from tests.compaction.reference.values import ReferenceSegment
from tests.compaction.test_strategies import all_records
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


@pytest.mark.parametrize("seed", range(60))
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


@pytest.mark.parametrize("seed", range(60))
def test_the_result_does_not_depend_on_how_the_input_is_split_or_hashed(seed: int) -> None:
    partition, now_ms = random_partition(seed, transactions=True)
    rules, producers = rules_at(now_ms, seed), partition.last_batches(now_ms)
    end = partition.table.first_open_transaction_offset()
    decided = [segment for segment in partition.segments if end is None or segment.end_offset <= end]
    _, expected = compact(decided, rules, partition, last_batches=producers)
    for split_bytes in (1, 300, 1000):
        assert compact(decided, rules, partition, last_batches=producers, split_bytes=split_bytes)[1] == expected
    exact = replace(rules, exact_keys=True)
    assert compact(decided, exact, partition, last_batches=producers, slots=1024)[1] == expected


@pytest.mark.parametrize("seed", range(30))
def test_a_clock_that_jumps_takes_no_value(seed: int) -> None:
    """Backwards, to the beginning and to the end of time, round after round: only tombstones and markers may go sooner."""
    partition, now_ms = random_partition(seed, transactions=True)
    end = partition.table.first_open_transaction_offset()
    held = [segment for segment in partition.segments if end is None or segment.end_offset <= end]
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
