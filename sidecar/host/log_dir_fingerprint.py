"""Is this the very directory that a lineage was archived from? Asked where no topic id and no batch can tell."""

import ctypes
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sidecar.model import PartitionFiles

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


@dataclass(frozen=True, slots=True)
class LogDirFingerprint:
    """What a partition directory is known by later. Devices are not: a restart may renumber them.

    `birth_ns`: when it was made, None where the file system does not tell. `active_name`, `active_inode`: its active `.log`,
    "" and 0 where there was none.
    """

    directory: Path
    inode: int
    birth_ns: int | None
    active_name: str
    active_inode: int


def fingerprint_of(files: PartitionFiles) -> LogDirFingerprint:
    inode, active = files.directory_id[1], files.active_log
    return LogDirFingerprint(
        files.directory,
        inode,
        birth_ns(files.directory, inode),
        "" if active is None else active.name,
        0 if active is None else active.inode,
    )


def bears(files: PartitionFiles, now: LogDirFingerprint, mark: LogDirFingerprint) -> bool:
    """Whether a directory is the marked one. `now`: its mark as it was just listed.

    A re-created topic often gets the inode number of the deleted one's directory, but another birth time. Where that is
    unknown, the segment that was active then must still be there.
    """
    if (now.directory, now.inode) != (mark.directory, mark.inode):
        return False
    if now.birth_ns is not None and mark.birth_ns is not None:
        return now.birth_ns == mark.birth_ns
    logs = [segment.log for segment in files.segments] + ([] if files.active_log is None else [files.active_log])
    return any((log.name, log.inode) == (mark.active_name, mark.active_inode) for log in logs)
