"""How many processors this container may use."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP_FILES = (
    (Path("/sys/fs/cgroup/cpu.max"),),
    (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")),
)
"""Of cgroups version 2 and 1, as a container sees its own: microseconds of processors, and per how many microseconds."""


def processors() -> int:
    """As many as a JVM counts: those that this process may run on, or fewer where a quota allows fewer.

    Source: CgroupSubsystem::active_processor_count of the JDK, which rounds up.
    """
    usable = len(os.sched_getaffinity(0))
    quota = _quota()
    return usable if quota is None else max(1, min(usable, quota))


def _quota() -> int | None:
    for files in CGROUP_FILES:
        try:
            words = " ".join(file.read_text(encoding="ascii") for file in files).split()
        except (OSError, UnicodeDecodeError):
            continue
        # Without a quota version 2 says "max", and version 1 says -1.
        if len(words) != 2 or not all(word.isdecimal() for word in words) or not int(words[1]):
            return None
        return -(-int(words[0]) // int(words[1]))
    return None
