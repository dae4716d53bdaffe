"""The log directory to restore into: whose it is, whether a partition's place is free, and what earlier runs finished there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from sidecar.broker.log_dir_state import read_file
from sidecar.errors import SettingsError
from sidecar.host.log_dir_lock import LogDirRefused
from sidecar.host.placing import sync_directory
from sidecar.logformat.files import is_there, read_regular
from sidecar.logformat.leader_epochs import read_leader_epochs
from sidecar.logformat.metadata_files import read_meta_properties, read_partition_metadata
from sidecar.logformat.names import (
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOCK,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    STAGING_SUFFIX,
    Suffix,
    directory_name,
    live_partition,
    parse_directory_name,
    parse_file_name,
)
from sidecar.model import TopicPartition
from sidecar.restore.request import LeaderEpochMode, ProducerStateMode, TargetCluster
from sidecar.restore.staging import (
    TEMPORARY_SUFFIX,
    name_with_topic,
    new_file,
    owner_for,
    staged_partition,
)

PREFIX: Final = ".restore-"


class Restored(BaseModel):
    """A directory that a run finished.

    `asked`: as `decisions.asked_for`; `identities`: of its segments; `end_offset`: as planned; `files`: sizes in bytes by name.
    """

    model_config = ConfigDict(frozen=True)

    topic_id: str | None
    leader_epochs: LeaderEpochMode
    producer_state: ProducerStateMode
    asked: dict[str, Any]
    identities: tuple[str, ...]
    end_offset: int
    files: dict[str, int]


class _Finished(BaseModel):
    """A directory by its inode, and what it was made from."""

    inode: int
    seal: Restored


class _Notes(BaseModel):
    version: Literal[2] = 2
    finished: dict[str, _Finished]


class CommandNote:
    """The note of one topic in one log dir. A partition is finished if its directory is the very one that is noted.

    It stays when all are finished, so that the same command can tell. A broker takes no notice of the file: in a log dir it reads
    directories only, and files that it knows.
    """

    def __init__(self, log_dir: Path, topic: str) -> None:
        # Under the temporary suffix, too, the name must not be too long.
        self._path = log_dir / name_with_topic(PREFIX, topic, f".json{TEMPORARY_SUFFIX}").removesuffix(TEMPORARY_SUFFIX)

    def finished(self) -> dict[Path, Restored]:
        """The directories that are finished, of whichever run, with what they were made from."""
        found = {self._path.parent / name: entry for name, entry in self._read().items()}
        return {
            directory: entry.seal
            for directory, entry in found.items()
            if directory.is_dir() and directory.stat().st_ino == entry.inode
        }

    def add(self, directories: Mapping[TopicPartition, tuple[int, Restored]]) -> None:
        """Note these too, by inode and seal, before they get their names. Raises StagingFull, PartitionError."""
        new = {directory_name(found): _Finished(inode=inode, seal=seal) for found, (inode, seal) in directories.items()}
        with new_file(self._path, owner_for(self._path.parent)) as file:
            file.write(_Notes(finished={**self._read(), **new}).model_dump_json().encode())
        sync_directory(self._path.parent)

    def _read(self) -> dict[str, _Finished]:
        try:
            return _Notes.model_validate_json(read_regular(self._path)).finished
        except (OSError, ValueError):
            return {}  # Then nothing is taken for finished, and existing files stay.


CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
"""Of a log dir: a restored log gets its entries there."""
_OWN_FILES = frozenset({LOCK, *CHECKPOINTS, *(f"{name}.tmp" for name in CHECKPOINTS)})


@dataclass(frozen=True, slots=True)
class Target:
    """A log dir. `is_kraft` is None where there is no `meta.properties`: no broker's directory yet. `cluster_id` too, unless the
    cluster was asked.

    `topic_ids`: what the topic's directories here say, by their names; unfinished ones of a restore included. `partitions`: those
    that have a directory.
    """

    log_dir: Path
    cluster_id: str | None
    is_kraft: bool | None
    topic_ids: Mapping[str, str]
    partitions: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a partition goes. `seal`: what an earlier run noted of the directory that it finished there, None for none.

    `leader_epoch`: the highest that the empty log there has seen, -1 where nothing says so.
    """

    seal: Restored | None = None
    leader_epoch: int = -1


