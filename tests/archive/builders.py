"""Values of the archive, with defaults for whatever a test does not care about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from sidecar.archive.actions import Action, AdoptTopicId
from sidecar.archive.bundle import assemble_indexes, log_part
from sidecar.archive.commit import Commit, Writer, digest, encode_commit
from sidecar.archive.fold import fold
from sidecar.archive.keys import Lineage, id_of, indexes_key, log_key
from sidecar.archive.state import PartitionState
from sidecar.model import ArchivedSegment, LeaderEpoch, SnapshotOrigin, SnapshotProvenance, TopicPartition

CLUSTER_ID = "vkxk2bEJTvm6cy2NFgQZ1A"
PARTITION = TopicPartition("orders", 3)
TOPIC_ID = "ASNFZ4mrze_-3LqYdlQyEA"
LINEAGE = Lineage(CLUSTER_ID, PARTITION, TOPIC_ID)
NAMELESS = Lineage(CLUSTER_ID, PARTITION, "0")
WRITER = Writer(broker_id=1, leader_epoch=5, instance="broker-1", program="tiered-sidecar test")
SNAPSHOT = bytes.fromhex("000148674bc700000000")


def an_id(name: object) -> str:
    """A valid id, the same for the same name."""
    return id_of(b"\x01" + sha256(str(name).encode()).digest()[:15])


def index_bytes() -> tuple[bytes, ...]:
    """Contents of the index parts that `a_segment` claims."""
    return (b"\0\0\0\7\0\0\1\0", b"\0" * 12, SNAPSHOT, b"0\n1\n0 0\n")


def a_segment(
    base_offset: int = 0, end_offset: int | None = None, name: object = "", **changes: object
) -> ArchivedSegment:
    """A segment whose values fit together; 100 offsets unless stated otherwise."""
    segment_id = an_id((base_offset, end_offset, name))
    _, index_parts = assemble_indexes(*index_bytes(), None)  # type: ignore[arg-type]
    segment = ArchivedSegment(
        segment_id=segment_id,
        base_offset=base_offset,
        end_offset=base_offset + 100 if end_offset is None else end_offset,
        log_key=log_key(base_offset, segment_id),
        indexes_key=indexes_key(base_offset, segment_id),
        parts=(log_part(4096, 0xCAFE0001), *index_parts),
        leader_epochs=(LeaderEpoch(0, base_offset),),
        highest_batch_leader_epoch=0,
        max_timestamp_ms=1_700_000_000_005,
        batch_count=7,
        snapshot=SnapshotProvenance(SnapshotOrigin.BROKER, exact=True),
        source_path=f"/var/lib/kafka/orders-3/{base_offset:020d}.log",
        source_mtime_ns=1_700_000_000_000_000_000,
        source_size_bytes=4096,
        first_batch_crc=0x11111111 ^ (base_offset & 0xFFFFFF),
        last_batch_crc=0x22222222 ^ (base_offset & 0xFFFFFF),
    )
    return replace(segment, **changes)  # type: ignore[arg-type]


def a_compacted(base_offset: int, end_offset: int, generation: int = 1, name: object = "") -> ArchivedSegment:
    """A compacted segment."""
    return a_segment(base_offset, end_offset, (generation, name), generation=generation, strategy="offset")


def a_commit(state: PartitionState, *actions: Action, writer: Writer = WRITER) -> Commit:
    """The next commit after a state."""
    adopted = [action.topic_id for action in actions if isinstance(action, AdoptTopicId)]
    return Commit(
        number=state.next_number,
        previous_sha256=state.last_sha256,
        nonce=sha256(repr((state.next_number, actions)).encode()).hexdigest()[:32],
        committed_at_ms=1_700_000_000_000 + state.next_number,
        topic_partition=PARTITION,
        topic_id=adopted[-1] if adopted else state.topic_id,
        writer=writer,
        actions=actions,
    )


def after(state: PartitionState, *commits: Sequence[Action], writer: Writer = WRITER) -> PartitionState:
    """The state after commits of these actions."""
    for actions in commits:
        commit = a_commit(state, *actions, writer=writer)
        state = fold(state, [(commit, digest(encode_commit(commit)))])
    return state
