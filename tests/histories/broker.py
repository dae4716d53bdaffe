"""A broker's partition on a disk, in Kafka's formats, as time goes by: what the sidecar sees, and the plain model of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from producer_state.snapshot import ProducerEntry
from sidecar.logformat.bodies.building import build_batch, build_marker
from sidecar.logformat.bodies.legacy import build_legacy_message, build_legacy_wrapper
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.checkpoints import write_offset_checkpoint
from sidecar.logformat.metadata_files import write_partition_metadata
from sidecar.model import TopicPartition
from tests.fakes.manual_clock import ManualClock
from tests.histories.plain_log import VERSION_HEADER, Appended, Batch, PlainLog
from tests.snapshot_files import write_snapshot

TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
CLUSTER_ID = "3HistoriesCluster00000"
SUFFIXES = ("log", "index", "timeindex", "txnindex")
PRODUCERS = 3
LARGE_BYTES = 700
SPREAD_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class LogShape:
    """What producers write. `legacy_batches`: so many batches at the beginning are of magic 0 and 1."""

    keys: int = 4
    large_values: bool = False
    codecs: tuple[int, ...] = (0,)
    transactions: bool = True
    versions: bool = False
    null_keys: bool = False
    legacy_batches: int = 0
    has_snapshots: bool = True
    append_time: bool = False


@dataclass(slots=True)
class Segment:
    """A `.log` on the disk and its batches."""

    base_offset: int
    batches: list[Batch] = field(default_factory=list)


class BrokerPartition:
    """The partition's directory and leader. The last of `segments` is active.

    `boundaries`: the producers at each offset where a segment was rolled. `gone`: ranges whose files went from the disk.
    `deleted_before_offset`: up to where DeleteRecords went. `file_times_ms`: by base offset, when each `.log` was written
    last, also of those that are gone.
    """

    def __init__(self, log_dir: Path, clock: ManualClock, shape: LogShape) -> None:
        self.log_dir, self.clock, self.shape = log_dir, clock, shape
        self.directory = log_dir / str(PARTITION)
        self.log = PlainLog()
        self.segments = [Segment(0)]
        self.boundaries: dict[int, dict[int, tuple[object, ...]]] = {}
        self.gone: list[tuple[int, int]] = []
        self.file_times_ms: dict[int, int] = {}
        self.leader_epoch = 0
        self.log_start_offset = self.deleted_before_offset = 0
        self.sequences: dict[int, int] = {}
        self.producer_epochs: dict[int, int] = {}
        self._epochs = [(0, 0)]
        self._transactions = 0
        self._snapshots: set[int] = set()
        self.directory.mkdir(parents=True)
        (log_dir / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={CLUSTER_ID}\n")
        (self.directory / "partition.metadata").write_bytes(write_partition_metadata(TOPIC_ID))
        self._write(self.segments[0])
        self._write_checkpoints()

    # What producers do.

    def append(self, random: Random, count: int) -> None:
        """So many batches, of any producer."""
        for _ in range(count):
            offset = self.log.end_offset
            if len(self.log.batches) < self.shape.legacy_batches:
                self._add(self._legacy(random, offset))
                continue
            draw = random.random()
            if self.log.open and draw < 0.35:
                producer_id = random.choice(sorted(self.log.open))
                self._add(self._marker(offset, producer_id, commits=random.random() < 0.6))
            else:
                self._add(self._data(random, offset))
        self._write(self.segments[-1])
        self._write_checkpoints()

    def end_transactions(self) -> None:
        """All that are open are committed."""
        for producer_id in sorted(self.log.open):
            self._add(self._marker(self.log.end_offset, producer_id, commits=True))
        self._write(self.segments[-1])
        self._write_checkpoints()

    def _add(self, batch: Batch) -> None:
        if self._epochs[-1][0] != self.leader_epoch:
            self._epochs.append((self.leader_epoch, batch.base_offset))
        self.log.add(batch)
        self.segments[-1].batches.append(batch)

    def _data(self, random: Random, offset: int) -> Batch:
        producer_id = random.randrange(PRODUCERS) if random.random() < 0.75 else -1
        transaction = self.log.open.get(producer_id)
        if producer_id >= 0 and transaction is None and self.shape.transactions and random.random() < 0.45:
            self._transactions += 1
            transaction = self._transactions
        records = [
            self._record(random, offset + number, transaction=transaction) for number in range(random.randint(1, 3))
        ]
        appended_ms = self.clock.now_ms() if self.shape.append_time and random.random() < 0.3 else None
        if appended_ms is not None:
            records = [replace(record, timestamp_ms=appended_ms) for record in records]
        last_sequence = epoch = -1
        produced: dict[str, int] = {}
        if producer_id >= 0:
            if producer_id not in self.log.open and random.random() < 0.08:
                self._next_epoch(producer_id)
            epoch, sequence = self.producer_epochs.get(producer_id, 0), self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(records)
            last_sequence = sequence + len(records) - 1
            produced = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        content = build_batch(
            [as_record(record) for record in records],
            codec=random.choice(self.shape.codecs),
            leader_epoch=self.leader_epoch,
            transactional=transaction is not None,
            append_time_ms=appended_ms,
            **produced,  # type: ignore[arg-type]
        )
        return Batch(
            offset,
            offset + len(records),
            content,
            tuple(records),
            producer_id,
            epoch,
            last_sequence,
            max(record.timestamp_ms for record in records),
            transaction,
        )

    def _next_epoch(self, producer_id: int) -> None:
        self.producer_epochs[producer_id] = self.producer_epochs.get(producer_id, 0) + 1
        self.sequences[producer_id] = 0

    def _marker(self, offset: int, producer_id: int, *, commits: bool) -> Batch:
        now_ms = self.clock.now_ms()
        if not commits and offset % 3 == 0:
            self._next_epoch(producer_id)  # The coordinator fences a producer whose transaction it ends.
        epoch = self.producer_epochs.get(producer_id, 0)
        content = build_marker(
            offset,
            commit=commits,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=0,
            timestamp_ms=now_ms,
            leader_epoch=self.leader_epoch,
        )
        return Batch(
            offset, offset + 1, content, producer_id=producer_id, epoch=epoch, timestamp_ms=now_ms, commits=commits
        )

    def _legacy(self, random: Random, offset: int) -> Batch:
        magic, codec = random.randrange(2), random.choice([codec for codec in self.shape.codecs if codec != 4] or [0])
        count = random.randint(1, 3) if codec else 1
        records = [self._record(random, offset + number, legacy_magic=magic) for number in range(count)]
        if codec:
            content = build_legacy_wrapper([as_record(record) for record in records], codec=codec, magic=magic)
        else:
            (one,) = records
            content = build_legacy_message(offset, one.key, one.value, magic=magic, timestamp_ms=one.timestamp_ms)
        newest = max(record.timestamp_ms for record in records)
        return Batch(offset, offset + count, content, tuple(records), timestamp_ms=newest)

    def _record(
        self, random: Random, offset: int, *, transaction: int | None = None, legacy_magic: int | None = None
    ) -> Appended:
        key: bytes | None = b"k%d" % random.randrange(self.shape.keys)
        if self.shape.null_keys and random.random() < 0.1:
            key = None
        value: bytes | None = b"%d" % offset
        if random.random() < 0.2:
            value = None
        elif self.shape.large_values and random.random() < 0.25:
            value = random.randbytes(random.randint(LARGE_BYTES // 2, LARGE_BYTES))
        timestamp_ms = self.clock.now_ms() - random.randrange(SPREAD_MS)
        if legacy_magic == 0 or random.random() < 0.03:
            timestamp_ms = -1
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if self.shape.versions and legacy_magic is None:
            headers = tuple(_versions(random))
        return Appended(offset, timestamp_ms, key, value, headers, transaction, legacy_magic is not None)

    # What brokers do.

    def roll(self) -> None:
        """The active segment is closed, unless it is empty."""
        base_offset = self.log.end_offset
        if not self.segments[-1].batches:
            return
        self.segments.append(Segment(base_offset))
        self.boundaries[base_offset] = producers_of(self.log)
        if self.shape.has_snapshots:
            self._snapshots.add(base_offset)
            (self.directory / f"{base_offset:020d}.snapshot").write_bytes(self.snapshot())
            self._touch(self.directory / f"{base_offset:020d}.snapshot")
        self._write(self.segments[-1])

    def snapshot(self) -> bytes:
        """The producers at the end."""
        return write_snapshot(
            ProducerEntry(
                found.producer_id,
                found.epoch,
                found.last_sequence,
                found.last_offset,
                found.offset_delta,
                found.timestamp_ms,
                found.coordinator_epoch,
                found.first_offset,
            )
            for found in self.log.producers.values()
        )

    def drop_snapshots(self) -> None:
        """Somebody removed them."""
        for path in self.directory.glob("*.snapshot"):
            path.unlink()

    def retention(self, keep: int) -> None:
        """Delete the oldest rolled segments; so many stay."""
        while len(self.segments) - 1 > keep:
            self._remove(0)
            self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        self._write_checkpoints()

    def lose_file(self, number: int) -> None:
        """A rolled segment's files vanish, wherever it lies."""
        if len(self.segments) > 1:
            self._remove(number % (len(self.segments) - 1))
            self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
            self._write_checkpoints()

    def _remove(self, index: int) -> None:
        segment, after = self.segments[index], self.segments[index + 1]
        for suffix in SUFFIXES:
            (self.directory / f"{segment.base_offset:020d}.{suffix}").unlink(missing_ok=True)
        (self.directory / f"{segment.base_offset:020d}.snapshot").unlink(missing_ok=True)
        self.gone.append((segment.base_offset, after.base_offset))
        del self.segments[index]

    def delete_records(self, share: float) -> None:
        """Move the log start to such a share of what is stable and was not deleted before."""
        stable = self.log.last_stable_offset
        before = self.log_start_offset + int((stable - self.log_start_offset) * share)
        if before <= self.log_start_offset:
            return
        self.log_start_offset = self.deleted_before_offset = before
        while len(self.segments) > 1 and self.segments[1].base_offset <= before:
            self._remove(0)
        self._write_checkpoints()

    def new_leader(self, truncate_batches: int) -> None:
        """Another epoch; the new leader lacks the last batches of the active segment."""
        self.leader_epoch += 1
        active = self.segments[-1]
        gone = min(truncate_batches, len(active.batches))
        left = active.batches[: len(active.batches) - gone]
        end_offset = left[-1].end_offset if left else active.base_offset
        if gone and end_offset >= self.log_start_offset and end_offset > 0:
            self.log = self.log.truncated(end_offset)
            active.batches = left
            producers = self.log.producers.values()
            self.sequences = {found.producer_id: found.last_sequence + 1 for found in producers}
            self.producer_epochs = {found.producer_id: found.epoch for found in producers}
            self._epochs = [entry for entry in self._epochs if entry[1] < end_offset] or [(0, 0)]
            self._write(active)
        self._write_checkpoints()

    # The disk.

    def _write(self, segment: Segment) -> None:
        path = self.directory / f"{segment.base_offset:020d}.log"
        path.write_bytes(b"".join(batch.content for batch in segment.batches))
        self._touch(path)
        self.file_times_ms[segment.base_offset] = self.clock.now_ms()

    def _touch(self, path: Path) -> None:
        os.utime(path, ns=(self.clock.now_ms() * 1_000_000,) * 2)

    def _write_checkpoints(self) -> None:
        end = {PARTITION: self.log.end_offset}
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            (self.log_dir / name).write_bytes(write_offset_checkpoint(end))
        (self.log_dir / "log-start-offset-checkpoint").write_bytes(
            write_offset_checkpoint({PARTITION: self.log_start_offset})
        )
        lines = ["0", str(len(self._epochs)), *(f"{epoch} {start}" for epoch, start in self._epochs)]
        (self.directory / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")

    def last_modified_ms(self, begin: int, end: int) -> int:
        """Of the newest `.log` with an offset of `[begin, end)`."""
        first = max(base for base in self.file_times_ms if base <= begin)
        return max(time_ms for base, time_ms in self.file_times_ms.items() if first <= base < end)

    def is_gone(self, begin: int, end: int) -> bool:
        """Whether all of `[begin, end)` went from the disk, sooner or later."""
        at = begin
        for first, last in sorted(self.gone):
            if first <= at < last:
                at = last
        return at >= end


def producers_of(log: PlainLog) -> dict[int, tuple[object, ...]]:
    """By producer id, the fields of a snapshot's entry but its id."""
    return {
        found.producer_id: (
            found.epoch,
            found.last_sequence,
            found.last_offset,
            found.offset_delta,
            found.timestamp_ms,
            found.coordinator_epoch,
            found.first_offset,
        )
        for found in log.producers.values()
    }


def as_record(record: Appended) -> Record:
    """For the builders of batches."""
    return Record(record.offset, record.timestamp_ms, record.key, record.value, record.headers)


def _versions(random: Random) -> Iterator[tuple[str, bytes | None]]:
    if random.random() < 0.8:
        yield VERSION_HEADER, random.choice((-2, 0, 1, 2, 3, 2**40)).to_bytes(8, "big", signed=True)
    if random.random() < 0.12:
        yield VERSION_HEADER, random.choice((None, b"", b"seven77", bytes(9), (4).to_bytes(8, "big")))
    if random.random() < 0.1:
        yield "other", b"x"
