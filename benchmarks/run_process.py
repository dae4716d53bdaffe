"""`tiered-sidecar run` as a process of its own under a benchmark: what it costs, read from /proc, and what it says over HTTP."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from benchmarks.memory import pss_mb
from tests.real.product import environment, s3_settings
from tests.servers.process import ServerProcess, free_port
from tests.servers.s3_server import S3Server

PROGRAM = Path(sysconfig.get_path("scripts")) / "tiered-sidecar"
WAIT_S = 300.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def settings_of(gateway: S3Server, log_dir: Path, state_dir: Path, bootstrap: str | None) -> dict[str, str]:
    """By path, for an archive in the gateway. `bootstrap`: the broker that reports the leaders; None: this one leads all."""
    leaders = (
        {"broker.assume_leader": "true"}
        if bootstrap is None
        else {"broker.connection.bootstrap_servers": json.dumps([bootstrap])}
    )
    return {
        **s3_settings(gateway),
        "store.url": f"s3://{gateway.bucket}/archive",
        "broker.log_dirs": str(log_dir),
        "run.state_dir": str(state_dir),
        **leaders,
    }


class RunProcess:
    """A context manager. `start_s`: from the process's start to the first ok of /readyz; imports and all."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        """Args: settings: by path; all others are the defaults."""
        self.port = free_port()
        self.start_s = 0.0
        own = {**settings, "http.bind": f"127.0.0.1:{self.port}", "log.format": "json"}
        command = [sys.executable, str(PROGRAM), "run"]
        self.process = ServerProcess("tiered-sidecar", command, directory / "run.log", environment(own))

    def __enter__(self) -> Self:
        began_s = time.perf_counter()
        self.process.launch()
        self.process.wait_until(self.is_ready, WAIT_S)
        self.start_s = time.perf_counter() - began_s
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.process.end(30.0)

    def is_ready(self) -> bool:
        try:
            return bool(self._get("/readyz"))
        except (urllib.error.URLError, OSError):
            return False

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return bytes(answer.read())

    def metric(self, name: str, label: str = "") -> float:
        """The sum of a metric's samples, or of those with this label, as `stage="committed"`."""
        lines = self._get("/metrics").decode().splitlines()
        named = (
            line
            for line in lines
            if line.startswith((f"tiered_sidecar_{name}{{", f"tiered_sidecar_{name} ")) and label in line
        )
        return sum(float(line.rpartition(" ")[2]) for line in named)

    def status(self) -> dict[str, Any]:
        """What /status says."""
        return dict(json.loads(self._get("/status")))

    def cpu_s(self) -> float:
        """CPU seconds of the process so far, user and system. Source: man 5 proc, `stat`."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def memory_mb(self) -> tuple[float, float]:
        """Resident now, and at most so far; of 10^6 bytes."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        found = {line.split(":")[0]: int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("Vm")}
        return found["VmRSS"], found["VmHWM"]

    def pss_mb(self) -> float:
        """Its share of memory now, with child processes."""
        return pss_mb(self.process.pid)

    def children(self) -> list[str]:
        """Names of its child processes, and of theirs."""
        return [child.name() for child in psutil.Process(self.process.pid).children(recursive=True)]
