"""A checkpoint: a partition's state after one commit, so that readers need only the commits after it.

It is a convenience, never the truth: a damaged one is passed over.
"""

from dataclasses import asdict

from sidecar.archive.actions import (
    clean_from_json,
    read_id,
    read_keep_ms,
    read_optional_id,
    read_span,
)
from sidecar.archive.commit import SHA256_DIGITS
from sidecar.archive.coverage import Hole, find_defects
from sidecar.archive.keys import NO_TOPIC_ID, Lineage
from sidecar.archive.segment_json import INT32_MAX, segment_from_json, segment_to_json
from sidecar.archive.state import PartitionState, RemovedSegment
from sidecar.archive.strict_json import Json, JsonObject, canonical, check_format, read_object, seal, unseal
from sidecar.errors import CorruptFile
from sidecar.model import TopicPartition

FORMAT = "tiered-sidecar-checkpoint"
VERSION = 1
VERSION_WITH_DELETED_RECORDS = 2
"""What a reader of version 1 knows nothing of: it is to pass such a checkpoint over, and to refuse the commit that says it."""
CHECKPOINT_BYTES_MAX = 256 * 1024 * 1024


def encode_checkpoint(state: PartitionState) -> bytes:
    """Canonical bytes of the state after commit `state.next_number - 1`."""
    if state.last_sha256 is None:
        raise ValueError("there is nothing to checkpoint before the first commit")
    inner = canonical(
        {
            "format": FORMAT,
            "version": VERSION_WITH_DELETED_RECORDS if state.deleted_before_offset else VERSION,
            "number": state.next_number - 1,
            "commit_sha256": state.last_sha256,
            "committed_at_ms": state.last_committed_at_ms,
            "topic": state.lineage.topic_partition.topic,
            "partition": state.lineage.topic_partition.partition,
            "incarnation": state.lineage.incarnation,
            "topic_id": state.topic_id,
            "highest_leader_epoch": state.highest_leader_epoch,
            "end_offset": state.end_offset,
            "segments": [segment_to_json(segment) for segment in state.segments],
            "holes": [asdict(hole) for hole in state.holes],
            "removed": [_removed_to_json(removed) for removed in state.removed],
            "clean": None if state.clean is None else asdict(state.clean),
            **({"deleted_before_offset": state.deleted_before_offset} if state.deleted_before_offset else {}),
        }
    )
    return seal("checkpoint", inner)


def decode_checkpoint(data: bytes, number: int, lineage: Lineage, file: str = "") -> PartitionState:
    """The state that a checkpoint holds.

    Args:
        number: as in the key; the content must agree. Likewise `lineage`.

    Raises:
        CorruptFile: anything about it is wrong, its own checksum first of all.
    """
    found = read_object(unseal("checkpoint", data, file), file)
    check_format(found, FORMAT, VERSION_WITH_DELETED_RECORDS)
    partition = TopicPartition(found.text("topic", 249), found.integer("partition", 0, INT32_MAX))
    incarnation = found.text("incarnation", 22)
    if (partition, incarnation, found.integer("number")) != (lineage.topic_partition, lineage.incarnation, number):
        raise CorruptFile(
            f"contains {partition} {incarnation} commit {found.integer('number')}, which is not what its key says",
            file=file,
        )
    topic_id = read_optional_id(found, "topic_id")
    if incarnation not in {NO_TOPIC_ID, topic_id}:
        found.refuse("topic_id", incarnation)
    state = PartitionState(
        lineage=lineage,
        topic_id=topic_id,
        next_number=number + 1,
        last_sha256=found.hexadecimal("commit_sha256", SHA256_DIGITS),
        last_committed_at_ms=found.integer("committed_at_ms"),
        highest_leader_epoch=found.integer("highest_leader_epoch", -1, INT32_MAX),
        end_offset=found.optional("end_offset", found.integer),
        segments=tuple(segment_from_json(segment) for segment in found.objects("segments")),
        holes=tuple(Hole(*read_span(hole), hole.text("reason")) for hole in found.objects("holes")),
        removed=tuple(_removed_from_json(removed, number) for removed in found.objects("removed")),
        clean=None if (clean := found.optional("clean", found.nested)) is None else clean_from_json(clean),
        deleted_before_offset=found.optional("deleted_before_offset", found.integer) or 0,
    )
    _check_coverage(state, file)
    return state


def _removed_to_json(removed: RemovedSegment) -> Json:
    found = asdict(removed)
    if not removed.keep_ms:
        del found["keep_ms"]
    return found


def _removed_from_json(found: JsonObject, number: int) -> RemovedSegment:
    removed_by_commit = found.optional("removed_by_commit", lambda name: found.integer(name, 0, number))
    return RemovedSegment(
        read_id(found, "segment_id"),
        *read_span(found),
        found.integer("removed_at_ms"),
        found.text("reason"),
        read_keep_ms(found),
        # Earlier releases do not say. None of these commits is later than the checkpoint's own: that errs on the safe side.
        number if removed_by_commit is None else removed_by_commit,
    )


def _check_coverage(state: PartitionState, file: str) -> None:
    spans = [(segment.base_offset, segment.end_offset) for segment in state.segments]
    if spans != sorted(spans) or (spans and state.end_offset is None):
        raise CorruptFile("segments must ascend and lie below the end", file=file)
    spans += [(hole.base_offset, hole.end_offset) for hole in state.holes]
    start, end = state.start_offset, state.end_offset
    defects = find_defects(spans, start or 0, end or 0)
    if defects:
        raise CorruptFile(f"the checkpoint leaves {defects[0]}", file=file)
