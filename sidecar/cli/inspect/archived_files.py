"""Objects of an archive, and files at any URL, as content: `.log` by way of a temporary copy, `.indexes` cut into its parts."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sidecar.archive.bundle import cut_part
from sidecar.archive.checkpoint import CHECKPOINT_BYTES_MAX, decode_checkpoint
from sidecar.archive.commit import COMMIT_BYTES_MAX, decode_commit
from sidecar.archive.keys import (
    CHECKPOINTS,
    COMMITS,
    INDEXES_SUFFIX,
    SEGMENTS,
    Lineage,
    SegmentObject,
    parse_number,
    parse_root,
    parse_segment_key,
)
from sidecar.archive.strict_json import unseal
from sidecar.cli.inspect.file_kinds import (
    Content,
    kind_of,
    log_content,
    require_small,
    small_content,
)
from sidecar.clock import SystemClock
from sidecar.commits.commit_log import CommitLog
from sidecar.errors import CorruptFile, ObjectMissing, PartitionError, SettingsError
from sidecar.logformat.files import SMALL_FILE_BYTES_MAX
from sidecar.logformat.names import LEADER_EPOCH_CHECKPOINT, Suffix
from sidecar.model import ObjectKey, PartName
from sidecar.ports import ObjectStore
from sidecar.rewriting.work_files import write_file
from sidecar.segment.archived_objects import read_indexes
from sidecar.spark.scratch import Scratch

ROOT_ELEMENTS = 4

_KEYS = "a key has the form <cluster id>/<topic>/<partition>/<topic id>/segments/<base offset>-<segment id>.log"
_NAMES = {
    PartName.OFFSET_INDEX: f"x.{Suffix.OFFSET_INDEX}",
    PartName.TIME_INDEX: f"x.{Suffix.TIME_INDEX}",
    PartName.TRANSACTION_INDEX: f"x.{Suffix.TRANSACTION_INDEX}",
    PartName.PRODUCER_SNAPSHOT: f"x.{Suffix.SNAPSHOT}",
    PartName.EMPTY_SNAPSHOT: f"x.{Suffix.SNAPSHOT}",
    PartName.LEADER_EPOCHS: LEADER_EPOCH_CHECKPOINT,
    PartName.FLAT_LEADER_EPOCHS: LEADER_EPOCH_CHECKPOINT,
}


def archived_content(store: ObjectStore, key: str, *, records: bool = False) -> Content:
    """The content of an object.

    Raises SettingsError for keys that mean nothing, StoreError, and PartitionError, also while rows are taken.
    """
    elements = key.strip("/").split("/")
    try:
        lineage = parse_root("/".join(elements[:ROOT_ELEMENTS]))
    except SettingsError as error:
        raise SettingsError(f"{key}: no such object; {_KEYS}") from error
    relative = "/".join(elements[ROOT_ELEMENTS:])
    if relative.startswith((COMMITS, CHECKPOINTS)):
        _require_object(store, ObjectKey(key))
        return Content(whole=_json_object(store, lineage, relative))
    found = parse_segment_key(relative) if relative.startswith(SEGMENTS) else None
    if found is None:
        raise SettingsError(f"{key}: not a segment object, a commit or a checkpoint; {_KEYS}")
    _require_object(store, ObjectKey(key))
    if found.suffix == INDEXES_SUFFIX:
        return Content(rows=_parts(store, lineage, found, ObjectKey(key)))
    return Content(rows=_log_rows(store, ObjectKey(key), key, found.base_offset, records=records))


def stored_content(store: ObjectStore, key: ObjectKey, *, records: bool, base_offset: int | None) -> Content:
    """The content of a broker's file that lies in a store, by its name. Raises as `archived_content`."""
    file = f"{store.url}/{key}"
    kind = kind_of(key, file, base_offset)
    _require_object(store, key, "correct the URL")
    if kind.is_log:
        return Content(rows=_log_rows(store, key, file, kind.base_offset, records=records))
    # Other files of the segment are not checked: an index may be one that a broker had open.
    data = require_small(store.read(key, 0, SMALL_FILE_BYTES_MAX + 1), file)
    return small_content(kind.name, data, kind.base_offset or 0, file, may_end_in_zeros=kind.is_index)


def _require_object(store: ObjectStore, key: ObjectKey, remedy: str = _KEYS) -> None:
    if store.head(key) is None:
        raise ObjectMissing(f"{key}: no such object at {store.url}; {remedy}")


def _json_object(store: ObjectStore, lineage: Lineage, relative: str) -> Mapping[str, Any]:
    key = ObjectKey(f"{lineage.root}/{relative}")
    number = parse_number(relative)
    if number is None:
        raise SettingsError(f"{key}: expected a name of 20 digits and .json")
    is_commit = relative.startswith(COMMITS)
    data = store.read(key, 0, COMMIT_BYTES_MAX if is_commit else CHECKPOINT_BYTES_MAX)
    if is_commit:
        decode_commit(data, key)
    else:
        decode_checkpoint(data, number, lineage, key)
    sealed: dict[str, Any] = json.loads(unseal("commit" if is_commit else "checkpoint", data, key))
    return sealed


def _log_rows(
    store: ObjectStore, key: ObjectKey, file: str, base_offset: int | None, *, records: bool
) -> Iterator[Mapping[str, Any]]:
    with Scratch(None, "inspect") as directory:
        path = directory / f"{base_offset or 0:020d}.log"
        write_file(path, store.stream(key), synced=False)
        try:
            yield from log_content(path, records=records, base_offset=base_offset).rows
        except CorruptFile as error:
            raise error.within(file) from error


def _parts(store: ObjectStore, lineage: Lineage, found: SegmentObject, key: ObjectKey) -> Iterator[Mapping[str, Any]]:
    """Only the commit knows where the parts are."""
    state = CommitLog(store, lineage.root, SystemClock()).read()
    segment = next((segment for segment in state.segments if segment.segment_id == found.segment_id), None)
    if segment is None:
        raise PartitionError(f"{key}: no live commit names segment {found.segment_id}, so its parts cannot be located")
    data = read_indexes(store, lineage.root, segment)
    for part in segment.parts:
        if part.name is PartName.LOG:
            continue
        content = small_content(
            _NAMES[part.name], cut_part(data, part, key), segment.base_offset, f"{key}, {part.name}"
        )
        rows = content.rows if content.whole is None else content.whole["entries"]
        for row in rows:
            yield {"part": str(part.name), **row}
