"""An archived segment as JSON, and what must hold of one before anything is committed or believed."""

from functools import partial
from itertools import pairwise

from sidecar.archive.bundle import INDEXES_BYTES_MAX, LOG_BYTES_MAX, REQUIRED_PARTS
from sidecar.archive.keys import indexes_key, is_id, log_key
from sidecar.archive.strict_json import Json, JsonObject
from sidecar.errors import CommitRefused, CorruptFile
from sidecar.model import (
    ArchivedSegment,
    LeaderEpoch,
    ObjectKey,
    Part,
    PartName,
    RawBatches,
    SnapshotOrigin,
    SnapshotProvenance,
)

INT32_MAX = 2**31 - 1
INT64_MIN = -(2**63)

_PART_NAMES = tuple(PartName)


def check_segment(segment: ArchivedSegment) -> None:
    """Raise CommitRefused unless the values fit together. Says nothing about the objects themselves."""
    if not 0 <= segment.base_offset < segment.end_offset:
        raise CommitRefused(f"segment {segment}: its end must lie above its base")
    if not is_id(segment.segment_id):
        raise CommitRefused(f"segment {segment}: its id does not have 22 characters")
    expected_keys = (
        log_key(segment.base_offset, segment.segment_id),
        indexes_key(segment.base_offset, segment.segment_id),
    )
    if (segment.log_key, segment.indexes_key) != expected_keys:
        raise CommitRefused(
            f"segment {segment}: keys {segment.log_key!r} and {segment.indexes_key!r}, expected {expected_keys[0]!r} and "
            f"{expected_keys[1]!r}"
        )
    names = {part.name for part in segment.parts}
    if len(names) != len(segment.parts) or not names >= REQUIRED_PARTS:
        missing = ", ".join(sorted(REQUIRED_PARTS - names)) or "none"
        raise CommitRefused(f"segment {segment}: parts missing: {missing}; or a part is named twice")
    if segment.parts[0].name is not PartName.LOG or segment.parts[0].position != 0:
        raise CommitRefused(f"segment {segment}: the first part must be the log, at position 0 of its own object")
    _check_sizes(segment)
    _check_epochs(segment)
    if (segment.generation == 0) != (segment.strategy is None):
        raise CommitRefused(
            f"segment {segment}: generation {segment.generation} with strategy {segment.strategy!r}: raw segments have "
            f"generation 0 and no strategy, compacted ones have both"
        )
    _check_origin(segment)


def _check_sizes(segment: ArchivedSegment) -> None:
    for part in segment.parts:
        end, end_max = (
            part.position + part.size_bytes,
            LOG_BYTES_MAX if part.name is PartName.LOG else INDEXES_BYTES_MAX,
        )
        if end > end_max:
            raise CommitRefused(
                f"segment {segment}: part {part.name} claims bytes {part.position} to {end}, its object has at most "
                f"{end_max}. No release wrote this. Restore the commit from a replica of the bucket or an earlier "
                "object version. Until then, every command that reads it stops here"
            )


def _check_origin(segment: ArchivedSegment) -> None:
    raw = segment.compacted_from
    if raw is None:
        return
    if not segment.base_offset <= raw.base_offset < raw.end_offset <= segment.end_offset:
        raise CommitRefused(
            f"segment {segment}: compacted_from [{raw.base_offset}, {raw.end_offset}) does not lie within it"
        )


def _check_epochs(segment: ArchivedSegment) -> None:
    epochs = segment.leader_epochs
    if any(not segment.base_offset <= epoch.start_offset < segment.end_offset for epoch in epochs):
        raise CommitRefused(f"segment {segment}: a leader epoch begins outside the segment: {epochs}")
    if any(a.epoch >= b.epoch or a.start_offset >= b.start_offset for a, b in pairwise(epochs)):
        raise CommitRefused(f"segment {segment}: leader epochs and their starts must ascend: {epochs}")


def segment_to_json(segment: ArchivedSegment) -> Json:
    """The JSON form. Inverse: `segment_from_json`."""
    found: dict[str, Json] = {
        "base_offset": segment.base_offset,
        "end_offset": segment.end_offset,
        "segment_id": segment.segment_id,
        "log_key": segment.log_key,
        "indexes_key": segment.indexes_key,
        "parts": {
            part.name.value: {
                "position": part.position,
                "size_bytes": part.size_bytes,
                "crc32c": f"{part.crc32c:08x}",
            }
            for part in segment.parts
        },
        "leader_epochs": [[epoch.epoch, epoch.start_offset] for epoch in segment.leader_epochs],
        "highest_batch_leader_epoch": segment.highest_batch_leader_epoch,
        "max_timestamp_ms": segment.max_timestamp_ms,
        "batch_count": segment.batch_count,
        "snapshot": {
            "origin": segment.snapshot.origin.value,
            "exact": segment.snapshot.exact,
            "start_offset": segment.snapshot.start_offset,
            "window_ms": segment.snapshot.window_ms,
        },
        "generation": segment.generation,
        "strategy": segment.strategy,
        "strategy_parameters": segment.strategy_parameters,
        "source": _source_to_json(segment),
        "first_batch_crc": _checksum_to_json(segment.first_batch_crc),
        "last_batch_crc": _checksum_to_json(segment.last_batch_crc),
    }
    if raw := segment.compacted_from:
        found["compacted_from"] = {
            "base_offset": raw.base_offset,
            "end_offset": raw.end_offset,
            "first_batch_crc": _checksum_to_json(raw.first_crc),
            "last_batch_crc": _checksum_to_json(raw.last_crc),
        }
    return found


