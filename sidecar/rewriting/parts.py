"""Where the batches of a split wait to be joined: written by tasks, read by whoever makes the outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from sidecar.rewriting.work_files import WorkFile, bytes_of, named_when_whole


class PartWriter(Protocol):
    """Takes whole batches in log order; the bytes are void after the call."""

    def write(self, batches: memoryview) -> None:
        """Append. Raises StagingFull, StoreError."""


class Parts(Protocol):
    """Parts by number, the number of a split in its run; goes through pickle.

    Tasks may run twice, and at the same time: a part is there when one of them has written all of it, and is never half one
    and half the other.
    """

    in_store: ClassVar[bool]
    """Whether writing a part is an upload."""

    def writing(self, number: int) -> AbstractContextManager[PartWriter]:
        """A writer of a part, which is there when the context has ended without an error. Raises StagingFull, StoreError."""

    def pieces(self, number: int, size_bytes: int) -> Iterator[memoryview]:
        """The first bytes of a part in order; each piece is void when the next is asked for."""

    def forget(self, number: int) -> None:
        """Take a part away."""

    def forget_all(self) -> None:
        """Take away all that were written. Raises StoreError."""


@dataclass(frozen=True, slots=True)
class LocalParts:
    """Files in an existing directory that all tasks see."""

    in_store: ClassVar[bool] = False
    directory: Path

    def writing(self, number: int) -> AbstractContextManager[WorkFile]:
        return named_when_whole(self._path(number))

    def pieces(self, number: int, size_bytes: int) -> Iterator[memoryview]:
        return bytes_of(self._path(number), size_bytes)

    def forget(self, number: int) -> None:
        self._path(number).unlink()

    def forget_all(self) -> None:
        """See Parts. What cannot be removed now is with the directory."""
        for path in self.directory.glob("*.part"):
            with suppress(OSError):
                path.unlink()

    def _path(self, number: int) -> Path:
        return self.directory / f"{number:08d}.part"
