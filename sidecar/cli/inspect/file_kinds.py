"""What kind of file a name means, and what is in it: rows or one object, as the stable JSON has them."""

import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from producer_state.snapshot import CorruptSnapshot, describe
from sidecar.errors import CorruptFile, SettingsError
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.dump import DUMPED_SUFFIXES, dump_index, dump_leader_epochs
from sidecar.logformat.files import SMALL_FILE_BYTES_MAX, reading
from sidecar.logformat.indexes import offset_index, time_index, transaction_index
from sidecar.logformat.metadata_files import (
    read_meta_properties,
    read_partition_metadata,
)
from sidecar.logformat.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    MAX_OFFSET,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    Suffix,
    parse_file_name,
)

ENTRY_BYTES = {
    Suffix.OFFSET_INDEX: offset_index.ENTRY.itemsize,
    Suffix.TIME_INDEX: time_index.ENTRY.itemsize,
    Suffix.TRANSACTION_INDEX: transaction_index.ENTRY.itemsize,
}
RISING = {
    Suffix.OFFSET_INDEX: ("offset", "position"),
    Suffix.TIME_INDEX: ("timestamp_ms",),
    Suffix.TRANSACTION_INDEX: ("last_offset",),
}
"""What is greater in each entry than in the one before it. Offsets of a time index may repeat."""

Row = Mapping[str, int]


def index_rows(suffix: Suffix, data: bytes, base_offset: int, file: str, *, may_end_in_zeros: bool) -> Iterator[Row]:
    """Entries in file order. Raises CorruptFile at the first that cannot be one, or behind the last.

    Args:
        may_end_in_zeros: a broker may have the segment open, and trims the index when it closes it.
    """
    entry_bytes = ENTRY_BYTES[suffix]
    whole_bytes = len(data) // entry_bytes * entry_bytes
    used_bytes = whole_bytes
    if suffix is not Suffix.TRANSACTION_INDEX:
        used_bytes = len(offset_index.without_zero_tail(data[:whole_bytes], entry_bytes))
    before: Row = {}
    for number, row in enumerate(_entries(suffix, data[:used_bytes], base_offset, file)):
        _check(suffix, row, before, base_offset, file, number * entry_bytes)
        yield row
        before = row
    if whole_bytes < len(data):
        raise CorruptFile(f"size {len(data)} is not a multiple of {entry_bytes}", file=file, position=whole_bytes)
    if used_bytes < whole_bytes and not may_end_in_zeros:
        zeros = f"{whole_bytes - used_bytes} bytes of zeros, which only the index of an active segment has"
        raise CorruptFile(zeros, file=file, position=used_bytes)


def _entries(suffix: Suffix, data: bytes, base_offset: int, file: str) -> Iterator[Row]:
    if suffix is not Suffix.TRANSACTION_INDEX:
        yield from dump_index(suffix, data, base_offset, file)
        return
    # One by one: an entry of an unknown version must not hide those before it.
    entry_bytes = ENTRY_BYTES[suffix]
    for position in range(0, len(data), entry_bytes):
        try:
            yield from dump_index(suffix, data[position : position + entry_bytes], base_offset, file)
        except CorruptFile as error:
            raise error.within(file, shift_bytes=position) from error


def _check(suffix: Suffix, row: Row, before: Row, base_offset: int, file: str, position: int) -> None:
    lowest = dict.fromkeys(row, 0) | {"offset": base_offset, "last_offset": base_offset}
    if "offset" in before:
        lowest["offset"] = before["offset"]
    for name in RISING[suffix]:
        if name in before:
            lowest[name] = before[name] + 1
    if "first_offset" in row:
        lowest["last_offset"] = max(lowest["last_offset"], row["first_offset"])
    for name, value in row.items():
        if value < lowest[name]:
            raise CorruptFile(f"{name} {value}, expected {lowest[name]} or more", file=file, position=position)


