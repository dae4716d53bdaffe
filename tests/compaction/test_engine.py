"""The native stages against the reference: the same bytes, for every strategy, format, split and table size."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from sidecar.compaction.rules import CompactionRules, LegacyFormat
from sidecar.compaction_strategy import Strategy
from tests.compaction.engine import DAY_MS, compare
from tests.compaction.partitions import Partition, partition_of
from tests.compaction.reference.batches import decode_segment
from tests.oracle.log_shape import CLEANER
from tests.oracle.random_batches import VERSION_HEADER
from tests.oracle.random_segments import random_log

SEEDS = range(int(os.environ.get("CONFORMANCE_LOGS", "48")))


def rules_for(seed: int, now_ms: int) -> CompactionRules:
    """All strategies and choices in turn."""
    return CompactionRules(
        now_ms,
        strategy=list(Strategy)[seed % 3],
        header=VERSION_HEADER,
        delete_retention_ms=(0, DAY_MS)[seed % 2],
        segment_bytes=(700, 3000, 1_000_000)[seed // 3 % 3],
        legacy_format=list(LegacyFormat)[seed // 2 % 2],
        exact_keys=seed % 5 == 0,
        kafka_4_3=seed % 7 == 0,
    )


def random_partition(seed: int) -> tuple[Partition, int]:
    """A partition of a random log, and the log's time."""
    log = random_log(seed, replace(CLEANER, legacy=seed % 3 == 1, cleanable=False))
    partition = partition_of([(segment.base_offset, segment.log, log.now_ms) for segment in log.segments])
    return partition, log.now_ms


@pytest.mark.parametrize("seed", SEEDS[: len(SEEDS) // 2])
def test_parts_of_random_logs_that_spare_deletes_give_the_bytes_of_the_reference(seed: int) -> None:
    partition, now_ms = random_partition(seed)
    segments = partition.rolled
    rules = replace(rules_for(seed, now_ms + 3 * DAY_MS), spares_deletes=True)
    for begin in range(len(segments)):
        held = replace(partition, segments=(*segments[begin:], partition.segments[-1]))
        outputs = compare(held, rules, split_bytes=(200, 1 << 26)[seed % 2], slots=1024, apart=seed % 4 > 1)
        left = [batch for output in outputs for batch in decode_segment(output.log)]
        markers = {
            batch.last_offset
            for segment in segments[begin:]
            for batch in decode_segment(segment.log)
            if batch.is_control and batch.records
        }
        assert markers <= {batch.last_offset for batch in left if batch.is_control and batch.records}


@pytest.mark.parametrize("seed", SEEDS)
def test_random_logs_give_the_bytes_of_the_reference(seed: int) -> None:
    partition, now_ms = random_partition(seed)
    segments = partition.rolled
    for later_ms in (0, 3 * DAY_MS):
        held = replace(partition, segments=(*segments, partition.segments[-1]))
        rules = rules_for(seed, now_ms + later_ms)
        outputs = compare(held, rules, split_bytes=(200, 1 << 26)[seed % 2], slots=1024, apart=seed % 4 > 1)
        assert len(outputs) <= len(segments)
