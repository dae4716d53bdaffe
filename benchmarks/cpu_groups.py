"""Processes that get only a part of a core: control groups of Linux, version 1 or 2."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_PERIOD_US: Final = 20_000
"""Short: a group that has used its part waits for the next period."""
_WEIGHT: Final = 10
"""Times that of other work, which then takes nothing of the part. About that of a process at nice -10."""
_TRIES, _WAIT_S = 100, 0.1


class NoCpuGroups(RuntimeError):
    """This machine does not let us limit the cores of processes."""


@dataclass(frozen=True)
class _Files:
    """Of a group, and what is written into them."""

    quota: str
    quota_text: str
    weight: str
    weight_text: str


def _parent_and_files(quota_us: int, mounts: Path) -> tuple[Path, _Files]:
    """Where groups are made. Version 1 if it has the CPU controller, because then version 2 does not have it."""
    for line in mounts.read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup" and "cpu" in options.split(","):
            return Path(place), _Files("cpu.cfs_quota_us", str(quota_us), "cpu.shares", str(1024 * _WEIGHT))
    for line in mounts.read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2" and "cpu" in (Path(place) / "cgroup.controllers").read_text().split():
            subtree = Path(place) / "cgroup.subtree_control"
            if "cpu" not in subtree.read_text().split():
                subtree.write_text("+cpu")
            return Path(place), _Files("cpu.max", f"{quota_us} {_PERIOD_US}", "cpu.weight", str(100 * _WEIGHT))
    raise OSError("no CPU controller is mounted")


class CpuGroup:
    """A context manager: an empty group that gets `cores` of a core. It must be empty again at the end.

    Raises NoCpuGroups when the context begins.
    """

    def __init__(self, name: str, cores: float, mounts: Path = Path("/proc/self/mounts")) -> None:
        self._name = f"{name}-{os.getpid()}"
        self._quota_us = round(cores * _PERIOD_US)
        self._mounts = mounts

    def __enter__(self) -> Self:
        try:
            parent, files = _parent_and_files(self._quota_us, self._mounts)
            self.directory = parent / self._name
            self.directory.mkdir()
            if files.quota != "cpu.max":
                (self.directory / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (self.directory / files.quota).write_text(files.quota_text)
            (self.directory / files.weight).write_text(files.weight_text)
        except OSError as error:
            raise NoCpuGroups(f"the CPU controller of cgroup v1 or v2 must be writable: {error}") from error
        return self

    def add(self, pid: int) -> None:
        """Put a process into the group, and with it those that it starts from now on."""
        (self.directory / "cgroup.procs").write_text(str(pid))

    def pids(self) -> list[int]:
        """Of the processes in it."""
        return [int(line) for line in (self.directory / "cgroup.procs").read_text().split()]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for _ in range(_TRIES):
            if not self.pids():
                break
            time.sleep(_WAIT_S)  # noqa: TID251 - real processes have no other clock
        self.directory.rmdir()
