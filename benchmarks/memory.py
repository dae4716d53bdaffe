"""Memory of a process and of those that it starts, watched from outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil

EVERY_S = 0.05


def peak_pss_mb(pid: int, ended: Callable[[], bool]) -> float:
    """Wait until `ended`; the largest sum of Pss, in MB of 10^6 bytes. Pss counts a page that n processes share as 1/n."""
    peak_bytes = 0
    while not ended():
        peak_bytes = max(peak_bytes, sum(map(_pss_bytes, _with_descendants(pid))))
        time.sleep(EVERY_S)  # noqa: TID251 - a real process has no other clock
    return peak_bytes / 1e6


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