def _source_to_json(segment: ArchivedSegment) -> Json:
    if segment.source_path is None:
        return None
    # A path need not be UTF-8; it is kept for people only, so what cannot be spelled may be lost.
    path = segment.source_path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    source: dict[str, Json] = {
        "path": path,
        "mtime_ns": segment.source_mtime_ns,
        "size_bytes": segment.source_size_bytes,
    }
    return {**source, "position": segment.source_position} if segment.source_position else source


def _checksum_to_json(checksum: int | None) -> Json:
    return None if checksum is None else f"{checksum:08x}"


def segment_from_json(found: JsonObject) -> ArchivedSegment:
    """Read and check one segment. Raises CorruptFile with the file and the field."""
    source = found.optional("source", found.nested)
    segment = ArchivedSegment(
        segment_id=found.text("segment_id", 22),
        base_offset=found.integer("base_offset"),
        end_offset=found.integer("end_offset"),
        log_key=ObjectKey(found.text("log_key")),
        indexes_key=ObjectKey(found.text("indexes_key")),
        parts=_parts_from_json(found.nested("parts")),
        leader_epochs=_epochs_from_json(found),
        highest_batch_leader_epoch=found.integer("highest_batch_leader_epoch", -1, INT32_MAX),
        max_timestamp_ms=found.integer("max_timestamp_ms", INT64_MIN),
        batch_count=found.integer("batch_count"),
        snapshot=_snapshot_from_json(found.nested("snapshot")),
        generation=found.integer("generation", 0, INT32_MAX),
        strategy=found.optional("strategy", found.text),
        strategy_parameters=found.texts("strategy_parameters"),
        source_path=source.text("path") if source else None,
        source_mtime_ns=source.optional("mtime_ns", partial(source.integer, low=INT64_MIN)) if source else None,
        source_size_bytes=source.optional("size_bytes", source.integer) if source else None,
        source_position=(source.optional("position", source.integer) or 0) if source else 0,
        first_batch_crc=found.optional("first_batch_crc", found.checksum),
        last_batch_crc=found.optional("last_batch_crc", found.checksum),
        compacted_from=_raw_from_json(found.optional("compacted_from", found.nested)),
    )
    try:
        check_segment(segment)
    except CommitRefused as error:
        # Both the path and the error end and begin with "segment" where an action holds it.
        raise CorruptFile(f"{found.path.removesuffix('segment.')}{error}", file=found.file) from error
    return segment


def _raw_from_json(found: JsonObject | None) -> RawBatches | None:
    if found is None:
        return None
    return RawBatches(
        found.integer("base_offset"),
        found.integer("end_offset"),
        found.optional("first_batch_crc", found.checksum),
        found.optional("last_batch_crc", found.checksum),
    )


def _parts_from_json(found: JsonObject) -> tuple[Part, ...]:
    parts = []
    for name in _PART_NAMES:
        part = found.optional(name.value, found.nested)
        if part is not None:
            parts.append(Part(name, part.integer("position"), part.integer("size_bytes"), part.checksum("crc32c")))
    if not parts:
        raise CorruptFile(f"{found.path} does not name a part", file=found.file)
    return tuple(parts)


def _epochs_from_json(found: JsonObject) -> tuple[LeaderEpoch, ...]:
    epochs = []
    for pair in found.items("leader_epochs"):
        if type(pair) is not list or len(pair) != 2 or any(type(number) is not int for number in pair):
            found.refuse("leader_epochs", "pairs of epoch and start offset")
        epoch, start_offset = pair
        if not 0 <= epoch <= INT32_MAX:
            found.refuse("leader_epochs", f"epochs from 0 to {INT32_MAX}")
        epochs.append(LeaderEpoch(epoch, start_offset))
    return tuple(epochs)


def _snapshot_from_json(found: JsonObject) -> SnapshotProvenance:
    origin = found.text("origin")
    if origin not in {"broker", "rebuilt"}:
        found.refuse("origin", "broker or rebuilt")
    return SnapshotProvenance(
        SnapshotOrigin(origin),
        exact=found.flag("exact"),
        start_offset=found.optional("start_offset", found.integer),
        window_ms=found.optional("window_ms", found.integer),
    )
