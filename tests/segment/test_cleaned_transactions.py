"""Random logs with transactions: a part is archived, a cleaner works on the log as Kafka's does, and the rest is archived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from producer_state.replay import CompletedTransaction
from producer_state.table import ProducerTable
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rules import CompactionRules
from tests.compaction.reference.cleaning import clean
from tests.compaction.reference.values import ReferenceSegment
from tests.runner.archives import compact_one, only_state, use
from tests.segment.made_logs import NOW_MS
from tests.segment.test_markers_that_the_cleaner_took import archived_then, data, marker, read_archive, replayed

SEEDS = 42
RETENTION_MS = 1000


@dataclass
class Log:
    """`batches`: by offset. `committed`: of each key the newest committed record. `readable`: all committed records."""

    batches: dict[int, bytes] = field(default_factory=dict)
    committed: dict[bytes, int] = field(default_factory=dict)
    readable: set[int] = field(default_factory=set)

    @property
    def end_offset(self) -> int:
        return len(self.batches)

    def segments(self, bases: Sequence[int]) -> list[list[bytes]]:
        """The batches from each base up to the next."""
        return [[self.batches[o] for o in range(*span)] for span in pairwise([*bases, self.end_offset])]


def random_log(random: Random, length: int) -> Log:
    """Producers of transactions and others, one record a batch. All transactions end; epochs rise as KIP-890 has it, or stay."""
    log, is_new = Log(), random.random() < 0.5
    is_open: dict[int, list[tuple[int, bytes]]] = {}
    sequences, epochs = dict.fromkeys(range(4), 0), dict.fromkeys(range(4), 0)
    while log.end_offset < length or is_open:
        offset, producer_id = log.end_offset, random.randrange(5)
        key = b"k%d" % random.randrange(3)
        if producer_id in is_open and (random.random() < 0.4 or offset >= length):
            commit = random.random() < 0.5
            epochs[producer_id] += is_new
            sequences[producer_id] *= not is_new
            log.batches[offset] = marker(offset, commit=commit, producer_id=producer_id, epoch=epochs[producer_id])
            for number, written in sorted(is_open.pop(producer_id)):
                if commit:
                    log.readable.add(number)
                    log.committed[written] = max(number, log.committed.get(written, 0))
        elif offset >= length:
            continue
        elif producer_id == len(epochs):
            log.batches[offset] = data(offset, key)
            log.readable.add(offset)
            log.committed[key] = max(offset, log.committed.get(key, 0))
        else:
            log.batches[offset] = data(offset, key, producer_id, sequences[producer_id], epochs[producer_id])
            sequences[producer_id] += 1
            is_open.setdefault(producer_id, []).append((offset, key))
    return log


def cleaned(
    random: Random, segments: list[ReferenceSegment], at_end: ProducerTable, completed: list[CompletedTransaction]
) -> list[ReferenceSegment]:
    """What rounds of a broker's cleaner leave, of which some come after the delete horizons of others."""
    now_ms = NOW_MS
    for _ in range(random.randint(1, 4)):
        now_ms += random.choice([1, RETENTION_MS + 1])
        rules = CompactionRules(now_ms, delete_retention_ms=RETENTION_MS, kafka_4_3=True)
        groups = None
        if random.random() < 0.3 and len(segments) > 1:
            merged = random.randint(2, len(segments))
            groups = [merged, *[1] * (len(segments) - merged)]
        known = LastBatches.of(at_end) if random.random() < 0.7 else LastBatches()
        found = clean(segments, rules, groups=groups, last_batches=known, aborted=completed)
        segments = [group.segment for group in found.groups]
        completed = [ended for group in found.groups for ended in group.transactions]
    return segments


@pytest.mark.parametrize("seed", range(SEEDS))
def test_readers_see_no_aborted_record_and_the_newest_committed_ones(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after a compaction of the archive."""
    random = Random(seed)
    log = random_log(random, random.randint(8, 30))
    bases = sorted({0, *random.sample(range(1, log.end_offset), 3)})
    archived_segments = random.randint(1, len(bases) - 1)
    # First the last segment of those that are rolled is active, and has all the rest.
    first_bases = bases[: archived_segments + 1]
    before = dict(zip(first_bases, log.segments(first_bases), strict=True))
    ends = [*bases[1:], log.end_offset]
    whole = [
        ReferenceSegment(base, end, b"".join(batches))
        for base, end, batches in zip(bases, ends, log.segments(bases), strict=True)
    ]
    at_end, completed = replayed([segment.log for segment in whole])
    # Retention takes segments that are archived, before the cleaner comes.
    retained = whole[random.randint(0, archived_segments) :] if random.random() < 0.3 else whole
    left = cleaned(random, retained, at_end, [ended for ended in completed if ended.aborted])
    snapshots = {}
    for number, end in enumerate(ends):
        if random.random() < 0.5:
            table, _ = replayed([segment.log for segment in whole[: number + 1]])
            snapshots[end] = table.to_snapshot()
    after: Mapping[int, Sequence[bytes]] = {segment.base_offset: [segment.log] for segment in left}
    store, events, errors = archived_then(
        tmp_path,
        before,
        {**after, log.end_offset: []},
        log.end_offset,
        asks_leader=random.random() < 0.5,
        snapshots=snapshots,
    )
    # So small a segment may have fewer free offsets than there are open transactions.
    assert all("do not fit" in error for error in errors)
    use(monkeypatch, store)
    for is_compacted in (False, True):
        if is_compacted:
            assert compact_one(store, only_state(store), CompactionRules(NOW_MS)).error is None
        seen = read_archive(store)
        assert seen.visible <= log.readable
        if not errors and "hidden_transaction_may_be_committed" not in events:
            assert seen.committed == log.committed