def leader_epoch_rows(data: bytes, file: str) -> Iterator[Row]:
    """Epochs and their start offsets. Raises CorruptFile."""
    _require_content(data, file)
    return dump_leader_epochs(data, file)


def offset_rows(data: bytes, file: str) -> Iterator[Mapping[str, str | int]]:
    """Offsets by partition, of the checkpoint files in a log dir. Raises CorruptFile."""
    _require_content(data, file)
    for found, offset in read_offset_checkpoint(data, file).items():
        if found.partition < 0 or offset < 0:
            raise CorruptFile(f"partition {found.partition}, offset {offset}: expected 0 or more", file=file)
        yield {"topic": found.topic, "partition": found.partition, "offset": offset}


def _require_content(data: bytes, file: str) -> None:
    # A broker reads an empty file as one without entries, but none writes it: it was cut off.
    if not data:
        raise CorruptFile("is empty; expected a version and the number of entries", file=file, position=0)


OFFSET_CHECKPOINTS = {CLEANER_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT}
KNOWN = (
    "*.log *.index *.timeindex *.txnindex *.snapshot leader-epoch-checkpoint *-offset-checkpoint meta.properties "
    "partition.metadata, and in an archive *.indexes, commits and checkpoints"
)

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


def place_in_archive(url: str) -> tuple[str, str] | None:
    """As `archive_of`, of a file that its URL names: the URL of the archive, and the key."""
    scheme, _, rest = url.partition("://")
    elements = rest.split("/")
    if "::" in url or len(elements) <= ARCHIVE_PARENTS or not url.endswith((".indexes", ".json")):
        return None
    return f"{scheme}://{'/'.join(elements[:-ARCHIVE_PARENTS])}", "/".join(elements[-ARCHIVE_PARENTS:])


def path_of_url(url: str) -> str | None:
    """The local path that a `file:` URL names, None for other URLs."""
    parts = urlsplit(url)
    is_here = parts.scheme in {"file", "local"} and parts.netloc in {"", "localhost"} and "::" not in url
    return unquote(parts.path) if is_here else None


def content_of(path: Path, *, records: bool = False, base_offset: int | None = None) -> Content:
    """The content of a local file, by its name.

    Args:
        records: of a `.log` every record instead of every batch.
        base_offset: of the segment, where the name does not say it.

    Raises SettingsError for names that mean nothing; PartitionError, also while rows are taken, for files that cannot
    be read or do not hold what they should.
    """
    require_file(path)
    kind = kind_of(path.name, str(path), base_offset)
    if kind.is_log:
        return log_content(path, records=records, base_offset=kind.base_offset)
    may_end_in_zeros = kind.is_index and _is_active(path, kind.base_offset or 0)
    return small_content(
        kind.name, read_small(path), kind.base_offset or 0, str(path), may_end_in_zeros=may_end_in_zeros
    )


@dataclass(frozen=True, slots=True)
class FileKind:
    """What a file is by its name. `name`: without what brokers append while they delete or replace files."""

    name: str
    base_offset: int | None

    @property
    def is_log(self) -> bool:
        """Whether it holds batches."""
        return self.name.rpartition(".")[2] == Suffix.LOG

    @property
    def is_index(self) -> bool:
        """Whether its entries count from the base offset."""
        return self.name.rpartition(".")[2] in DUMPED_SUFFIXES


def kind_of(file_name: str, file: str, base_offset: int | None) -> FileKind:
    """Raises SettingsError for names that mean nothing. `file`: for messages; `base_offset`: if the name does not say it."""
    name = _RENAMED.sub("", file_name)
    digits = _BASE_OFFSET.match(name)
    if base_offset is None and digits is not None:
        base_offset = int(digits[0])
        if base_offset > MAX_OFFSET:
            raise SettingsError(f"{file}: the offset in its name is above 2^63-1: give --base-offset")
    kind = FileKind(name, base_offset)
    if kind.is_index and base_offset is None:
        raise SettingsError(f"{file}: its name does not begin with the segment's base offset: give --base-offset")
    if name.rpartition(".")[2] not in set(Suffix) and name not in {
        *OFFSET_CHECKPOINTS,
        LEADER_EPOCH_CHECKPOINT,
        META_PROPERTIES,
        PARTITION_METADATA,
    }:
        raise SettingsError(f"{file}: this kind of file cannot be inspected; known are {KNOWN}")
    return kind


