"""What a restore without producer state says to who archives that log: up to here nobody is known, on purpose.

A plain file in the partition's directory. Brokers take no notice of names that they do not know, and delete it with the log.
Source: LogLoader.load, ProducerStateManager.loadSnapshots.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

NAME: Final = "restored-without-producers.json"
_VERSION: Final = 1
_BYTES_MAX: Final = 4096


def dropped_note(below_offset: int) -> bytes:
    """The file's content for a log whose producers below an offset, its end, were left out."""
    return json.dumps({"version": _VERSION, "below_offset": below_offset}).encode() + b"\n"


def dropped_below(directory: Path) -> int:
    """Below which offset a partition's producers were left out; 0 where nothing says so."""
    try:
        with (directory / NAME).open("rb") as file:
            found = json.loads(file.read(_BYTES_MAX))
        offset = found["below_offset"] if found["version"] == _VERSION else 0
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return 0
    return offset if isinstance(offset, int) else 0
