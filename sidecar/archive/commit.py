"""One commit: who changed a partition's archive, how, and after which commit. Bytes and back.

A commit is one JSON object in canonical form, sealed with a checksum of its own: the newest one has no successor that could
vouch for it. The SHA-256 of the whole, seal included, is in its successor.
"""

from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256

from sidecar.archive.actions import Action, action_from_json, action_to_json, read_optional_id
from sidecar.archive.segment_json import INT32_MAX
from sidecar.archive.strict_json import canonical, check_format, read_object, seal, unseal
from sidecar.model import TopicPartition

FORMAT = "tiered-sidecar-commit"
VERSION = 1
COMMIT_BYTES_MAX = 16 * 1024 * 1024
SHA256_DIGITS = 64
NONCE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes. `leader_epoch` is the epoch under which its broker leads, -1 if unknown.

    `instance` identifies the process (host, pod, process id), `program` names their version. Both are for people.
    Stored: the fields are those of its JSON.
    """

    broker_id: int
    leader_epoch: int
    instance: str
    program: str = "tiered-sidecar"


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of a partition's commit log.

    `previous_sha256` is None for commit 0. `topic_id` is the lineage's topic id after this commit, None while unknown.
    `nonce` is fresh for every attempt to write: after an unknown outcome it shows whose commit exists.
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
            "writer": asdict(commit.writer),
            "actions": [action_to_json(action) for action in commit.actions],
        }
    )
    return seal("commit", inner)


def decode_commit(data: bytes | memoryview, file: str = "") -> Commit:
    """Read a commit. Unknown fields are ignored; an unknown version or kind of action is refused.

    Raises:
        CorruptFile: with `file` and the field that is wrong.
    """
    found = read_object(unseal("commit", data, file), file)
    check_format(found, FORMAT, VERSION)
    number = found.integer("number")
    previous = found.optional("previous_sha256", partial(found.hexadecimal, digits=SHA256_DIGITS))
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
        actions=tuple(action_from_json(action) for action in found.objects("actions")),
    )