def read_target(log_dir: Path, topic: str) -> Target:
    """What a log dir says of itself; it need not exist. Raises LogDirRefused, CorruptFile, PartitionError."""
    if _is_in_a_log_dir(log_dir.absolute()):
        raise _partition_named(log_dir)
    if not log_dir.exists():
        if not log_dir.parent.is_dir():
            raise LogDirRefused(
                f"{log_dir}: neither it nor the directory above it exists; create that one, or correct --to"
            )
        return Target(log_dir, None, None, {})
    if not log_dir.is_dir():
        raise LogDirRefused(f"{log_dir}: not a directory; correct --to")
    try:
        names = sorted(entry.name for entry in log_dir.iterdir())
    except OSError as error:
        raise LogDirRefused(
            f"{log_dir}: cannot be listed ({error.strerror}); run as the broker's user, or as root"
        ) from error
    if any((found := parse_file_name(name)) and found.suffix is Suffix.LOG for name in names):
        raise _partition_named(log_dir)
    own = {
        name: parsed
        for name in names
        if (parsed := staged_partition(name, topic) or live_partition(name)) and parsed.topic == topic
    }
    topic_ids = {
        name: topic_id
        for name in own
        if (path := log_dir / name / PARTITION_METADATA).is_file()
        and (topic_id := read_file(path, read_partition_metadata))
    }
    partitions = frozenset(parsed.partition for parsed in own.values())
    meta = read_file(log_dir / META_PROPERTIES, read_meta_properties)
    if meta is None:
        _require_own(log_dir, names)
        return Target(log_dir, None, None, topic_ids, partitions)
    return Target(log_dir, meta.cluster_id, meta.version == 1, topic_ids, partitions)


def _is_in_a_log_dir(path: Path) -> bool:
    """Whether the name is a partition's there; the directory may be empty, or not exist yet, and so not show it by segments."""
    has_ids = [(directory / META_PROPERTIES).exists() for directory in (path.parent, path)]
    return live_partition(path.name) is not None and has_ids == [True, False]


def _partition_named(directory: Path) -> LogDirRefused:
    return LogDirRefused(f"{directory}: is a partition's directory; --to is the log dir above it (log.dirs)")


def _require_own(log_dir: Path, names: list[str]) -> None:
    """Without `meta.properties` only what a restore makes may be there: this could be anybody's directory."""
    for name in names:
        parsed = parse_directory_name(name.removesuffix(STAGING_SUFFIX))
        is_partition = parsed is not None and parsed.topic_partition.topic != CLUSTER_METADATA_TOPIC
        if name not in _OWN_FILES and not name.startswith(PREFIX) and not is_partition:
            raise LogDirRefused(
                f"{log_dir}: is not empty (it contains {name}) and not a broker's log dir ({META_PROPERTIES} is "
                "missing); give an empty directory, or a log dir"
            )


def within(target: Target, cluster: TargetCluster | None) -> Target:
    """The log dir as one of this cluster. Raises SettingsError if it says that it is another's."""
    if cluster is None or cluster.cluster_id is None:
        return target
    if target.cluster_id not in {None, cluster.cluster_id}:
        raise SettingsError(
            f"{target.log_dir} belongs to cluster {target.cluster_id}, --bootstrap-server {cluster.servers} to cluster "
            f"{cluster.cluster_id}. Nothing was written: correct --to or --bootstrap-server"
        )
    return replace(target, cluster_id=cluster.cluster_id)


def place_of(target: Target, topic_partition: TopicPartition, other_log_dirs: Sequence[Path] = ()) -> Place:
    """Whether the partition's directory is free: absent, or as a new topic's, which no record was ever written to.

    Raises LogDirRefused if it is not, or if another log dir of the broker has the partition; PartitionError if that cannot be seen.
    """
    directory = target.log_dir / directory_name(topic_partition)
    for other in other_log_dirs:
        if is_there(other / directory.name):
            raise LogDirRefused(
                f"{other / directory.name}: the partition is in this log dir of the broker, and a broker does not start with one "
                f"in two log dirs. Restore it with --to {other}, or move that directory out of the log dir first"
            )
    if not directory.exists():
        return Place()
    try:
        sizes = {entry.name: entry.stat().st_size for entry in directory.iterdir()}
    except OSError as error:
        raise LogDirRefused(f"{directory}: cannot be listed ({error.strerror})") from error
    # First: an empty log that a broker made later may have the inode of the one that was restored.
    held = next((found for found in sorted(sizes.items()) if not _is_vacant(*found)), None)
    if held is not None:
        seal = CommandNote(target.log_dir, topic_partition.topic).finished().get(directory)
        if seal is not None:
            return Place(seal=seal)
        raise LogDirRefused(
            f"{directory}: is not empty (it holds {held[0]}, {held[1]} bytes); nothing is ever overwritten. Restore into another "
            f"directory, or move this one out of the log dir first"
        )
    epochs = read_file(directory / LEADER_EPOCH_CHECKPOINT, read_leader_epochs)
    return Place(leader_epoch=epochs.latest_epoch if epochs else -1)


def _is_vacant(name: str, size_bytes: int) -> bool:
    if name in {PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT}:
        return True
    found = parse_file_name(name)
    # The indexes of an active segment have their full size after a crash; without a record they say nothing.
    return found is not None and found.offset == 0 and (found.suffix is not Suffix.LOG or size_bytes == 0)
