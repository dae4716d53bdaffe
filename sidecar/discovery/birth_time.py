"""When a directory was made, by Linux's statx: its inode number alone may be given to the next directory again."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import Final

_AT_FDCWD: Final = -100
_STATX_INO: Final = 0x100
_STATX_BTIME: Final = 0x800
_STRUCT_BYTES: Final = 256
_NS_PER_S: Final = 1_000_000_000
_STATX: Final = getattr(ctypes.CDLL(None), "statx", None)


def birth_ns(path: Path, inode: int) -> int | None:
    """When what has this path and inode was made; None where that is not there, or the file system
    does not tell (some say 0).

    Source: struct statx of linux/stat.h.
    """
    if _STATX is None:
        return None
    found = ctypes.create_string_buffer(_STRUCT_BYTES)
    if _STATX(_AT_FDCWD, os.fsencode(path), 0, _STATX_INO | _STATX_BTIME, found) != 0:
        return None
    (mask,) = struct.unpack_from("=I", found, 0)
    (found_inode,) = struct.unpack_from("=Q", found, 32)
    seconds, nanoseconds = struct.unpack_from("=qI", found, 80)
    if not mask & _STATX_BTIME or found_inode != inode:
        return None
    return int(seconds) * _NS_PER_S + int(nanoseconds) or None
