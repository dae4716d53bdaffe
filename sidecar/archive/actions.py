"""What a commit does: its actions, as JSON and back."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from sidecar.archive.keys import is_id
from sidecar.archive.segment_json import segment_from_json, segment_to_json
from sidecar.archive.strict_json import Json, JsonObject
from sidecar.errors import CorruptFile
from sidecar.model import ArchivedSegment


@dataclass(frozen=True, slots=True)
class Add:
    """The segment's objects are complete: from now on it is part of the archive."""

    segment: ArchivedSegment


_COMPACTED_BY: Final = "compacted by "
UNDONE: Final = "compaction undone"
"""Why an undo removed a segment, which a compaction had written. Stored: these texts must not change."""


def compacted_by(strategy: str) -> str:
    """Why a compaction by this strategy removed a segment."""
    return f"{_COMPACTED_BY}{strategy}"


def is_compacted(reason: str) -> bool:
    """Whether a segment was removed because a compaction replaced it. Other releases may have other reasons."""
    return reason.startswith(_COMPACTED_BY)


@dataclass(frozen=True, slots=True)
class Remove:
    """The segment is no longer part of the archive; its objects may be deleted after the grace period and `keep_ms`."""

    segment_id: str
    base_offset: int
    end_offset: int
    reason: str
    keep_ms: int = 0


@dataclass(frozen=True, slots=True)
class Reinstate:
    """A removed segment whose objects still exist is part of the archive again, as it was before its removal."""

    segment: ArchivedSegment


@dataclass(frozen=True, slots=True)
class AdoptTopicId:
    """The lineage was begun without a topic id; from now on it is known to be this topic's."""

    topic_id: str


class LossReason(StrEnum):
    """Why offsets are missing in the archive, as a commit records it. Stored: the text must not change."""

    NOT_ON_DISK = "no longer on the broker's disk when it was to be archived"
    DELETED_FIRST = "deleted on purpose, by DeleteRecords, before it was archived"


@dataclass(frozen=True, slots=True)
class Lost:
    """The offsets `[base_offset, end_offset)` are not in the archive, and readers report it.

    `reason`: a `LossReason`; in a commit of another release it may be in other words.
    """

    base_offset: int
    end_offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Purge:
    """The objects of these removed segments are gone from the store, or go now: the segments cannot be reinstated."""

    segment_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clean:
    """The live segments of `[base_offset, end_offset)` have been compacted together, so that none holds a loser.

    Segments above were not checked: they are dirty, whatever their generation. Stored: its fields are those of its JSON.
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


Action: TypeAlias = Add | Remove | Reinstate | AdoptTopicId | Lost | Purge | Clean | DeleteRecords


def action_to_json(action: Action) -> Json:
    """One of a commit's actions; `type` says which."""
    match action:
        case Add(segment):
            return {"type": "add", "segment": segment_to_json(segment)}
        case Remove(segment_id, base_offset, end_offset, reason, keep_ms):
            span: dict[str, Json] = {"base_offset": base_offset, "end_offset": end_offset}
            kept: dict[str, Json] = {"keep_ms": keep_ms} if keep_ms else {}
            return {"type": "remove", "segment_id": segment_id, "reason": reason, **span, **kept}
        case Reinstate(segment):
            return {"type": "reinstate", "segment": segment_to_json(segment)}
        case AdoptTopicId(topic_id):
            return {"type": "adopt_topic_id", "topic_id": topic_id}
        case Lost(base_offset, end_offset, reason):
            return {"type": "lost", "base_offset": base_offset, "end_offset": end_offset, "reason": str(reason)}
        case Purge(segment_ids):
            return {"type": "purge", "segment_ids": list(segment_ids)}
        case Clean():
            return {"type": "clean", **asdict(action)}
        case DeleteRecords(before_offset):
            return {"type": "delete_records", "before_offset": before_offset}


def clean_from_json(found: JsonObject) -> Clean:
    """A clean range, in a commit or a checkpoint. Inverse of `asdict`. Raises CorruptFile."""
    return Clean(*read_span(found), found.text("strategy"), found.texts("strategy_parameters"))


def action_from_json(found: JsonObject) -> Action:
    """Inverse of `action_to_json`. Raises CorruptFile, also for a kind of action that this release does not know."""
    kind = found.text("type")
    match kind:
        case "add":
            return Add(segment_from_json(found.nested("segment")))
        case "remove":
            return Remove(read_id(found, "segment_id"), *read_span(found), found.text("reason"), read_keep_ms(found))
        case "reinstate":
            return Reinstate(segment_from_json(found.nested("segment")))
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
                f"{found.path}type: the action {kind!r} is unknown: a newer version wrote it. Use that version",
                file=found.file,
            )


def read_id(found: JsonObject, name: str) -> str:
    value = found.text(name, 22)
    if not is_id(value):
        found.refuse(name, "a 22-character id")
    return value


def read_optional_id(found: JsonObject, name: str) -> str | None:
    return None if found.optional(name, found.text) is None else read_id(found, name)


def read_span(found: JsonObject) -> tuple[int, int]:
    """The fields `base_offset` and `end_offset`, the latter exclusive and higher."""
    base_offset = found.integer("base_offset")
    return base_offset, found.integer("end_offset", base_offset + 1)


def read_keep_ms(found: JsonObject) -> int:
    return found.optional("keep_ms", found.integer) or 0
