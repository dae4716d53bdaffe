"""What the files of one log dir say about the broker and its partitions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sidecar.errors import CorruptFile, PartitionError
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.files import live_partitions, read_regular
from sidecar.logformat.metadata_files import MetaProperties, read_meta_properties
from sidecar.logformat.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
)
from sidecar.model import TopicPartition
from sidecar.topic_policy import TopicPolicy

Decoded = TypeVar("Decoded")


@dataclass(frozen=True, slots=True)
class OffsetCheckpoint:
    """One checkpoint file: offsets by partition; `exists`, and `error` where it cannot be read or believed."""

    path: Path
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    exists: bool = True
    error: PartitionError | None = None

    def lacks(self, topic_partition: TopicPartition) -> str:
        """Why this file says nothing about a partition, "" if it does. Raises PartitionError if it cannot be read."""
        if self.offset(topic_partition) is not None:
            return ""
        return f"{self.path.name} has no entry for {topic_partition}" if self.exists else f"{self.path} does not exist"

    def offset(self, topic_partition: TopicPartition) -> int | None:
        """The partition's offset, None where the file has none. Raises PartitionError if it cannot be read."""
        if self.error is not None:
            # One error is raised for every partition of the log dir: it must not gather their tracebacks.
            raise self.error.with_traceback(None)
        return self.offsets.get(topic_partition)


@dataclass(frozen=True, slots=True)
class LogDirState:
    """The files of one log dir at one moment. `meta` is None where there is none to read; `problem` says why."""

    log_dir: Path
    meta: MetaProperties | None
    problem: str
    high_watermark: OffsetCheckpoint
    recovery_point: OffsetCheckpoint
    log_start: OffsetCheckpoint


def read_log_dir_state(log_dir: Path) -> LogDirState:
    """Reads the small files of a log dir. Raises CorruptFile for a malformed `meta.properties`, nothing else."""
    meta, problem = None, ""
    try:
        meta = read_file(log_dir / META_PROPERTIES, read_meta_properties)
        if meta is None:
            problem = f"{log_dir} holds no {META_PROPERTIES}" if log_dir.is_dir() else f"{log_dir} does not exist"
    except CorruptFile:
        raise
    except PartitionError as error:
        # A failed disk of several: the broker goes on without it, and so do we.
        is_file = isinstance(error.__cause__, NotADirectoryError)
        problem = f"{log_dir} is a file, not a directory" if is_file else str(error)
    names = HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT
    return LogDirState(log_dir, meta, problem, *(_checkpoint(log_dir / name) for name in names))


def _checkpoint(path: Path) -> OffsetCheckpoint:
    try:
        offsets = read_file(path, read_offset_checkpoint)
        return OffsetCheckpoint(path, exists=False) if offsets is None else OffsetCheckpoint(path, offsets)
    except PartitionError as error:
        return OffsetCheckpoint(path, error=error)


def read_file(path: Path, decode: Callable[[bytes, str], Decoded]) -> Decoded | None:
    """A small file, decoded; None if it does not exist.

    Raises PartitionError if it cannot be read, and what `decode` raises.
    """
    try:
        data = read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        advice = "; run as the broker's user" if isinstance(error, PermissionError) else ""
        raise PartitionError(f"{path}: cannot be read: {error.strerror or error}{advice}") from error
    return decode(data, str(path))


@dataclass(frozen=True, slots=True)
class CleanerCheckpoint:
    """First dirty offsets, and when the file was last written (None: there is none, the cleaner never came)."""

    offsets: Mapping[TopicPartition, int]
    written_ms: int | None


def read_cleaner_checkpoint(log_dir: Path) -> CleanerCheckpoint:
    """Raises PartitionError where it cannot be read, CorruptFile where it cannot be believed."""
    path = log_dir / CLEANER_CHECKPOINT
    offsets = read_file(path, read_offset_checkpoint)
    try:
        written_ms = path.stat().st_mtime_ns // 1_000_000
    except OSError:
        written_ms = None
    return CleanerCheckpoint(offsets or {}, None if offsets is None else written_ms)


def compaction_candidates(
    log_dir: Path, checkpoint: CleanerCheckpoint, policy_of: Callable[[str], TopicPolicy]
) -> list[TopicPartition]:
    """Partitions here that the cleaner works on: by their topics' configurations, else those it has worked on before.

    Raises PartitionError if the log dir cannot be listed.
    """
    try:
        live = sorted(live_partitions(log_dir))
    except OSError as error:
        raise PartitionError(f"{log_dir} cannot be listed: {error.strerror or error}") from error
    policies = {topic: policy_of(topic) for topic in {found.topic for found in live}}
    return [
        found
        for found in live
        if (
            found in checkpoint.offsets
            if policies[found.topic].cleanup_policy is None
            else policies[found.topic].is_compacted
        )
    ]
