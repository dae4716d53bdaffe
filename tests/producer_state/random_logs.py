"""Random partitions as batch headers: everything that can happen to producer state, from one seed.

Batches are values, so that another test can turn the same log into segment bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from producer_state.digest import DigestBuilder, SegmentDigest
from producer_state.facts import (
    CONTROL,
    DELETE_HORIZON,
    MARKER_ABORT,
    MARKER_COMMIT,
    NO_MARKER,
    TRANSACTIONAL,
    BatchFacts,
)

SEQUENCES = 2**31
NOW_MS = 1_000_000
WINDOW_MS = 300_000


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of magic 2, or a legacy message (`producer_id` -1). `count` records of [base_offset, last_offset]."""

    base_offset: int
    last_offset: int
    count: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    timestamp_ms: int = -1
    transactional: bool = False
    control: bool = False
    delete_horizon: bool = False
    marker_type: int = NO_MARKER
    coordinator_epoch: int = -1

    @property
    def last_sequence(self) -> int:
        """With the wrap of DefaultRecordBatch.incrementSequence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) % SEQUENCES

    @property
    def attributes(self) -> int:
        """The bits that matter here."""
        return TRANSACTIONAL * self.transactional + CONTROL * self.control + DELETE_HORIZON * self.delete_horizon

    def row(self) -> tuple[int, ...]:
        """In the order of BatchFacts. A marker's record has a timestamp of its own only where the batch has one."""
        marker_timestamp_ms = self.timestamp_ms if self.marker_type >= 0 else -1
        return (self.base_offset, self.last_offset, self.producer_id, self.producer_epoch, self.last_sequence,
                self.timestamp_ms, self.attributes, self.count, self.marker_type, self.coordinator_epoch,
                marker_timestamp_ms)  # fmt: skip


def data(base_offset: int, producer_id: int, epoch: int = 0, sequence: int = 0, *, count: int = 1, ts: int = 0,
         txn: bool = False) -> Batch:  # fmt: skip
    """A data batch with `count` records."""
    return Batch(base_offset, base_offset + count - 1, count, producer_id, epoch, sequence, ts, transactional=txn)


def marker(offset: int, producer_id: int, epoch: int = 0, *, abort: bool = False, coordinator: int = 0,
           ts: int = 0) -> Batch:  # fmt: skip
    """An end-transaction marker."""
    kind = MARKER_ABORT if abort else MARKER_COMMIT
    return Batch(
        offset, offset, 1, producer_id, epoch, -1, ts, True, True, marker_type=kind, coordinator_epoch=coordinator
    )


def empty_control(offset: int, producer_id: int, epoch: int = 0, *, ts: int = 0) -> Batch:
    """A marker whose record the cleaner took away."""
    return Batch(offset, offset, 0, producer_id, epoch, -1, ts, True, True)


_TYPES = (np.int64, np.int64, np.int64, np.int16, np.int32, np.int64, np.int16, np.int32, np.int8, np.int32, np.int64)


def facts_of(batches: Sequence[Batch]) -> BatchFacts:
    """The batches as columns."""
    columns = list(zip(*(batch.row() for batch in batches), strict=True)) or [()] * len(_TYPES)
    return BatchFacts(*(np.array(column, dtype) for column, dtype in zip(columns, _TYPES, strict=True)))


def digest_batches(facts: BatchFacts, start_offset: int, end_offset: int) -> SegmentDigest:
    """Digest of the batches of `[start_offset, end_offset)`: a segment's base and the next segment's base."""
    builder = DigestBuilder(start_offset)
    builder.add(facts)
    return builder.finish(end_offset)


@dataclass(slots=True)
class _Producer:
    producer_id: int
    transactional: bool
    mixed: bool
    epoch: int
    next_sequence: int
    coordinator_epoch: int = 0
    open: bool = False


@dataclass(frozen=True, slots=True)
class RandomLog:
    """Batches in log order, and the bases of the segments plus the end of the last one: n segments, n + 1 boundaries."""

    batches: tuple[Batch, ...] = field(repr=False)
    boundaries: tuple[int, ...]
    facts: BatchFacts = field(compare=False, repr=False)

    def between(self, start_offset: int, end_offset: int) -> BatchFacts:
        """The batches of `[start_offset, end_offset)`, which must be boundaries."""
        first, end = np.searchsorted(self.facts.base_offset, [start_offset, end_offset])
        return self.facts[int(first) : int(end)]

    def segments(self) -> list[tuple[int, int]]:
        """(base, end) of every segment."""
        return list(zip(self.boundaries, self.boundaries[1:], strict=False))


