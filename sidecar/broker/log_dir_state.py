"""What the files of one log dir say about the broker and its partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sidecar.errors import CorruptFile, PartitionError
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.meta_properties import MetaProperties, read_meta_properties
from sidecar.logformat.names import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
)
from sidecar.model import TopicPartition

Decoded = TypeVar("Decoded")

_LARGEST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class OffsetCheckpoint:
    """One checkpoint file: offsets by partition, and `problem` where it is missing or cannot be believed."""

    name: str
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    problem: str = ""

    def lacks(self, topic_partition: TopicPartition) -> str:
        """Why this file says nothing about a partition, "" if it does."""
        if topic_partition in self.offsets:
            return ""
        return self.problem or f"{self.name} has no entry for {topic_partition}"


@dataclass(frozen=True, slots=True)
class LogDirState:
    """The files of one log dir at one moment. `meta` is None where the file is missing or the disk cannot be read."""

    log_dir: Path
    meta: MetaProperties | None
    high_watermark: OffsetCheckpoint
    recovery_point: OffsetCheckpoint
    log_start: OffsetCheckpoint


def read_log_dir_state(log_dir: Path) -> LogDirState:
    """Reads the small files of a log dir. Raises CorruptFile for a malformed `meta.properties`, nothing else."""
    try:
        meta = read_file(log_dir / META_PROPERTIES, read_meta_properties)
    except CorruptFile:
        raise
    except PartitionError:
        # A failed disk of several: the broker goes on without it, and so do we.
        meta = None
    return LogDirState(
        log_dir=log_dir,
        meta=meta,
        high_watermark=_checkpoint(log_dir / HIGH_WATERMARK_CHECKPOINT),
        recovery_point=_checkpoint(log_dir / RECOVERY_POINT_CHECKPOINT),
        log_start=_checkpoint(log_dir / LOG_START_CHECKPOINT),
    )


def _checkpoint(path: Path) -> OffsetCheckpoint:
    try:
        offsets = read_file(path, read_offset_checkpoint)
    except PartitionError as error:
        return OffsetCheckpoint(path.name, problem=str(error))
    if offsets is None:
        return OffsetCheckpoint(path.name, problem=f"{path} does not exist")
    return OffsetCheckpoint(path.name, offsets)


def read_file(path: Path, decode: Callable[[bytes, str], Decoded]) -> Decoded | None:
    """A small file, decoded; None if it does not exist.

    Raises PartitionError if it cannot be read, and what `decode` raises.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PartitionError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > _LARGEST_BYTES:
        raise CorruptFile(f"larger than {_LARGEST_BYTES} bytes, no checkpoint is", file=str(path))
    return decode(data, str(path))
