"""Processes of the installed program: where it is, how it reaches an archive, and what it uses."""

from __future__ import annotations

import argparse
import os
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import Any

import psutil

PROGRAM = Path(sysconfig.get_path("scripts")) / "tiered-sidecar"
# Where this is set, each process compiles the program again: 0.1 CPU seconds that no installed program takes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def variables_of(gateway: Any, url: str, state_dir: Path) -> dict[str, str]:
    """The environment with which the program reaches an archive, in a gateway or not, and takes new segments at once."""
    settings = {
        "store.url": url,
        "store.s3.endpoint_url": gateway.endpoint,
        "store.s3.region": gateway.region,
        "store.s3.addressing_style": "path",
        "store.s3.access_key_id": gateway.access_key,
        "store.s3.secret_access_key": gateway.secret_key,
        "broker.settle_ms": "0",
        "broker.snapshot_grace_ms": "0",
        "run.state_dir": str(state_dir),
        "log.format": "json",
    }
    return {f"TIERED_SIDECAR__{path.upper().replace('.', '__')}": value for path, value in settings.items()}


def watch_peak_kib(child: subprocess.Popen[bytes]) -> int:
    """The highest VmHWM seen, in KiB. (`ru_maxrss` begins with the memory of the parent that forked the child.)"""
    peak_kib = 0
    status = Path(f"/proc/{child.pid}/status")
    while True:
        lines = dict(line.partition(":")[::2] for line in status.read_text().splitlines())
        if "VmHWM" not in lines:
            return peak_kib  # A zombie: it has ended, and waits to be asked for its status.
        peak_kib = max(peak_kib, int(lines["VmHWM"].split()[0]))
        time.sleep(0.02)  # noqa: TID251 - a real process has no other clock


def process_cpu_s(pid: int) -> float:
    """CPU seconds that a process has used so far."""
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


def options(description: str) -> argparse.ArgumentParser:
    """Those that these benchmarks have in common."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="a few MiB, one round: shows that the benchmark runs")
    parser.add_argument("--json", help="write the summary to this file")
    return parser
