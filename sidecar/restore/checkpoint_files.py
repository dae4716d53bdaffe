"""The log dir's checkpoint files, with entries for what was restored and all others as they were."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sidecar.errors import PartitionError
from sidecar.host.placing import sync_directory
from sidecar.logformat.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from sidecar.logformat.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from sidecar.logformat.regular_file import read_regular
from sidecar.model import TopicPartition
from sidecar.restore.finishing import FinishedLog
from sidecar.restore.staging import new_file, owner_for


def require_readable(log_dir: Path) -> None:
    """That every one can be read which is to get entries in the end. Raises CorruptFile, PartitionError."""
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, CLEANER_CHECKPOINT):
        read_offset_checkpoint(_content(log_dir / name), str(log_dir / name))


def enter_into_checkpoints(log_dir: Path, logs: Mapping[TopicPartition, FinishedLog]) -> None:
    """Tell the next broker where the restored logs begin and end. Raises CorruptFile, StagingFull, PartitionError.

    Recovery point = log end: every byte was checked and synced, so that also a start after a crash replays only the empty
    active segment (with dropped producer state a replay would bring it back). High watermark = log end: an archive has
    nothing above it. Log start: only where it lies above the first file's base. Cleaner offset: of a compacted log its start,
    so that the broker's cleaner takes all of it for dirty, and whoever looks for lost offsets knows why some are missing; of
    another one none.
    Source: LogManager.loadLogs, Partition.createLog, LogCleanerManager.cleanableOffsets.
    """
    ends = {partition: log.end_offset for partition, log in logs.items()}
    starts = {
        partition: log.start_offset for partition, log in logs.items() if log.start_offset > log.first_base_offset
    }
    cleaned = {partition: log.start_offset for partition, log in logs.items() if log.compacted}
    for name, new in (
        (RECOVERY_POINT_CHECKPOINT, ends),
        (HIGH_WATERMARK_CHECKPOINT, ends),
        (LOG_START_CHECKPOINT, starts),
        (CLEANER_CHECKPOINT, cleaned),
    ):
        _update(log_dir / name, new, logs)
    sync_directory(log_dir)


def _update(path: Path, new: Mapping[TopicPartition, int], restored: Mapping[TopicPartition, object]) -> None:
    before = _content(path)
    others = {
        found: offset for found, offset in read_offset_checkpoint(before, str(path)).items() if found not in restored
    }
    content = write_offset_checkpoint({**others, **new})
    if content == before or not (before or new):
        return
    with new_file(path, owner_for(path.parent)) as file:
        file.write(content)


def _content(path: Path) -> bytes:
    try:
        return read_regular(path)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise PartitionError(
            f"{path}: cannot be read: {error.strerror}; run as the broker's user, or as root"
        ) from error