def random_log(
    seed: int,
    *,
    batches: int = 60,
    producers: int = 6,
    segments: int = 6,
    mixed: bool = False,
    cleaned: bool = False,
    untouched: bool = False,
) -> RandomLog:
    """A log that a broker can have. Timestamps are around NOW_MS, and about WINDOW_MS apart from start to end.

    Args:
        mixed: producers may write inside and outside of transactions, which no client does.
        cleaned: with traces of a cleaner: offset gaps, batches with fewer records, empty control batches.
        untouched: without any such trace. Else there are empty control batches in any case.
    """
    random = Random(seed)
    pool = [_a_producer(random, number, mixed) for number in random.sample(range(4000), random.randint(1, producers))]
    offset = random.choice((0, 0, 17, 5_000_000_000))
    start = offset
    found: list[Batch] = []
    for index in range(random.randint(1, batches)):
        if cleaned and random.random() < 0.1:
            offset += random.randint(1, 5)
        progress = index / batches
        batch = _a_batch(random, random.choice(pool), offset, progress, cleaned=cleaned, untouched=untouched)
        found.append(batch)
        offset = batch.last_offset + 1
    end = offset + (random.randint(0, 3) if cleaned else 0)
    starts = [batch.base_offset for batch in found] + [end]
    # Several equal boundaries would be empty segments with the same base: not possible; a base inside a gap is.
    picked = sorted({random.choice(starts) for _ in range(segments - 1)} | {start, end})
    return RandomLog(tuple(found), tuple(picked), facts_of(found))


def _a_producer(random: Random, producer_id: int, mixed: bool) -> _Producer:
    sequence = random.choice((0, 0, SEQUENCES - 3))
    return _Producer(producer_id, random.random() < 0.6, mixed, random.choice((0, 3, 32767)), sequence)


def _a_batch(
    random: Random, producer: _Producer, offset: int, progress: float, *, cleaned: bool, untouched: bool
) -> Batch:
    timestamp_ms = _a_timestamp(random, progress)
    if random.random() < 0.1:
        count = random.randint(1, 3)
        return Batch(offset, offset + count - 1, count, timestamp_ms=timestamp_ms)
    if random.random() < 0.12:
        producer.epoch = max(0, min(32767, producer.epoch + random.choice((1, 1, 1, -1))))
        producer.next_sequence = 0
    if not untouched and random.random() < 0.05:
        return empty_control(offset, producer.producer_id, producer.epoch, ts=timestamp_ms)
    transactional = random.random() < 0.5 if producer.mixed and not producer.open else producer.transactional
    transactional = transactional or producer.open
    if transactional and random.random() < 0.35:
        producer.open = False
        producer.coordinator_epoch += random.choice((0, 0, 1, -1))
        producer.coordinator_epoch = max(0, producer.coordinator_epoch)
        return marker(offset, producer.producer_id, producer.epoch, abort=random.random() < 0.5,
                      coordinator=producer.coordinator_epoch, ts=timestamp_ms)  # fmt: skip
    producer.open = transactional
    span = random.randint(1, 5)
    count = random.randint(0, span) if cleaned and random.random() < 0.2 else span
    sequence = -1 if random.random() < 0.03 else producer.next_sequence
    producer.next_sequence = (producer.next_sequence + span) % SEQUENCES
    return Batch(offset, offset + span - 1, count, producer.producer_id, producer.epoch, sequence, timestamp_ms,
                 transactional)  # fmt: skip


def _a_timestamp(random: Random, progress: float) -> int:
    draw = random.random()
    if draw < 0.06:
        return -1
    if draw < 0.08:
        return NOW_MS + random.randint(0, 2 * WINDOW_MS)
    if draw < 0.12:
        return random.randint(0, 10)
    oldest = NOW_MS - 2 * WINDOW_MS
    return oldest + int(progress * 1.9 * WINDOW_MS) + random.randint(-WINDOW_MS // 4, WINDOW_MS // 4)
