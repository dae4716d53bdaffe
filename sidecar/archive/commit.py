"""One commit: who changed a partition's archive, how, and after which commit. Bytes and back.

A commit is one JSON object in canonical form, sealed with a checksum of its own: the newest one has no successor that could
vouch for it. The SHA-256 of the whole, seal included, stands in its successor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TypeAlias

from sidecar.archive.keys import is_id
from sidecar.archive.sealed import seal, unseal
from sidecar.archive.segment_json import INT32_MAX, segment_from_json, segment_to_json
from sidecar.archive.strict_json import Json, JsonObject, canonical, check_format, read_object
from sidecar.errors import CorruptFile
from sidecar.model import ArchivedSegment, TopicPartition

FORMAT = "tiered-sidecar-commit"
VERSION = 1
COMMIT_BYTES_MAX = 16 * 1024 * 1024
SHA256_DIGITS = 64
NONCE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes. `leader_epoch` is the epoch under which the broker beside it leads, -1 if unknown.

    `instance` tells processes apart (host, pod, process id), `program` names their version. Both are for people.
    """

    broker_id: int
    leader_epoch: int
    instance: str
    program: str = "tiered-sidecar"


@dataclass(frozen=True, slots=True)
class Add:
    """The segment's objects are complete: from now on it is part of the archive."""

    segment: ArchivedSegment


@dataclass(frozen=True, slots=True)
class Remove:
    """The segment is no longer part of the archive; its objects may be deleted after the grace period and `keep_ms`."""

    segment_id: str
    base_offset: int
    end_offset: int
    reason: str
    keep_ms: int = 0


@dataclass(frozen=True, slots=True)
class AdoptTopicId:
    """The lineage was begun without a topic id; from now on it is known to be this topic's."""

    topic_id: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The offsets `[base_offset, end_offset)` are not in the archive, and readers are told so."""

    base_offset: int
    end_offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Purge:
    """The objects of these removed segments have been deleted from the store."""

    segment_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clean:
    """The live segments of `[base_offset, end_offset)` have been compacted together, so that none holds a loser.

    Segments above were not looked at: they are dirty, whatever their generation.
    """

    base_offset: int
    end_offset: int
    strategy: str
    strategy_parameters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """The records below `before_offset` were deleted on purpose, by Kafka's request of this name.

    Segments may still hold them. A restored log begins there, unless a person wants the records back.
    """

    before_offset: int


Action: TypeAlias = Add | Remove | AdoptTopicId | Lost | Purge | Clean | DeleteRecords


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of a partition's commit log.

    `previous_sha256` is None for commit 0. `topic_id` is the lineage's topic id after this commit, None while unknown.
    `nonce` is fresh for every attempt to write: it settles whose commit stands after a lost answer.
    """

    number: int
    previous_sha256: str | None
    nonce: str
    committed_at_ms: int
    topic_partition: TopicPartition
    topic_id: str | None
    writer: Writer
    actions: tuple[Action, ...]


def digest(data: bytes) -> str:
    """The SHA-256 of a commit's exact bytes, as its successor names it."""
    return sha256(data).hexdigest()


def encode_commit(commit: Commit) -> bytes:
    """Canonical bytes, sealed."""
    inner = canonical(
        {
            "format": FORMAT,
            "version": VERSION,
            "number": commit.number,
            "previous_sha256": commit.previous_sha256,
            "nonce": commit.nonce,
            "committed_at_ms": commit.committed_at_ms,
            "topic": commit.topic_partition.topic,
            "partition": commit.topic_partition.partition,
            "topic_id": commit.topic_id,
            "writer": {
                "broker_id": commit.writer.broker_id,
                "leader_epoch": commit.writer.leader_epoch,
                "instance": commit.writer.instance,
                "program": commit.writer.program,
            },
            "actions": [_action_to_json(action) for action in commit.actions],
        }
    )
    return seal("commit", inner)


