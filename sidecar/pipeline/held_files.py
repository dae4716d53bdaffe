"""Segments held open from their planning on: the bytes outlive the broker's retention. Nothing is linked or written."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterable

from sidecar.errors import PartitionError, SegmentChanged
from sidecar.model import FileIdentity
from sidecar.pipeline.sources import identity_of, open_listed

HELD_MAX = 256


def descriptors_to_hold() -> int:
    """A quarter of what this process may open, at most `HELD_MAX`: connections and indexes need some too."""
    return min(HELD_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)


class HeldFiles:
    """Open descriptors by file. Thread-safe."""

    def __init__(self, limit: int | None = None) -> None:
        """Args: limit: descriptors held at once. Default: `descriptors_to_hold`."""
        self._limit = descriptors_to_hold() if limit is None else limit
        self._lock = threading.Lock()
        self._held: dict[FileIdentity, int] = {}

    def hold(self, files: Iterable[FileIdentity]) -> None:
        """Open these, the most urgent first, as far as there is room. What cannot be opened is told when it is its turn."""
        for file in files:
            with self._lock:
                if len(self._held) >= self._limit:
                    return
                if file in self._held:
                    continue
            try:
                descriptor = open_listed(file)
            except (SegmentChanged, PartitionError):
                continue
            with self._lock:
                self._held[file] = descriptor

    def take(self, file: FileIdentity) -> int:
        """A descriptor of the file, which is the caller's to close. Raises the errors of `open_listed`."""
        with self._lock:
            descriptor = self._held.pop(file, None)
        if descriptor is None:
            return open_listed(file)
        if identity_of(file.path, os.fstat(descriptor)) != file:
            os.close(descriptor)
            raise SegmentChanged(f"{file.path}: changed between planning and reading; the next scan decides anew")
        return descriptor

    def release(self) -> None:
        """Close what nobody took."""
        with self._lock:
            descriptors, self._held = list(self._held.values()), {}
        for descriptor in descriptors:
            os.close(descriptor)
