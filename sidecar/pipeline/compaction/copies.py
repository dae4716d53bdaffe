"""Compacted copies of rolled segments, in files of ours until they are archived."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sidecar.logformat.rebuild import BuiltIndexes


@dataclass(frozen=True, slots=True)
class CompactedCopy:
    """A segment compacted within its group: its batches in a file of ours, their indexes, and how it was done."""

    path: Path
    size_bytes: int
    built: BuiltIndexes
    strategy: str
    strategy_parameters: dict[str, str]


def discard_copy(copy: CompactedCopy) -> None:
    """Remove its file, and with the last one their directory."""
    copy.path.unlink(missing_ok=True)
    remove_if_empty(copy.path.parent)


def remove_if_empty(directory: Path) -> None:
    """Remove a directory unless something is in it."""
    with suppress(OSError):
        directory.rmdir()
