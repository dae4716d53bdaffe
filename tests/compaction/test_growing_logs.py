"""A log that grows is compacted again and again while time passes: what brokers and readers must still find in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from producer_state.replay import replay
from producer_state.table import Expiration, ProducerTable
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.logformat.batches import scan_bytes
from tests.compaction.engine import DAY_MS, compare
from tests.compaction.partitions import partition_of
from tests.compaction.reference.batches import decode_segment
from tests.compaction.reference.values import ReferenceSegment
from tests.compaction.test_laws import table_of
from tests.oracle.log_shape import CLEANER
from tests.oracle.random_batches import VERSION_HEADER
from tests.oracle.random_segments import random_log

SEEDS = range(int(os.environ.get("CONFORMANCE_LOGS", "40")))
NEW = replace(CLEANER, compacted_before=False, delete_horizons=False)
HOUR_MS = 3_600_000


@pytest.mark.parametrize("seed", SEEDS)
def test_a_growing_log_keeps_its_producers_its_transactions_and_its_records(seed: int) -> None:
    """Some segments are first compacted alone, as before their upload."""
    random = Random(seed)
    log = random_log(seed, replace(NEW, segments=(3, 8), legacy=seed % 4 == 1))
    whole = partition_of([(segment.base_offset, segment.log, log.now_ms) for segment in log.segments])
    known, held, now_ms = ProducerTable.blank(), list[ReferenceSegment](), log.now_ms - random.choice((0, DAY_MS))
    for number, segment in enumerate(whole.rolled, start=1):
        for columns in scan_bytes(segment.log):
            known, _ = replay(known, columns.facts())
        now_ms += random.choice((1, HOUR_MS, 6 * HOUR_MS))
        known = known.unexpired(Expiration(now_ms, DAY_MS))
        rules = CompactionRules(
            now_ms,
            strategy=list(Strategy)[seed % 3],
            header=VERSION_HEADER,
            delete_retention_ms=HOUR_MS,
            segment_bytes=random.choice((700, 3000, 1_000_000)),
        )
        before, by_itself = [*held, segment], replace(whole, table=known, segments=(segment,))
        if random.random() < 0.3:
            (segment,) = compare(by_itself, replace(rules, spares_deletes=True), active=False, slots=1024)
        held = compare(replace(by_itself, segments=(*held, segment)), rules, active=False, slots=1024)
        check_producers(known, held)
        rest = [(found.base_offset, found.log, 0) for found in (*held, *whole.segments[number:])]
        loaded = partition_of(rest)
        assert loaded.table.open_transactions() == whole.table.open_transactions()
        expected = table_of([found.log for found in before], rules, whole.aborted)
        found = table_of([found.log for found in held], rules, loaded.aborted)
        assert values_in(found) == values_in(expected)


def check_producers(known: ProducerTable, held: Sequence[ReferenceSegment]) -> None:
    """A broker that loads the log without snapshots knows the last batch of each, or the markers of its epoch are there."""
    loaded = partition_of([(segment.base_offset, segment.log, 0) for segment in held]).table
    for entry in known.entries():
        if entry.last_offset >= 0:
            found = loaded.get(entry.producer_id)
            assert found is not None
            assert (found.producer_epoch, found.last_sequence) == (entry.producer_epoch, entry.last_sequence)
            assert (found.last_offset, found.offset_delta) == (entry.last_offset, entry.offset_delta)
        else:
            batches = (batch for segment in held for batch in decode_segment(segment.log) if batch.is_control)
            own = [batch for batch in batches if batch.producer_id == entry.producer_id]
            assert entry.producer_epoch in {batch.producer_epoch for batch in own}


def values_in(table: dict[bytes, tuple[int, bytes | None]]) -> dict[bytes, tuple[int, bytes | None]]:
    """Without keys that are deleted: their tombstones go sooner or later."""
    return {key: found for key, found in table.items() if found[1] is not None}
