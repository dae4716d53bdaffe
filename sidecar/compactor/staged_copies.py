"""Compacted copies of rolled segments, in files of ours until one commit archives their whole group."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sidecar.config import CompactionPolicy
from sidecar.model import SegmentFiles
from sidecar.segment.bundle import CompactedCopy

GROUP_SEGMENTS_MAX: Final = 32
"""Segments of one group: all of their files are open at once, and one commit names them."""


@dataclass(frozen=True, slots=True, eq=False)
class CopyGroup:
    """Adjacent segments that were compacted among themselves, and their copies; None for a segment that goes as it is.

    A record of one segment may have lost to a record of any other. So one commit adds all of them: with only some of the
    copies in the archive, a key could be in none of them. `policy`: its rule compacted them, and must hold still at
    the commit. `unkeyed`: so many records without a key are in no copy. `malformed_versions`: of segments that have a copy.
    """

    segments: tuple[SegmentFiles, ...]
    copies: tuple[CompactedCopy | None, ...]
    policy: CompactionPolicy
    unkeyed: int = 0
    malformed_versions: int = 0

    @property
    def base_offset(self) -> int:
        return self.segments[0].base_offset

    @property
    def size_bytes(self) -> int:
        return sum(copy.size_bytes for copy in self.copies if copy is not None)

    def discard(self) -> None:
        for copy in filter(None, self.copies):
            discard_copy(copy)


def discard_copy(copy: CompactedCopy) -> None:
    """Remove its file, and with the last one their directory."""
    copy.path.unlink(missing_ok=True)
    remove_if_empty(copy.path.parent)


def remove_if_empty(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()
