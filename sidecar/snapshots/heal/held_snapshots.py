"""Rebuilt snapshots that wait until a broker's own one confirms them."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import SpooledTemporaryFile
from typing import Final

from sidecar.errors import StagingFull
from sidecar.snapshots.heal.writer import NewSnapshot

IN_MEMORY_BYTES: Final = 8 * 1024 * 1024
"""More than this waits in the system's directory for temporary files: memory does not depend on the log's size."""

GROUP_BYTES: Final = 1024 * 1024
"""They are given out in groups of about this size."""


class HeldSnapshots:
    """In the order in which they were added. To be closed."""

    def __init__(self) -> None:
        # Not a context: it lives as long as this object, whose owner closes it.
        self._spool = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115 - see above
        self._waiting: list[tuple[int, int, str]] = []

    def add(self, snapshot: NewSnapshot) -> None:
        """Keep one. Raises StagingFull."""
        try:
            self._spool.write(snapshot.content)
        except OSError as error:
            raise StagingFull(
                f"temporary files: cannot be written: {error.strerror}; make room there, or set TMPDIR to a larger disk"
            ) from error
        self._waiting.append((snapshot.offset, len(snapshot.content), snapshot.aside_suffix))

    def take(self) -> Iterator[list[NewSnapshot]]:
        """All of them, in groups; none is held afterwards."""
        self._spool.seek(0)
        group: list[NewSnapshot] = []
        group_bytes = 0
        for offset, size_bytes, aside_suffix in self._waiting:
            group.append(NewSnapshot(offset, self._spool.read(size_bytes), aside_suffix))
            group_bytes += size_bytes
            if group_bytes >= GROUP_BYTES:
                yield group
                group, group_bytes = [], 0
        if group:
            yield group
        self.drop()

    def drop(self) -> list[int]:
        """Forget all of them; their offsets."""
        dropped = [offset for offset, _, _ in self._waiting]
        self._waiting = []
        self._spool.seek(0)
        self._spool.truncate()
        return dropped

    def close(self) -> None:
        """Let go of the temporary file."""
        self._spool.close()
