"""Positional reads of a file, opened late and with errors in our words."""

from __future__ import annotations

import os
from pathlib import Path

from sidecar.errors import PartitionError, SegmentChanged
from sidecar.logformat.regular_file import open_regular


class LazyFile:
    """A file that is opened by its first read, so that a scan that is never begun holds no descriptor."""

    def __init__(self, path: Path) -> None:
        """Raises SegmentChanged if there is no such file."""
        self._path = path
        self._descriptor: int | None = None
        try:
            self.size_bytes = path.stat().st_size
        except OSError as error:
            raise self._ours(error) from error

    def _ours(self, error: OSError) -> PartitionError:
        if isinstance(error, FileNotFoundError):
            return SegmentChanged(f"{self._path}: vanished; it is looked at again at the next scan")
        return PartitionError(f"{self._path}: cannot be read: {error.strerror or error}")

    def read_at(self, position: int, buffer: memoryview) -> int:
        """See ReadAt. Raises SegmentChanged or PartitionError."""
        try:
            if self._descriptor is None:
                self._descriptor = open_regular(self._path)
            return os.preadv(self._descriptor, [buffer], position)
        except OSError as error:
            raise self._ours(error) from error

    def close(self) -> None:
        """Let go of the descriptor; the next read opens the file again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
