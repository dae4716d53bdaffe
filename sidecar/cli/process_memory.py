"""What a process that stays tells its allocators: memory that one start took must not be kept for ever."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Mapping
from typing import Final

ARENAS: Final = 2
"""Where glibc allows eight per core: what a start leaves free in one cannot be used by the threads of another."""
_M_ARENA_MAX: Final = -8
"""Source: malloc.h of glibc."""
CHOSEN_BY_USER: Final = "MALLOC_ARENA_MAX"
TUNABLES: Final = "GLIBC_TUNABLES"
_ARENA_TUNABLE: Final = "glibc.malloc.arena_max="
"""Source: The Tunables Framework of glibc's manual; entries are parted by colons."""


def share_arenas(environment: Mapping[str, str] = os.environ) -> bool:
    """Let all threads share two arenas of the C library; before the first thread, or it has one of its own.

    False where that is not ours to say: the user chose a number, or the C library knows no arenas (musl).
    """
    tunables = environment.get(TUNABLES, "").split(":")
    if environment.get(CHOSEN_BY_USER) or any(entry.startswith(_ARENA_TUNABLE) for entry in tunables):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_ARENA_MAX, ARENAS))


def freeze() -> None:
    """Take what is there now out of the sight of the garbage collector: modules before the work, and what a start has learned.

    Else each full collection walks all of it, and none comes before garbage is a quarter of it. Frozen things still go when
    nothing refers to them any more; only cycles of them stay.
    """
    gc.collect()
    gc.freeze()
