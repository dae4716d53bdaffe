"""What a restore without producer state says to who archives that log: up to here nobody is known, on purpose.

A plain file in the partition's directory. Brokers take no notice of names that they do not know, and delete it with the log.
Source: LogLoader.load, ProducerStateManager.loadSnapshots.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import structlog

from sidecar.logformat.regular_file import read_regular

_log = structlog.get_logger(__name__)

NAME: Final = "restored-without-producers.json"
_VERSION: Final = 1
_BYTES_MAX: Final = 4096


def dropped_note(below_offset: int) -> bytes:
    """The file's content for a log whose producers below an offset, its end, were left out."""
    return json.dumps({"version": _VERSION, "below_offset": below_offset}).encode() + b"\n"


def dropped_below(directory: Path) -> int:
    """Below which offset a partition's producers were left out; 0 where nothing says so. A file that cannot be read is told."""
    path = directory / NAME
    try:
        found = json.loads(read_regular(path, _BYTES_MAX))
        version, offset = found["version"], found["below_offset"]
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        _tell(path, str(error) or type(error).__name__)
        return 0
    if version == _VERSION and isinstance(offset, int):
        return offset
    _tell(path, f"version {version!r:.40}, below_offset {offset!r:.40}")
    return 0


def _tell(path: Path, reason: str) -> None:
    _log.warning(
        "dropped_producers_note_unreadable",
        path=str(path),
        reason=reason,
        effect="producers below the log's restored end count as known: write it anew as in docs/restore.md, or remove it",
    )
