"""The replicas of a partition: who leads, what is committed, and what followers fetch. Pure model, no product code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

from sidecar.archive.keys import NO_TOPIC_ID, Lineage
from sidecar.logformat.headers import NO_TIMESTAMP
from sidecar.model import TopicPartition
from tests.simulation.batches import Batch
from tests.simulation.clocks import VirtualTime
from tests.simulation.replica import Place, Replica
from tests.simulation.truth import Truth

CLUSTER_ID: Final = "SimulationCluster00000"
TOPIC: Final = "t"
KEYS: Final = 5
PRODUCERS: Final = 3
SPREAD_MS: Final = 600_000
TICK_MS: Final = 200_000
"""Producers' clocks are so coarse that timestamps are often the same."""
VERSIONS: Final = (None, 0, 1, None, 2, -1, 1)
"""Of headers: some are absent, and some are the same."""
UNDATED_ONE_IN: Final = 16
"""One batch of so many has no timestamp."""


@dataclass(frozen=True, slots=True)
class LogShape:
    """What producers write, and how replicas roll. `roll_batches`: by broker. `is_cleaned`: brokers compact the topic."""

    roll_batches: tuple[int, ...] = (3, 3)
    transactions: bool = True
    idempotent: bool = True
    is_cleaned: bool = False


@cache
def log_dir_of(broker: int, number: int) -> Path:
    """One of the log dirs of a broker."""
    return Path(f"/sim/b{broker}/d{number}")


