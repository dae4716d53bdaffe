"""Temporary files of tests in memory: they sync thousands of small files, which on a disk costs a sixth of the tests' CPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

_MEMORY: Final = Path("/dev/shm")
_ROOM_BYTES: Final = 3 << 30
"""A whole gate leaves half of this."""
_AVAILABLE_BYTES: Final = 8 << 30
"""With brokers, JVMs and workers beside the files."""
_CHOSEN: Final = "PYTEST_DEBUG_TEMPROOT"


def root_in_memory(environment: Mapping[str, str]) -> Path | None:
    """Where pytest is to put them. None: on the disk, as it is chosen, or as memory is short or starts no program."""
    if _CHOSEN in environment or not _MEMORY.is_dir():
        return None
    starts_programs = not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC
    has_room = shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES and psutil.virtual_memory().available >= _AVAILABLE_BYTES
    return _MEMORY if starts_programs and has_room else None
