"""Memory of a process and of those that it starts, watched from outside."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from pathlib import Path

import psutil

EVERY_S = 0.05


def peak_pss_mb(pid: int, ended: Callable[[], bool]) -> float:
    """Wait until `ended`, which is asked every `EVERY_S`, and at once when the process ends: whoever measures its time waits here.

    Returns the largest sum of Pss, in MB of 10^6 bytes. Pss counts a page that n processes share as 1/n.
    """
    peak_mb = 0.0
    end = os.pidfd_open(pid)
    try:
        while not ended():
            peak_mb = max(peak_mb, pss_mb(pid))
            select.select([end], [], [], EVERY_S)
    finally:
        os.close(end)
    return peak_mb


def pss_mb(pid: int) -> float:
    """The sum of Pss now, in MB of 10^6 bytes."""
    return sum(map(_pss_bytes, _with_descendants(pid))) / 1e6


def _with_descendants(pid: int) -> list[int]:
    try:
        return [pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def _pss_bytes(pid: int) -> int:
    """0 for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
