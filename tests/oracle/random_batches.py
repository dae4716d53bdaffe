"""Random batches of one partition: data, markers, what a cleaner has left of them, and v0/v1 messages."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from random import Random
from typing import TypedDict

from sidecar.logformat.bodies.building import build_batch, build_empty_batch, build_marker
from sidecar.logformat.bodies.legacy import build_legacy_message, build_legacy_wrapper
from sidecar.logformat.bodies.record import Header, Record
from tests.oracle.log_shape import NONE, ZSTD, LogShape

DAY_MS = 86_400_000
SEQUENCES = 2**31
VERSION_HEADER = "version"
_LEADER_CHANGE = 2

Placed = tuple[bytes, int]
"""A batch, and the offset after it."""


class _ProducedBy(TypedDict):
    producer_id: int
    producer_epoch: int
    base_sequence: int


@dataclass(slots=True)
class Producer:
    """A producer as the log sees it. A new epoch begins at sequence 0."""

    producer_id: int
    epoch: int
    next_sequence: int
    in_transaction: bool = False

    def set_epoch(self, epoch: int) -> None:
        """The coordinator gave it another epoch, or an older incarnation of it writes."""
        self.epoch = epoch
        self.next_sequence = 0


class BatchSource:
    """Builds batches at a given offset."""

    def __init__(self, random: Random, shape: LogShape, now_ms: int) -> None:
        self.random = random
        self.shape = shape
        self.now_ms = now_ms
        self.keys = (b"", *(b"key-%d" % number for number in range(shape.keys - 1)))
        self._leader_epoch = random.randrange(3)
        self._append_time_ms = now_ms - 3 * DAY_MS

    def data(self, offset: int, producer: Producer | None, *, transactional: bool = False) -> Placed:
        """A batch of data as it was produced, or as an earlier cleaning left it: some records gone, a delete horizon set."""
        offsets = range(offset, offset + self.random.randint(*self.shape.records_per_batch))
        kept = list(offsets)
        if self.shape.compacted_before and self._chance(0.15):
            kept = sorted(self.random.sample(kept, k=self.random.randint(1, len(kept))))
        records = [self._record(at, headers=True) for at in kept]
        append_time_ms = self._next_append_time() if self.shape.append_time and self._chance(0.1) else None
        horizon = self._horizon() if any(record.value is None for record in records) else None
        batch = build_batch(
            records,
            base_offset=offsets[0],
            last_offset=offsets[-1],
            codec=self.random.choice(self.shape.codecs),
            leader_epoch=self._epoch(),
            append_time_ms=append_time_ms,
            delete_horizon_ms=horizon,
            transactional=transactional,
            **self._produced_by(producer, len(offsets)),
        )
        return batch, offsets[-1] + 1

    def empty_data(self, offset: int, producer: Producer, *, transactional: bool) -> Placed:
        """The header that a cleaner keeps of a producer's last batch."""
        count = self.random.randint(1, 4)
        batch = build_empty_batch(
            base_offset=offset,
            last_offset=offset + count - 1,
            max_timestamp_ms=self._timestamp(),
            leader_epoch=self._epoch(),
            transactional=transactional,
            **self._produced_by(producer, count),
        )
        return batch, offset + count

    def marker(self, offset: int, producer: Producer, *, commit: bool) -> Placed:
        """The end of a transaction; now and then one that a cleaner has given a delete horizon."""
        coordinator_epoch = self.random.randrange(5)
        horizon = self._horizon()
        if horizon is None:
            batch = build_marker(
                offset,
                commit=commit,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp_ms=self._timestamp(),
                leader_epoch=self._epoch(),
            )
            return batch, offset + 1
        record = Record(
            offset, self._timestamp(), struct.pack(">hh", 0, commit), struct.pack(">hi", 0, coordinator_epoch)
        )
        batch = build_batch(
            [record],
            leader_epoch=self._epoch(),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transactional=True,
            control=True,
            delete_horizon_ms=horizon,
        )
        return batch, offset + 1

    def empty_control(self, offset: int, producer: Producer) -> Placed:
        """A marker whose record a cleaner has removed."""
        batch = build_empty_batch(
            base_offset=offset,
            last_offset=offset,
            max_timestamp_ms=self._timestamp(),
            leader_epoch=self._epoch(),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transactional=True,
            control=True,
        )
        return batch, offset + 1

    def leader_change(self, offset: int) -> Placed:
        """A control batch that ends no transaction and has no producer."""
        record = Record(offset, self._timestamp(), struct.pack(">hh", 0, _LEADER_CHANGE), bytes(8))
        return build_batch([record], leader_epoch=self._epoch(), control=True), offset + 1

    def legacy(self, offset: int) -> Placed:
        """A message of magic 0 or 1, or a compressed wrapper whose inner offsets may have gaps."""
        magic = self.random.randrange(2)
        codec = self.random.choice([codec for codec in self.shape.codecs if codec != ZSTD] or [NONE])
        append_time_ms = self._next_append_time() if magic and self.shape.append_time and self._chance(0.2) else None
        if codec == NONE:
            record = self._record(offset, headers=False)
            timestamp_ms = record.timestamp_ms if append_time_ms is None else append_time_ms
            timed = append_time_ms is not None
            message = build_legacy_message(
                offset, record.key, record.value, magic=magic, timestamp_ms=timestamp_ms, append_time=timed
            )
            return message, offset + 1
        offsets = range(offset, offset + self.random.randint(*self.shape.records_per_batch))
        kept = [at for at in offsets[:-1] if not self._chance(0.15)] + [offsets[-1]]
        records = [self._record(at, headers=False) for at in kept]
        nested_magic = 0 if append_time_ms is None and self._chance(0.1) else magic  # KAFKA-4298
        wrapper = build_legacy_wrapper(
            records, magic=magic, codec=codec, nested_magic=nested_magic, append_time_ms=append_time_ms
        )
        return wrapper, offsets[-1] + 1

    def _record(self, offset: int, *, headers: bool) -> Record:
        key: bytes | None = self.random.choice(self.keys)
        if self.shape.null_keys and self._chance(0.06):
            key = None
        value: bytes | None = b"%d:%s" % (offset, self.random.randbytes(self.random.randrange(12)).hex().encode())
        draw = self.random.random()
        if draw < 0.2:
            value = None
        elif draw < 0.25:
            value = b""
        return Record(offset, self._timestamp(), key, value, self._headers() if headers else ())

    def _headers(self) -> tuple[Header, ...]:
        found: list[Header] = []
        if self.shape.version_headers and self._chance(0.85):
            version = self.random.choice((-5, 0, 1, 2, 3, 2**40, -(2**63), 2**63 - 1))
            found.append((VERSION_HEADER, struct.pack(">q", version)))
            if self._chance(0.08):
                found.append(
                    (VERSION_HEADER, self.random.choice((None, b"", b"seven77", struct.pack(">q", 9), bytes(9))))
                )
        if self.shape.other_headers and self._chance(0.15):
            found.insert(
                self.random.randrange(len(found) + 1),
                self.random.choice((("trace", None), ("", b""), ("größe", b"\xff"))),
            )
        return tuple(found)

    def _produced_by(self, producer: Producer | None, count: int) -> _ProducedBy:
        if producer is None:
            return {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
        sequence = producer.next_sequence
        producer.next_sequence = (sequence + count) % SEQUENCES
        if self.shape.absent_sequences and self._chance(0.1):
            sequence = -1
        return {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "base_sequence": sequence}

    def _timestamp(self) -> int:
        """Mostly of the last two days in any order, so that a day's expiration divides them."""
        draw = self.random.random()
        if self.shape.odd_timestamps and draw < 0.2:
            return self.random.choice((-1, -1, 0, self.now_ms - 40 * DAY_MS, self.now_ms, self.now_ms + 20 * DAY_MS))
        return self.now_ms - self.random.randrange(2 * DAY_MS)

    def _next_append_time(self) -> int:
        self._append_time_ms += self.random.randrange(DAY_MS // 24)
        return self._append_time_ms

    def _horizon(self) -> int | None:
        if not (self.shape.delete_horizons and self._chance(0.15)):
            return None
        return self.now_ms + self.random.randint(-2 * DAY_MS, 2 * DAY_MS)

    def _epoch(self) -> int:
        if self._chance(0.05):
            self._leader_epoch += self.random.randint(1, 3)
        return self._leader_epoch

    def _chance(self, probability: float) -> bool:
        return self.random.random() < probability
