"""A file in the log dir for as long as a command is not through: which partitions it has finished.

A broker takes no notice of it: of the entries of a log dir it looks at directories only, and at files that it knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sidecar.logformat.names import directory_name
from sidecar.model import TopicPartition
from sidecar.pipeline.restore.staging import new_file, owner_for, translating
from sidecar.pipeline.snapshots.placing import sync_directory

PREFIX: Final = ".restore-"
_VERSION: Final = 1


class CommandNote:
    """The note of one topic in one log dir. A partition is finished if its directory is the very one that is noted."""

    def __init__(self, log_dir: Path, topic: str) -> None:
        self._path = log_dir / f"{PREFIX}{topic}.json"

    def is_finished(self, topic_partition: TopicPartition) -> bool:
        """Whether an earlier run gave this partition's directory its name."""
        name = directory_name(topic_partition)
        directory = self._path.parent / name
        return directory.is_dir() and self._read().get(name) == directory.stat().st_ino

    def add(self, directory_ids: Mapping[TopicPartition, int]) -> None:
        """Note these too, before they get their names. Raises StagingFull, PartitionError."""
        names = self._read() | {directory_name(found): inode for found, inode in directory_ids.items()}
        with new_file(self._path, owner_for(self._path.parent)) as file:
            file.write(json.dumps({"version": _VERSION, "finished": names}).encode())
        sync_directory(self._path.parent)

    def remove(self) -> None:
        """The command is through. Raises PartitionError."""
        with translating(self._path):
            self._path.unlink(missing_ok=True)
        sync_directory(self._path.parent)

    def _read(self) -> dict[str, int]:
        try:
            found = json.loads(self._path.read_bytes())
            names = found["finished"] if found["version"] == _VERSION else {}
            return {str(name): int(inode) for name, inode in names.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}  # Then nothing is taken for finished, and what stands there is left alone.