class Partition:
    """A partition: its replicas by broker, its leader, and the truth. `is_cleaned`: its brokers compact it."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: str | None,
        shape: LogShape,
        time: VirtualTime,
        numbers: Iterator[int],
    ) -> None:
        """Create it on all brokers that the shape names; the first one leads. Args: numbers: no two are the same."""
        self.topic_partition, self.topic_id = topic_partition, topic_id
        self.lineage = Lineage(CLUSTER_ID, topic_partition, topic_id or NO_TOPIC_ID)
        self._shape, self._time, self._numbers = shape, time, numbers
        self.is_cleaned = shape.is_cleaned
        self.truth = Truth()
        self.replicas = {broker: self._new_replica(broker) for broker in range(len(shape.roll_batches))}
        self.isr = set(self.replicas)
        self._fetched = dict[int, int]()
        """By follower, as the leader of this epoch knows. Source: Replica.resetReplicaState."""
        self.leader = self.leader_epoch = 0
        self.led.epochs = self.led.epochs.assign(self.leader_epoch, 0)

    def _new_replica(self, broker: int) -> Replica:
        rolls = self._shape.roll_batches[broker]
        place = Place(self.topic_partition, log_dir_of(broker, 0), broker, rolls, self._shape.is_cleaned)
        return Replica(place, self.topic_id, self._numbers.__next__, self._time.now_ms)

    @property
    def led(self) -> Replica:
        """The leader's replica."""
        return self.replicas[self.leader]

    @property
    def stable_end_offset(self) -> int:
        """The leader's last stable offset. A transaction is open until its marker is below the high watermark.

        It is raised to the log start. Source: ProducerStateManager.firstUnstableOffset, unreplicatedTxns,
        UnifiedLog.maybeIncrementFirstUnstableOffset.
        """
        log = self.led
        begun: dict[int, int] = {}
        for batch in log.history:
            if batch.end_offset > log.high_watermark:
                break
            if batch.transaction < 0:
                continue
            if batch.commits is not None:
                begun.pop(batch.transaction, None)
            elif batch.base_offset >= log.known_from:
                begun.setdefault(batch.transaction, batch.base_offset)
        return min(log.high_watermark, max(log.log_start_offset, min(begun.values(), default=log.high_watermark)))

    # What producers and followers do.

    def append(self, random: Random, batches: int, *, lagging: frozenset[int] = frozenset()) -> None:
        """Producers write so many batches. Brokers that do not lag fetch them."""
        log = self.led
        for _ in range(batches):
            log.append(self._batch(random, log))
        self.replicate(lagging)

    def _batch(self, random: Random, log: Replica) -> Batch:
        base_offset, now_ms = log.end_offset, self._time.now_ms()
        pending = sorted(
            number for number, found in log.producers.items() if found.current_txn_first_offset is not None
        )
        if pending and random.random() < 0.4:
            newest = self._newest_of(log, random.choice(pending))
            return self._marker(log, newest, newest.transaction, commits=random.random() < 0.6)
        end_offset = base_offset + random.choice((1, 1, 2, 3))
        age_ms = random.randrange(SPREAD_MS)
        timestamp_ms = (now_ms - age_ms) // TICK_MS * TICK_MS if age_ms % UNDATED_ONE_IN else NO_TIMESTAMP
        version = VERSIONS[age_ms % len(VERSIONS)]
        content, key = next(self._numbers), random.randrange(KEYS)
        if not self._shape.idempotent or random.random() < 0.4:
            return Batch(base_offset, end_offset, self.leader_epoch, content, timestamp_ms, key, version)
        producer_id = random.randrange(PRODUCERS)
        known = log.producers.get(producer_id)
        epoch = max(0, -1 if known is None else known.producer_epoch)
        sequence = 0 if known is None else known.last_sequence + 1
        transaction = -1
        if known is not None and known.current_txn_first_offset is not None:
            transaction = self._newest_of(log, producer_id).transaction
        elif self._shape.transactions and random.random() < 0.5:
            transaction = next(self._numbers)
        return Batch(
            base_offset,
            end_offset,
            self.leader_epoch,
            content,
            timestamp_ms,
            key,
            version,
            producer_id,
            epoch,
            sequence,
            transaction,
        )

    def _marker(self, log: Replica, batch: Batch, transaction: int, *, commits: bool) -> Batch:
        """What ends the transaction of a batch."""
        return Batch(
            log.end_offset,
            log.end_offset + 1,
            self.leader_epoch,
            next(self._numbers),
            self._time.now_ms(),
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            transaction=transaction,
            commits=commits,
        )

    @staticmethod
    def _newest_of(log: Replica, producer_id: int) -> Batch:
        return next(batch for batch in reversed(log.history) if batch.producer_id == producer_id)

    def end_transactions(self) -> None:
        """All that are open are committed: their coordinator knows them, whatever the leader's log still has of them."""
        log = self.led
        begun: dict[int, Batch] = {}
        for batch in log.history:
            if batch.is_marker:
                begun.pop(batch.transaction, None)
            elif batch.transaction >= 0:
                begun[batch.transaction] = batch
        for transaction, batch in begun.items():
            marker = self.truth.ends.get(transaction)
            if marker is not None and marker.content in self.truth.cleaned:
                continue  # This replica, or a copy of it, was made later.
            log.append(self._marker(log, batch, transaction, commits=True))
        self.replicate()

    def replicate(self, lagging: frozenset[int] = frozenset()) -> None:
        """Every follower fetches, but for those that lag."""
        for broker in self.replicas:
            if broker not in lagging:
                self.fetch(broker)
        self.advance()

    def fetch(self, broker: int) -> None:
        """A follower truncates what the leader does not have, and copies the rest. Source: ReplicaFetcherThread."""
        led, mine = self.led, self.replicas[broker]
        if led is mine:
            return
        kept = mine.end_offset
        for batch in reversed(mine.history):
            if batch.content in led.contents:
                break
            kept = batch.base_offset
        mine.truncate(kept)
        if mine.end_offset < led.log_start_offset or mine.end_offset > led.end_offset:
            # A batch comes whole. Source: Partition.appendRecordsToFollowerOrFutureReplica, UnexpectedAppendOffsetException.
            remaining = (batch.base_offset for batch in led.batches() if batch.end_offset > led.log_start_offset)
            mine.restart_at(min(led.log_start_offset, next(remaining, led.log_start_offset)), led.history)
        end_offset = mine.end_offset
        for batch in led.batches():
            if batch.base_offset >= end_offset:
                mine.append(batch)
        mine.raise_start(min(led.log_start_offset, mine.end_offset))
        mine.high_watermark = max(mine.high_watermark, min(led.high_watermark, mine.end_offset))
        self._fetched[broker] = mine.end_offset
        self.isr.add(broker)

    def advance(self) -> None:
        """The high watermark rises to what all in-sync replicas have, by the fetches that the leader of this epoch has seen."""
        log = self.led
        in_sync = (log.end_offset if broker == self.leader else self._fetched.get(broker, 0) for broker in self.isr)
        log.high_watermark = max(log.high_watermark, min(in_sync))
        end_offset = self.truth.end_offset
        for batch in log.history:
            if batch.base_offset >= end_offset and batch.end_offset <= log.high_watermark:
                self.truth.commit(batch)

    # What controllers do.

    def elect(self, broker: int) -> bool:
        """Have a broker lead; whether it may, which takes that it is in sync. Source: PartitionChangeBuilder."""
        if broker not in self.isr:
            return False
        log = self.replicas[broker]
        self.leader, self.leader_epoch = broker, self.leader_epoch + 1
        self._fetched.clear()
        log.epochs = log.epochs.assign(self.leader_epoch, log.end_offset)
        log.changed()
        return True

    def shrink(self, broker: int) -> None:
        """The leader drops a follower from the in-sync replicas."""
        if broker != self.leader:
            self.isr.discard(broker)
            self.advance()

    def next_broker(self) -> int:
        """The one behind the leader."""
        return (self.leader + 1) % len(self.replicas)

    def elect_unclean(self, broker: int) -> int:
        """Have a broker lead that is not in sync: what it lacks is lost. Source: ReplicaControlManager, unclean election.

        Returns the first offset from which on what was committed is lost.
        """
        log = self.replicas[broker]
        self.isr = {broker}
        self.elect(broker)
        log.high_watermark = log.end_offset
        lacking = (batch.base_offset for batch in self.truth.line if batch.content not in log.contents)
        cut_offset = next(lacking, log.end_offset)
        self.truth.truncate(cut_offset)
        self.advance()
        return cut_offset

    # What else happens to a log.

    def move(self, broker: int, number: int) -> None:
        """A replica goes to another log dir, and learns leader epochs from the batches that a cleaner has left.

        Source: ReplicaAlterLogDirsThread, LogManager.replaceCurrentWithFutureLog, UnifiedLog.append.
        """
        old = self.replicas[broker]
        place = replace(old.place, log_dir=log_dir_of(broker, number), device=100 * number + broker)
        if place.log_dir == old.place.log_dir:
            return
        new = Replica(
            place,
            self.topic_id,
            self._numbers.__next__,
            self._time.now_ms,
            start_offset=next((batch.base_offset for batch in old.batches()), old.end_offset),
            history=(batch for batch in old.history if batch.end_offset <= old.segments[0].base_offset),
        )
        for batch in old.batches():
            new.append(batch)
        new.first_dirty_offset = old.first_dirty_offset
        new.raise_start(old.log_start_offset)
        new.high_watermark = old.high_watermark
        old.delete()
        self.replicas[broker] = new

    def clean(self, broker: int, first: int, count: int) -> None:
        """A broker's cleaner begins to replace rolled segments by one. Source: Cleaner.cleanSegments, Cleaner.buildOffsetMap.

        Of each key the last committed batch stays, and the last of each producer, for its sequence numbers. Markers go after all
        batches of their transactions, when every replica has fetched them.
        """
        log = self.replicas[broker]
        end_offset = min(self.stable_end_offset, log.high_watermark)
        rolled = [file for file, following in pairwise(log.segments) if following.base_offset <= end_offset]
        if not rolled:
            return
        at = first % len(rolled)
        files = rolled[at : at + count]
        known = [batch for batch in log.history if batch.end_offset <= min(end_offset, log.segments[-1].base_offset)]
        data = [batch for batch in known if not batch.is_marker]
        ended = {batch.transaction: batch.commits for batch in known if batch.is_marker}
        newest = {found.key: found.content for found in data if found.transaction < 0 or ended.get(found.transaction)}
        last = {found.producer_id: found.content for found in log.history if not found.is_marker}
        left = {batch.transaction for batch in log.batches() if not batch.is_marker}
        kept, taken = list[Batch](), set[int]()
        for batch in (batch for file in files for batch in file.batches):
            is_open = batch.transaction >= 0 and batch.transaction not in ended
            is_last = batch.content in (
                newest.get(batch.key),
                last.get(batch.producer_id) if batch.producer_id >= 0 else -1,
            )
            is_due = batch.transaction in left or any(
                batch.content not in one.contents for one in self.replicas.values()
            )
            if (batch.is_marker and is_due) or is_open or (is_last and not batch.is_marker):
                kept.append(batch)
            else:
                taken.add(batch.content)
        self.truth.cleaned |= taken
        log.begin_swap(files, kept)

    def end_swaps(self) -> None:
        """All cleaners end what they have begun."""
        for log in self.replicas.values():
            log.end_swap()

    def delete(self) -> None:
        """The topic is deleted."""
        for log in self.replicas.values():
            log.delete()

    def delete_records(self, share: float) -> None:
        """DeleteRecords up to such a share of what is below the high watermark."""
        log = self.led
        offset = log.log_start_offset + round((log.high_watermark - log.log_start_offset) * share)
        if offset > log.log_start_offset:
            log.raise_start(offset)
            self.truth.deleted_before_offset = max(self.truth.deleted_before_offset, offset)
