"""A file in the log dir for as long as a command is not through: which partitions it has finished.

A broker takes no notice of it: of the entries of a log dir it looks at directories only, and at files that it knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sidecar.host.placing import sync_directory
from sidecar.logformat.names import directory_name
from sidecar.logformat.regular_file import read_regular
from sidecar.model import TopicPartition
from sidecar.restore.staging import new_file, owner_for, translating

PREFIX: Final = ".restore-"
_VERSION: Final = 2


class CommandNote:
    """The note of one topic in one log dir. A partition is finished if its directory is the very one that is noted.

    `seal`: of each, what it was made from and its files, in JSON's types; see `restore.seal`.
    """

    def __init__(self, log_dir: Path, topic: str) -> None:
        self._path = log_dir / f"{PREFIX}{topic}.json"

    def finished(self) -> dict[Path, Mapping[str, Any]]:
        """The directories that are finished, of whichever run, with their seals."""
        found = {self._path.parent / name: entry for name, entry in self._read().items()}
        return {
            directory: entry["seal"]
            for directory, entry in found.items()
            if directory.is_dir() and directory.stat().st_ino == entry["inode"]
        }

    def add(self, directories: Mapping[TopicPartition, tuple[int, Mapping[str, Any]]]) -> None:
        """Note these too, by inode and seal, before they get their names. Raises StagingFull, PartitionError."""
        new = {directory_name(found): {"inode": inode, "seal": seal} for found, (inode, seal) in directories.items()}
        with new_file(self._path, owner_for(self._path.parent)) as file:
            file.write(json.dumps({"version": _VERSION, "finished": {**self._read(), **new}}).encode())
        sync_directory(self._path.parent)

    def remove(self) -> None:
        """The command is through. Raises PartitionError."""
        with translating(self._path):
            self._path.unlink(missing_ok=True)
        sync_directory(self._path.parent)

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            found = json.loads(read_regular(self._path))
            names = found["finished"] if found["version"] == _VERSION else {}
            return {
                str(name): {"inode": int(entry["inode"]), "seal": dict(entry["seal"])} for name, entry in names.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}  # Then nothing is taken for finished, and what stands there is left alone.
