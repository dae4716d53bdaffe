"""What this container may take: processors, memory, and open files, of which each pinned segment takes one."""

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

CPU_FILES = (
    (Path("/sys/fs/cgroup/cpu.max"),),
    (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")),
)
"""Of cgroups version 2 and 1, as a container sees its own: microseconds of processors, and per how many microseconds."""
MEMORY_FILES = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Of cgroups version 2 and 1, as a container sees its own."""
_UNLIMITED_BYTES = 1 << 60
_BASE_BYTES: Final = 256 * 1024 * 1024
"""What a command takes before its workers."""
OPEN_FILES_WANTED: Final = 16_384
"""Most containers begin with a soft limit of 1,024, and a hard one far above."""


def processors() -> int:
    """As many as a JVM counts: those that this process may run on, or fewer where a quota allows fewer.

    Source: CgroupSubsystem::active_processor_count of the JDK; a part of a processor counts as one.
    """
    usable = len(os.sched_getaffinity(0))
    quota = _quota()
    return usable if quota is None else max(1, min(usable, quota))


def workers_that_fit(cores: int, limit_bytes: int | None, worker_bytes: int) -> int:
    """A worker per core, but no more than the container's memory is enough for: nodes have many cores, init containers little."""
    return cores if limit_bytes is None else max(1, min(cores, (limit_bytes - _BASE_BYTES) // worker_bytes))


def _quota() -> int | None:
    for files in CPU_FILES:
        with suppress(OSError, UnicodeDecodeError):
            words = " ".join(file.read_text(encoding="ascii") for file in files).split()
            # Without a quota version 2 says "max", and version 1 says -1.
            if len(words) != 2 or not all(word.isdecimal() for word in words) or not int(words[1]):
                return None
            return -(-int(words[0]) // int(words[1]))
    return None


def memory_limit_bytes() -> int | None:
    """The limit of this container, None if there is none or it cannot be read."""
    for file in MEMORY_FILES:
        with suppress(OSError, UnicodeDecodeError):
            text = file.read_text(encoding="ascii").strip()
            limit = int(text) if text.isdecimal() else _UNLIMITED_BYTES
            return limit if limit < _UNLIMITED_BYTES else None
    return None


def allowed_open_files() -> int:
    """The soft limit that `allow_open_files` comes to.

    Source: RLIMIT_NOFILE in getrlimit(2): the soft limit is ours to raise up to the hard one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return OPEN_FILES_WANTED
    return max(soft, OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(OPEN_FILES_WANTED, hard))


def allow_open_files() -> None:
    """Raise this process's soft limit as far as it is wanted and allowed; never lower it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < allowed_open_files():
        with suppress(OSError, ValueError):  # A sandbox may forbid it: fewer segments are pinned then.
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed_open_files(), hard))
