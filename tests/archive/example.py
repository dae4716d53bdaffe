"""A small real archive, the same bytes every time: two segments, three commits. `docs/reference/archive-format.md` shows it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from hashlib import sha256

from crc32c import crc32c

from producer_state.snapshot import ProducerEntry
from sidecar.archive.actions import Action, Add, Lost
from sidecar.archive.bundle import assemble_indexes, log_part
from sidecar.archive.commit import Writer
from sidecar.archive.keys import Lineage, below, indexes_key, log_key
from sidecar.archive.state import PartitionState
from sidecar.commits.commit_log import CommitLog
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.model import ArchivedSegment, LeaderEpoch, SnapshotOrigin, SnapshotProvenance, TopicPartition
from sidecar.ports import ObjectStore
from tests.archive.builders import CLUSTER_ID, TOPIC_ID, an_id
from tests.commits.commit_logs import checkpoints_every
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.snapshot_files import write_snapshot

LINEAGE = Lineage(CLUSTER_ID, TopicPartition("orders", 3), TOPIC_ID)
WRITER = Writer(broker_id=1, leader_epoch=5, instance="broker-1", program="tiered-sidecar 0.1.0")
NOW_MS = 1_700_000_600_000
TIME_MS = 1_700_000_000_000
CRC_POSITION = 17


def a_batch(first_offset: int, count: int, leader_epoch: int = 0, *, padding_bytes: int = 0) -> bytes:
    """Records `k<offset>: v<offset>` of the idempotent producer 4000. `padding_bytes`: of zeros behind each value."""
    records = [
        Record(offset, TIME_MS + offset, b"k%d" % offset, b"v%d" % offset + bytes(padding_bytes))
        for offset in range(first_offset, first_offset + count)
    ]
    return build_batch(
        records, leader_epoch=leader_epoch, producer_id=4000, producer_epoch=0, base_sequence=first_offset
    )


@dataclass(frozen=True, slots=True)
class Bundle:
    """A segment's two objects and its entry."""

    segment: ArchivedSegment
    log: bytes
    indexes: bytes


def a_bundle(base_offset: int, end_offset: int, batches: list[bytes], epochs: list[tuple[int, int]]) -> Bundle:
    """A bundle as the pipeline makes it, of a segment too short for an offset index entry."""
    log = b"".join(batches)
    time_index = struct.pack(">qi", TIME_MS + end_offset - 1, end_offset - 1 - base_offset)
    snapshot = write_snapshot([ProducerEntry(4000, 0, end_offset - 1, end_offset - 1, 0, TIME_MS + end_offset - 1)])
    known = [(epoch, start) for epoch, start in epochs if start < end_offset]
    text = "".join(["0\n", f"{len(known)}\n", *[f"{epoch} {start}\n" for epoch, start in known]]).encode()
    indexes, parts = assemble_indexes(b"", time_index, snapshot, text, None)
    own = [entry for entry in known if entry[1] >= base_offset] or [(known[-1][0], base_offset)]
    segment_id = an_id(("example", base_offset))
    segment = ArchivedSegment(
        segment_id=segment_id,
        base_offset=base_offset,
        end_offset=end_offset,
        log_key=log_key(base_offset, segment_id),
        indexes_key=indexes_key(base_offset, segment_id),
        parts=(log_part(len(log), crc32c(log)), *parts),
        leader_epochs=tuple(LeaderEpoch(*entry) for entry in own),
        highest_batch_leader_epoch=known[-1][0],
        max_timestamp_ms=TIME_MS + end_offset - 1,
        batch_count=len(batches),
        snapshot=SnapshotProvenance(SnapshotOrigin.REBUILT, exact=True, start_offset=0),
        source_path=f"/var/lib/kafka/orders-3/{base_offset:020d}.log",
        source_mtime_ns=(TIME_MS + end_offset) * 1_000_000,
        source_size_bytes=len(log),
        first_batch_crc=crc_of(batches[0]),
        last_batch_crc=crc_of(batches[-1]),
    )
    return Bundle(segment, log, indexes)


def crc_of(batch: bytes) -> int:
    """The checksum field of a v2 batch."""
    return int.from_bytes(batch[CRC_POSITION : CRC_POSITION + 4])


@dataclass(slots=True)
class _Nonces:
    """The same ones each time."""

    drawn: int = 0

    def random_bytes(self, count: int) -> bytes:
        self.drawn += 1
        return sha256(b"nonce %d" % (self.drawn - 1)).digest()[:count]

    def uniform(self, low: float, _high: float) -> float:
        return low


EPOCHS = [(0, 0), (5, 4)]
FIRST = a_bundle(0, 5, [a_batch(0, 3), a_batch(3, 1), a_batch(4, 1, 5)], EPOCHS)
SECOND = a_bundle(7, 9, [a_batch(7, 2, 5)], EPOCHS)
COMMITS: tuple[tuple[Action, ...], ...] = (
    (Add(FIRST.segment),),
    (Lost(5, 7, "deleted by the broker before it was archived"),),
    (Add(SECOND.segment),),
)


def write_example(store: ObjectStore) -> PartitionState:
    """Put the whole example into a store, as the pipeline would."""
    clock = ManualClock(NOW_MS)
    log = CommitLog(store, LINEAGE.root, clock, randomness=_Nonces())
    for bundle in (FIRST, SECOND):
        store.put_if_absent(below(LINEAGE.root, bundle.segment.log_key), bundle.log)
        store.put_if_absent(below(LINEAGE.root, bundle.segment.indexes_key), bundle.indexes)
    state = log.read()
    with checkpoints_every(len(COMMITS)):
        for actions in COMMITS:
            state = log.append(actions, WRITER, state)
            clock.advance_ms(60_000)
    return state


def example() -> MemoryStore:
    """The example archive in a store of its own."""
    store = MemoryStore()
    write_example(store)
    return store


def many_partitions(count: int) -> MemoryStore:
    """The example's first bundle in so many partitions."""
    store = example()
    for partition in range(10, 10 + count):
        other = replace(LINEAGE, topic_partition=replace(LINEAGE.topic_partition, partition=partition))
        for key in [key for key in store.objects if key.startswith(f"{LINEAGE.root}/segments/")]:
            store.objects[key.replace(LINEAGE.root, other.root)] = store.objects[key]
        log = CommitLog(store, other.root, store.clock)
        log.append([Add(FIRST.segment)], WRITER, log.read())
    return store
