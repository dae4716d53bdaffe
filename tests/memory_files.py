"""Temporary files of tests in memory: they sync thousands of small files, which on a disk costs a sixth of the tests' CPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

_MEMORY: Final = Path("/dev/shm")
_ROOM_BYTES: Final = 8 << 30
"""A whole gate leaves less than a quarter of this."""
_CHOSEN: Final = "PYTEST_DEBUG_TEMPROOT"


def root_in_memory(environment: Mapping[str, str]) -> Path | None:
    """Where pytest is to put them. None: on the disk, as it is chosen, or as memory is short or starts no program."""
    if _CHOSEN in environment or not _MEMORY.is_dir():
        return None
    starts_programs = not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC
    room = min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available)
    return _MEMORY if starts_programs and room >= _ROOM_BYTES else None
