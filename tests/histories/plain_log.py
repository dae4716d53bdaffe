"""The plain model of a log: records as they were appended, how transactions ended, and which record of a key wins.

Written from the rules, without the product's code. Sources: KIP-280, Kafka's Cleaner, ProducerAppendInfo.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

VERSION_HEADER = "version"

Rank = tuple[int, int, int]


class Strategy(StrEnum):
    """Which record of a key stays."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    HEADER = "header"


class Fate(StrEnum):
    """What became of a record's transaction. A record outside of transactions counts as committed."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Appended:
    """A data record. `transaction`: number of its transaction, None for none. `is_legacy`: of magic 0 or 1."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    transaction: int | None = None
    is_legacy: bool = False

    def rank(self, strategy: Strategy) -> Rank:
        """The record with the highest rank of a key stays."""
        match strategy:
            case Strategy.OFFSET:
                return 0, 0, self.offset
            case Strategy.TIMESTAMP:
                return 0, self.timestamp_ms, self.offset
            case Strategy.HEADER:
                version = self.version
                return (0, 0, self.offset) if version is None else (1, version, self.offset)

    @property
    def version(self) -> int | None:
        """Of the last header with the name; None where there is none, or a malformed one."""
        values = [value for name, value in self.headers if name == VERSION_HEADER]
        last = values[-1] if values else None
        return int.from_bytes(last, "big", signed=True) if last is not None and len(last) == 8 else None

    @property
    def is_tombstone(self) -> bool:
        """Whether it deletes its key."""
        return self.key is not None and self.value is None


@dataclass(frozen=True, slots=True)
class Producer:
    """What a broker knows of a producer: the fields of a snapshot's entry."""

    producer_id: int
    epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp_ms: int = -1
    coordinator_epoch: int = -1
    first_offset: int | None = None

    def in_epoch(self, epoch: int) -> Producer:
        """The same producer; another epoch begins without a batch."""
        if epoch == self.epoch:
            return self
        return replace(self, epoch=epoch, last_sequence=-1, last_offset=-1, offset_delta=0)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch in the log: its bytes, its data records, and what it does to its producer.

    `commits`: of a marker, whether it commits; None for data.
    """

    base_offset: int
    end_offset: int
    content: bytes
    records: tuple[Appended, ...] = ()
    producer_id: int = -1
    epoch: int = -1
    last_sequence: int = -1
    timestamp_ms: int = -1
    transaction: int | None = None
    commits: bool | None = None


@dataclass(slots=True)
class PlainLog:
    """All batches that were ever appended and not truncated, and what follows from them.

    `markers`: by transaction, the offset of its marker and whether it commits.
    """

    batches: list[Batch] = field(default_factory=list)
    records: dict[int, Appended] = field(default_factory=dict)
    producers: dict[int, Producer] = field(default_factory=dict)
    markers: dict[int, tuple[int, bool]] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    """By producer with an open transaction, the transaction's number."""
    begins: dict[int, int] = field(default_factory=dict)
    """By transaction, its first offset."""

    @property
    def end_offset(self) -> int:
        """Exclusive."""
        return self.batches[-1].end_offset if self.batches else 0

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest open transaction, else the end."""
        offsets = [found.first_offset for found in self.producers.values() if found.first_offset is not None]
        return min(offsets, default=self.end_offset)

    def add(self, batch: Batch) -> None:
        """Append."""
        self.batches.append(batch)
        self.records.update((record.offset, record) for record in batch.records)
        if batch.producer_id < 0:
            return
        known = self.producers.get(batch.producer_id, Producer(batch.producer_id)).in_epoch(batch.epoch)
        if batch.commits is not None:
            transaction = self.open.pop(batch.producer_id, None)
            if transaction is not None:
                self.markers[transaction] = batch.base_offset, batch.commits
            self.producers[batch.producer_id] = replace(
                known, timestamp_ms=batch.timestamp_ms, first_offset=None, coordinator_epoch=0
            )
            return
        first_offset = known.first_offset
        if batch.transaction is not None:
            self.open[batch.producer_id] = batch.transaction
            self.begins.setdefault(batch.transaction, batch.base_offset)
            first_offset = batch.base_offset if first_offset is None else first_offset
        self.producers[batch.producer_id] = replace(
            known,
            last_sequence=batch.last_sequence,
            last_offset=batch.end_offset - 1,
            offset_delta=batch.end_offset - 1 - batch.base_offset,
            timestamp_ms=batch.timestamp_ms,
            first_offset=first_offset,
        )

    def truncated(self, end_offset: int) -> PlainLog:
        """The log without the batches from an offset on."""
        left = PlainLog()
        for batch in self.batches:
            if batch.end_offset <= end_offset:
                left.add(batch)
        return left

    def fate(self, record: Appended) -> Fate:
        """How the record's transaction ended."""
        if record.transaction is None:
            return Fate.COMMITTED
        marker = self.markers.get(record.transaction)
        if marker is None:
            return Fate.OPEN
        return Fate.COMMITTED if marker[1] else Fate.ABORTED
