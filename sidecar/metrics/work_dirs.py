"""Room in the directories that this process writes to. A full one stops compaction and uploads; an alert should come before."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

from sidecar.metrics.declarations import Declarations


class WorkDirMetrics:
    """Looks at the disks when it is asked, so that nothing has to be told."""

    def __init__(self, declare: Declarations) -> None:
        self._free = declare.gauge(
            "work_dir_free_ratio",
            "Free part, 0 to 1, of the file system of a directory for work files: state (journal of uploads) or staging "
            "(compaction). A limit of a Kubernetes emptyDir is not seen here.",
            "directory",
        )

    def watch(self, directory: str, path: Path) -> None:
        """From now on show the room where `path` is, or will be."""
        self._free.labels(directory).set_function(_free_ratio_of(path))


def _free_ratio_of(path: Path) -> Callable[[], float]:
    def free_ratio() -> float:
        for existing in (path, *path.absolute().parents):
            try:
                found = os.statvfs(existing)
            except OSError:
                continue
            # What root alone may use counts as used.
            used = found.f_blocks - found.f_bfree
            return found.f_bavail / (used + found.f_bavail) if used + found.f_bavail else math.nan
        return math.nan

    return free_ratio
