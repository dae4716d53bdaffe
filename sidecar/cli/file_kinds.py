"""What kind of file a name means, and what is in it: rows or one object, as the stable JSON has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from producer_state.snapshot import CorruptSnapshot, describe
from sidecar.errors import CorruptFile, PartitionError, SettingsError
from sidecar.logformat import offset_index, time_index, transaction_index
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.index_dump import DUMPED_SUFFIXES, dump_index, dump_leader_epochs
from sidecar.logformat.meta_properties import read_meta_properties
from sidecar.logformat.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    Suffix,
)
from sidecar.logformat.partition_metadata import read_partition_metadata
from sidecar.ports import MIB

SMALL_FILE_BYTES_MAX = 256 * MIB
"""More than any index or checkpoint has; a `.log` is never read as a whole."""

OFFSET_CHECKPOINTS = {CLEANER_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT}
KNOWN = (
    "*.log *.index *.timeindex *.txnindex *.snapshot leader-epoch-checkpoint *-offset-checkpoint meta.properties "
    "partition.metadata, and in an archive *.indexes, commits and checkpoints"
)

ENTRY_BYTES = {
    Suffix.OFFSET_INDEX: offset_index.ENTRY.itemsize,
    Suffix.TIME_INDEX: time_index.ENTRY.itemsize,
    Suffix.TRANSACTION_INDEX: transaction_index.ENTRY.itemsize,
}
ASCENDING = {"offset", "position", "timestamp_ms", "last_offset"}

_RENAMED = re.compile(r"\.(?:deleted|swap|cleaned)$")
_BASE_OFFSET = re.compile(r"[0-9]{20}(?=[.-])")
ARCHIVE_PARENTS = 6
"""Folders above an object: segments, incarnation, partition, topic, cluster, and the archive itself."""


@dataclass(frozen=True, slots=True)
class Content:
    """`rows`: one JSON-able dict per entry, in file order. `whole`: the file as one object, instead of rows."""

    rows: Iterable[Mapping[str, Any]] = ()
    whole: Mapping[str, Any] | None = None


def archive_of(path: Path) -> tuple[Path, str] | None:
    """The directory of the archive that a local file belongs to, and the file's key.

    None if the file is of a kind that explains itself, or lies in no archive.
    """
    path = path.absolute()
    if len(path.parents) < ARCHIVE_PARENTS or not path.name.endswith((".indexes", ".json")):
        return None
    archive = path.parents[ARCHIVE_PARENTS - 1]
    return archive, path.relative_to(archive).as_posix()


def content_of(path: Path, *, records: bool = False, base_offset: int | None = None) -> Content:
    """The content of a local file, by its name.

    Args:
        records: of a `.log` every record instead of every batch.
        base_offset: of the segment, where the name does not say it.

    Raises SettingsError for names that mean nothing; PartitionError, also while rows are taken, for files that cannot
    be read or do not hold what they should.
    """
    if not path.is_file():
        raise SettingsError(f"{path}: there is no such file")
    name = _RENAMED.sub("", path.name)
    digits = _BASE_OFFSET.match(name)
    if base_offset is None and digits is not None:
        base_offset = int(digits[0])
    suffix = name.rpartition(".")[2]
    if suffix == Suffix.LOG:
        from sidecar.logformat.dump import dump_batches, dump_records

        dump = dump_records if records else dump_batches
        return Content(rows=dump(path, base_offset=base_offset))
    if suffix in DUMPED_SUFFIXES and base_offset is None:
        raise SettingsError(f"{path}: its name does not begin with the segment's base offset: give --base-offset")
    if suffix not in set(Suffix) and name not in {
        *OFFSET_CHECKPOINTS,
        LEADER_EPOCH_CHECKPOINT,
        META_PROPERTIES,
        PARTITION_METADATA,
    }:
        raise SettingsError(f"{path}: the name is of no kind that can be inspected: {KNOWN}")
    return small_content(name, read_small(path), base_offset or 0, str(path))


def small_content(name: str, data: bytes, base_offset: int, file: str) -> Content:
    """The content of anything but a `.log`, from its bytes. Raises CorruptFile."""
    suffix = name.rpartition(".")[2]
    if suffix == Suffix.SNAPSHOT:
        return Content(whole=read_snapshot_file(data, file))
    if suffix in DUMPED_SUFFIXES:
        rows = dump_index(Suffix(suffix), data, base_offset, file)
        return Content(rows=_until_they_fall(rows, ENTRY_BYTES[Suffix(suffix)], base_offset, file))
    if name == LEADER_EPOCH_CHECKPOINT:
        return Content(rows=dump_leader_epochs(data, file))
    if name in OFFSET_CHECKPOINTS:
        return Content(rows=_offsets(data, file))
    if name == META_PROPERTIES:
        found = read_meta_properties(data, file)
        ids = {"cluster_id": found.cluster_id, "broker_id": found.broker_id, "directory_id": found.directory_id}
        return Content(whole={"kind": "meta_properties", "version": found.version, **ids})
    topic_id = read_partition_metadata(data, file)
    return Content(whole={"kind": "partition_metadata", "version": 0, "topic_id": topic_id})


def _until_they_fall(
    rows: Iterator[Mapping[str, int]], entry_bytes: int, base_offset: int, file: str
) -> Iterator[Mapping[str, int]]:
    """Rows as long as they can be those of an index: no field that ascends falls, no offset lies below the base."""
    before: Mapping[str, int] = {}
    for number, row in enumerate(rows):
        lowest = {"offset": base_offset, "position": 0, "last_offset": base_offset, **before}
        for name in ASCENDING & row.keys():
            if row[name] < lowest.get(name, row[name]):
                found = f"{name} {row[name]}, expected {lowest[name]} or more"
                raise CorruptFile(found, file=file, position=number * entry_bytes)
        yield row
        before = row


def read_snapshot_file(data: bytes, file: str) -> Mapping[str, Any]:
    """A producer snapshot as one object. Raises CorruptFile."""
    try:
        return {**describe(data)}
    except CorruptSnapshot as error:
        raise CorruptFile(error.what, file=file, position=error.position) from error


def read_small(path: Path) -> bytes:
    """The bytes of a file that cannot be large. Raises PartitionError."""
    try:
        with path.open("rb") as file:
            data = file.read(SMALL_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise PartitionError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > SMALL_FILE_BYTES_MAX:
        raise CorruptFile(f"larger than {SMALL_FILE_BYTES_MAX} bytes, which no such file is", file=str(path))
    return data


def _offsets(data: bytes, file: str) -> Iterator[Mapping[str, Any]]:
    for found, offset in read_offset_checkpoint(data, file).items():
        yield {"topic": found.topic, "partition": found.partition, "offset": offset}
