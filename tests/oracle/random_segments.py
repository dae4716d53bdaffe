"""Seeded random partitions as real `.log` bytes, for the conformance suites of producer state and compaction.

Every log is one that a broker loads, unless the shape asks for an invalid transaction state. With `cleanable` it also has
nothing on which Kafka's own Cleaner raises (each of these makes a real broker give up the partition for good):
a legacy batch at the end of a segment that could lose all its records, and a data batch with a producer id but without sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.oracle.log_shape import CLEANER, LogShape, varied
from tests.oracle.random_batches import DAY_MS, BatchSource, Producer

TOPIC = "random"


@dataclass(frozen=True, slots=True)
class RandomSegment:
    """One segment: its base offset and the content of its `.log`; it may be empty."""

    base_offset: int
    log: bytes


@dataclass(frozen=True, slots=True)
class RandomLog:
    """A partition. `now_ms` is the wall clock that its timestamps were drawn around; `shape` is what it may contain."""

    seed: int
    shape: LogShape
    now_ms: int
    segments: tuple[RandomSegment, ...]
    end_offset: int
    keys: tuple[bytes, ...] = field(repr=False)

    def write(self, parent: Path) -> Path:
        """Writes `<parent>/random-0/<base>.log`, nothing else (`Oracle.recover` adds indexes); returns the partition directory."""
        directory = parent / f"{TOPIC}-0"
        directory.mkdir(parents=True)
        for segment in self.segments:
            (directory / f"{segment.base_offset:020d}.log").write_bytes(segment.log)
        return directory


def random_log(seed: int, shape: LogShape = CLEANER, *, vary: bool = True) -> RandomLog:
    """The log of this seed: same seed and shape, same bytes. `vary` turns some of the shape's switches off at random."""
    random = Random(seed)
    if vary:
        shape = varied(shape, random)
    return _Writer(random, shape).log(seed)


class _Writer:
    """Draws events one after the other; knows the next offset and what each producer may do."""

    def __init__(self, random: Random, shape: LogShape) -> None:
        self.random = random
        self.shape = shape
        self.now_ms = 1_700_000_000_000 + random.randrange(DAY_MS)
        base_offset = shape.first_base_offset
        self.next_offset = random.randrange(1_000_000) if base_offset is None else base_offset
        self.source = BatchSource(random, shape, self.now_ms)
        ids = random.sample(range(1, 200), k=random.randint(1, shape.producers))
        self.producers = [Producer(producer_id, random.randrange(3), self._sequence()) for producer_id in ids]

    def log(self, seed: int) -> RandomLog:
        count = self.random.randint(*self.shape.segments)
        # Formats only go up in a log: the first segments are legacy, one is mixed, the rest is v2.
        legacy = self.random.randint(1, count) if self.shape.legacy else 0
        segments: list[RandomSegment] = []
        end_offset = self.next_offset
        for index in range(count):
            base_offset = self.next_offset
            batches = [self._batch(legacy=index < legacy) for _ in range(self._batch_count())]
            if index == count - 2 and not self.shape.open_transactions:
                batches += [self._end_transaction(producer) for producer in self.producers if producer.in_transaction]
            segments.append(RandomSegment(base_offset, self._sealed(batches)))
            end_offset = self.next_offset
            self.next_offset = max(self.next_offset, base_offset + 1)
        return RandomLog(seed, self.shape, self.now_ms, tuple(segments), end_offset, self.source.keys)

    def _batch_count(self) -> int:
        return self.random.randint(*self.shape.batches_per_segment)

    def _sealed(self, batches: list[bytes]) -> bytes:
        """A cleanable segment never ends with a legacy batch that can be emptied: Kafka's Cleaner cannot keep an empty one."""
        if self.shape.cleanable and batches and batches[-1][16] < 2:
            batches = [*batches, self._placed(lambda offset: self.source.data(offset, None))]
        return b"".join(batches)

    def _sequence(self) -> int:
        return self.random.choice((0, 0, 7, 2**31 - 3))

    def _placed(self, build: Callable[[int], tuple[bytes, int]]) -> bytes:
        """Builds at the next offset, sometimes after a gap; `build` returns the bytes and the offset after them."""
        if self.shape.offset_gaps and self.random.random() < 0.1:
            self.next_offset += self.random.randint(1, 9)
        data, self.next_offset = build(self.next_offset)
        return data

    def _batch(self, *, legacy: bool) -> bytes:
        if legacy and self.random.random() < 0.85:
            return self._placed(self.source.legacy)
        producer = self.random.choice(self.producers)
        self._maybe_new_epoch(producer)
        draw = self.random.random()
        if draw < 0.15:
            return self._placed(lambda offset: self.source.data(offset, None))
        if self.shape.transactions and draw < 0.4:
            return self._end_transaction(producer)
        if self.shape.compacted_before and draw < 0.46:
            return self._placed(lambda offset: self.source.empty_control(offset, producer))
        if self.shape.other_control and draw < 0.49:
            return self._placed(self.source.leader_change)
        return self._data(producer)

    def _data(self, producer: Producer) -> bytes:
        transactional = producer.in_transaction or (self.shape.transactions and self.random.random() < 0.6)
        if self.shape.invalid_transaction_state and producer.in_transaction and self.random.random() < 0.2:
            transactional = False
        producer.in_transaction |= transactional
        if self.shape.compacted_before and self.random.random() < 0.1:
            return self._placed(lambda offset: self.source.empty_data(offset, producer, transactional=transactional))
        return self._placed(lambda offset: self.source.data(offset, producer, transactional=transactional))

    def _end_transaction(self, producer: Producer) -> bytes:
        """A marker; now and then for a transaction without data, with a raised epoch (KIP-890), or by a fencing coordinator."""
        producer.in_transaction = False
        if self.random.random() < 0.3:
            producer.set_epoch(producer.epoch + 1)
        commit = self.random.random() < 0.5
        return self._placed(lambda offset: self.source.marker(offset, producer, commit=commit))

    def _maybe_new_epoch(self, producer: Producer) -> None:
        draw = self.random.random()
        if draw < 0.08:
            producer.set_epoch(producer.epoch + self.random.randint(1, 2))
        elif self.shape.epochs_down and draw < 0.13 and producer.epoch > 0:
            producer.set_epoch(producer.epoch - 1)
        elif draw < 0.16:
            producer.next_sequence = self._sequence()
