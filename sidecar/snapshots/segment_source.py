"""Where a segment's bytes are, as a value that goes to other processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sidecar.errors import PartitionError, SegmentChanged
from sidecar.logformat.names import Suffix
from sidecar.logformat.positional import PositionalFile
from sidecar.logformat.regular_file import open_regular
from sidecar.logformat.window import ReadAt


class SegmentSource(Protocol):
    """Where a segment's bytes are; goes to other processes by pickle."""

    @property
    def name(self) -> str:
        """For messages: a path or a key."""
        ...

    @property
    def size_bytes(self) -> int:
        """As listed or committed."""
        ...

    @property
    def offset_index(self) -> Path | None:
        """Where its offset index would be as a local file; None if it is nowhere near."""
        ...

    def opened(self) -> Iterator[ReadAt]:
        """A generator that yields a positional reader once, and then lets go of it."""
        ...


@dataclass(frozen=True, slots=True)
class LocalSegment:
    """A `.log` file. `growing`: the active segment, which may have become longer since it was listed."""

    name: str
    size_bytes: int
    growing: bool = False

    @property
    def offset_index(self) -> Path:
        """See `SegmentSource`."""
        return Path(self.name).with_suffix(f".{Suffix.OFFSET_INDEX}")

    def opened(self) -> Iterator[ReadAt]:
        """See `SegmentSource`. Raises SegmentChanged, PartitionError."""
        try:
            descriptor = open_regular(Path(self.name))
        except FileNotFoundError as error:
            raise SegmentChanged(f"{self.name}: vanished; look again") from error
        except OSError as error:
            raise PartitionError(f"{self.name}: cannot be read: {error.strerror}") from error
        try:
            size_bytes = os.fstat(descriptor).st_size
            if size_bytes != self.size_bytes and not self.growing:
                raise SegmentChanged(
                    f"{self.name}: {size_bytes} bytes, {self.size_bytes} when it was listed; look again"
                )
            yield PositionalFile(descriptor)
        except OSError as error:
            raise PartitionError(f"{self.name}: cannot be read: {error.strerror}") from error
        finally:
            os.close(descriptor)
