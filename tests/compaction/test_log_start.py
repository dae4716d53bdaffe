"""Records below the log start take part in no decision, wherever the log start cuts the log."""

from __future__ import annotations

from random import Random

import pytest

from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.codecs import Codec
from sidecar.logformat.bodies.legacy import build_legacy_message, build_legacy_wrapper
from sidecar.logformat.bodies.record import Record
from tests.compaction.engine import compact
from tests.compaction.partitions import partition_of
from tests.compaction.reference.batches import decode_segment
from tests.compaction.reference.cleaning import clean
from tests.compaction.reference.values import ReferenceSegment
from tests.compaction.test_laws import random_partition, rules_at


@pytest.mark.parametrize("seed", range(24))
def test_a_log_start_anywhere_gives_what_the_reference_says(seed: int) -> None:
    partition, now_ms = random_partition(seed, transactions=seed % 2 == 1)
    decided, rules, producers = partition.rolled, rules_at(now_ms, seed // 4), partition.last_batches(now_ms)
    if not decided:
        return
    first, end = decided[0].base_offset, decided[-1].end_offset
    for start_offset in sorted(Random(seed).sample(range(first, end), min(6, end - first))):
        results, logs = compact(
            decided, rules, partition, last_batches=producers, start_offset=start_offset, split_bytes=700
        )
        expected = clean(
            decided,
            rules,
            groups=[len(result.sources) for result in results],
            last_batches=producers,
            aborted=partition.aborted,
            log_start_offset=start_offset,
        )
        assert logs == [group.log for group in expected.groups]


def record(offset: int, key: bytes, timestamp_ms: int) -> Record:
    return Record(offset, timestamp_ms, key, b"v%d" % offset)


STRADDLING = {
    "batch": lambda records: build_batch(records),
    "compressed batch": lambda records: build_batch(records, codec=Codec.GZIP),
    "messages of magic 1": lambda records: b"".join(
        build_legacy_message(r.offset, r.key, r.value, magic=1, timestamp_ms=r.timestamp_ms) for r in records
    ),
    "wrapper of magic 1": lambda records: build_legacy_wrapper(records, codec=Codec.GZIP),
    "wrapper of magic 0": lambda records: build_legacy_wrapper(records, codec=Codec.GZIP, magic=0),
    "wrapper of an old cleaner": lambda records: build_legacy_wrapper(records, codec=Codec.GZIP, nested_magic=0),
}

UNTIMED = {"wrapper of magic 0", "wrapper of an old cleaner"}
"""Messages of magic 0 have no timestamp."""


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("form", list(STRADDLING))
def test_the_records_of_one_batch_are_distinguished_by_their_offsets(form: str, strategy: Strategy) -> None:
    """The deleted record of each key is the newest by its timestamp."""
    records = [record(offset, b"k%d" % (offset % 4), 10_000 - offset) for offset in range(100, 108)]
    log = STRADDLING[form](records) + build_batch([record(108, b"last", 0)])
    (columns,) = scan_bytes(log)
    segment = ReferenceSegment(100, 109, log, 0)
    rules = CompactionRules(20_000, strategy=strategy, header="v")
    for start_offset in range(100, 109):
        _, (after,) = compact([segment], rules, partition_of([(100, log, 0)]), start_offset=start_offset)
        kept = [found.offset for batch in decode_segment(after) for found in batch.records]
        alive = [found for found in (*records, record(108, b"last", 0)) if found.offset >= start_offset]
        assert kept == plain_winners(alive, strategy, knows_times=form not in UNTIMED), start_offset
    assert len(columns) >= 2


def plain_winners(records: list[Record], strategy: Strategy, *, knows_times: bool) -> list[int]:
    """What a dictionary says; without a version in any header that strategy falls back to the offset."""
    best: dict[bytes | None, Record] = {}
    for found in records:
        old = best.get(found.key)
        by_time = strategy is Strategy.TIMESTAMP and knows_times
        if old is None or not by_time or found.timestamp_ms >= old.timestamp_ms:
            best[found.key] = found
    return sorted(found.offset for found in best.values())
