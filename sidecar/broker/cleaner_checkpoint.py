"""`cleaner-offset-checkpoint` of a log dir: the first dirty offset of each partition that the cleaner has worked on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sidecar.broker.log_dir_state import read_file
from sidecar.errors import PartitionError
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.names import DirectoryState, parse_directory_name
from sidecar.model import TopicPartition
from sidecar.topic_policy import TopicPolicy

CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"


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
        with os.scandir(log_dir) as entries:
            names = [entry.name for entry in entries]
    except OSError as error:
        raise PartitionError(f"{log_dir} cannot be listed: {error.strerror or error}") from error
    parsed = [found for found in map(parse_directory_name, names) if found is not None]
    live = sorted(found.topic_partition for found in parsed if found.state is DirectoryState.LIVE)
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