def _action_to_json(action: Action) -> Json:
    match action:
        case Add(segment):
            return {"type": "add", "segment": segment_to_json(segment)}
        case Remove(segment_id, base_offset, end_offset, reason, keep_ms):
            span: dict[str, Json] = {"base_offset": base_offset, "end_offset": end_offset}
            kept: dict[str, Json] = {"keep_ms": keep_ms} if keep_ms else {}
            return {"type": "remove", "segment_id": segment_id, "reason": reason, **span, **kept}
        case AdoptTopicId(topic_id):
            return {"type": "adopt_topic_id", "topic_id": topic_id}
        case Lost(base_offset, end_offset, reason):
            return {"type": "lost", "base_offset": base_offset, "end_offset": end_offset, "reason": reason}
        case Purge(segment_ids):
            return {"type": "purge", "segment_ids": list(segment_ids)}
        case Clean():
            return {"type": "clean", **clean_to_json(action)}
        case DeleteRecords(before_offset):
            return {"type": "delete_records", "before_offset": before_offset}


def clean_to_json(clean: Clean) -> dict[str, Json]:
    """The fields of a clean range, in commits and checkpoints."""
    return {
        "base_offset": clean.base_offset,
        "end_offset": clean.end_offset,
        "strategy": clean.strategy,
        "strategy_parameters": dict(clean.strategy_parameters),
    }


def clean_from_json(found: JsonObject) -> Clean:
    """Inverse of `clean_to_json`. Raises CorruptFile."""
    return Clean(*read_span(found), found.text("strategy"), found.texts("strategy_parameters"))


def decode_commit(data: bytes | memoryview, file: str = "") -> Commit:
    """Read a commit. Unknown fields are ignored; an unknown version or kind of action is refused.

    Raises:
        CorruptFile: with `file` and the field that is wrong.
    """
    found = read_object(unseal("commit", data, file), file)
    check_format(found, FORMAT, VERSION)
    number = found.integer("number")
    previous = None if found.optional_text("previous_sha256") is None else found.hexadecimal("previous_sha256", 64)
    if (previous is None) != (number == 0):
        found.refuse("previous_sha256", "null in commit 0, a SHA-256 in every other")
    writer = found.nested("writer")
    return Commit(
        number=number,
        previous_sha256=previous,
        nonce=found.hexadecimal("nonce", 2 * NONCE_BYTES),
        committed_at_ms=found.integer("committed_at_ms"),
        topic_partition=TopicPartition(found.text("topic", 249), found.integer("partition", 0, INT32_MAX)),
        topic_id=read_optional_id(found, "topic_id"),
        writer=Writer(
            broker_id=writer.integer("broker_id", -1, INT32_MAX),
            leader_epoch=writer.integer("leader_epoch", -1, INT32_MAX),
            instance=writer.text("instance"),
            program=writer.text("program"),
        ),
        actions=tuple(_action_from_json(action) for action in found.objects("actions")),
    )


def _action_from_json(found: JsonObject) -> Action:
    kind = found.text("type")
    match kind:
        case "add":
            return Add(segment_from_json(found.nested("segment")))
        case "remove":
            return Remove(read_id(found, "segment_id"), *read_span(found), found.text("reason"), read_keep_ms(found))
        case "adopt_topic_id":
            return AdoptTopicId(read_id(found, "topic_id"))
        case "lost":
            return Lost(*read_span(found), found.text("reason"))
        case "purge":
            ids = found.items("segment_ids")
            if not all(type(name) is str and is_id(name) for name in ids):
                found.refuse("segment_ids", "22-character ids")
            return Purge(tuple(str(name) for name in ids))
        case "clean":
            return clean_from_json(found)
        case "delete_records":
            return DeleteRecords(found.integer("before_offset"))
        case _:
            raise CorruptFile(
                f"{found.path}type: the action {kind!r} is unknown: a newer release wrote it, read this archive with that",
                file=found.file,
            )


def read_id(found: JsonObject, name: str) -> str:
    """A 22-character id field."""
    value = found.text(name, 22)
    if not is_id(value):
        found.refuse(name, "a 22-character id")
    return value


def read_optional_id(found: JsonObject, name: str) -> str | None:
    """The same, or null."""
    return None if found.optional_text(name) is None else read_id(found, name)


def read_span(found: JsonObject) -> tuple[int, int]:
    """The fields `base_offset` and `end_offset`, the latter exclusive and higher."""
    base_offset = found.integer("base_offset")
    return base_offset, found.integer("end_offset", base_offset + 1)


def read_keep_ms(found: JsonObject) -> int:
    """The field `keep_ms`, 0 where it is not there."""
    return found.optional_integer("keep_ms") or 0