def log_content(path: Path, *, records: bool, base_offset: int | None) -> Content:
    """The batches of a local `.log`, or all its records."""
    from sidecar.logformat.dump import dump_batches, dump_records

    return Content(rows=(dump_records if records else dump_batches)(path, base_offset=base_offset))


def require_file(path: Path) -> None:
    """Raises SettingsError, saying what it is, for a path that is not a regular file or that cannot be opened."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise SettingsError(
                f"{path} is a directory; inspect reads one file; `status --archive` shows an archive, "
                f"`snapshots check` a partition or log directory"
            )
        if not stat.S_ISREG(mode):
            raise SettingsError(f"{path} is a device, pipe or socket; inspect reads regular files")
        path.open("rb").close()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SettingsError(f"{path}: there is no such file") from error
    except PermissionError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}; run as the broker's user") from error
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from error


def _is_active(path: Path, base_offset: int) -> bool:
    """Whether the other files of the directory make it one of a partition's newest segment, which a broker may have open."""
    try:
        found = [parse_file_name(file.name) for file in path.parent.iterdir()]
    except OSError:
        return False
    bases = [name.offset for name in found if name is not None and name.suffix is Suffix.LOG]
    return bool(bases) and max(bases) == base_offset


def small_content(name: str, data: bytes, base_offset: int, file: str, *, may_end_in_zeros: bool = False) -> Content:
    """The content of anything but a `.log`, from its bytes. Raises CorruptFile, also while rows are taken."""
    suffix = name.rpartition(".")[2]
    if suffix == Suffix.SNAPSHOT:
        return Content(whole=read_snapshot_file(data, file))
    if suffix in DUMPED_SUFFIXES:
        return Content(rows=index_rows(Suffix(suffix), data, base_offset, file, may_end_in_zeros=may_end_in_zeros))
    if name == LEADER_EPOCH_CHECKPOINT:
        return Content(rows=leader_epoch_rows(data, file))
    if name in OFFSET_CHECKPOINTS:
        return Content(rows=offset_rows(data, file))
    if name == META_PROPERTIES:
        found = read_meta_properties(data, file)
        if not found.has_ids:
            raise CorruptFile("has no id of a cluster or a broker", file=file)
        ids = {"cluster_id": found.cluster_id, "broker_id": found.broker_id, "directory_id": found.directory_id}
        return Content(whole={"kind": "meta_properties", "version": found.version, **ids})
    topic_id = read_partition_metadata(data, file)
    return Content(whole={"kind": "partition_metadata", "version": 0, "topic_id": topic_id})


def read_snapshot_file(data: bytes, file: str) -> Mapping[str, Any]:
    """A producer snapshot as one object. Raises CorruptFile."""
    try:
        return describe(data)
    except CorruptSnapshot as error:
        raise CorruptFile(error.what, file=file, position=error.position) from error


def read_small(path: Path) -> bytes:
    """The bytes of a file that cannot be large. Raises PartitionError."""
    with reading(path), path.open("rb") as file:
        data = file.read(SMALL_FILE_BYTES_MAX + 1)
    return require_small(data, str(path))


def require_small(data: bytes, file: str) -> bytes:
    """The bytes themselves. Raises CorruptFile for more than SMALL_FILE_BYTES_MAX."""
    if len(data) > SMALL_FILE_BYTES_MAX:
        raise CorruptFile(f"larger than {SMALL_FILE_BYTES_MAX} bytes, which no file of this kind is", file=file)
    return data
