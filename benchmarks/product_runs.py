"""Whole processes beside versitygw, measured from outside: MB/s, peak memory, CPU of both sides; medians, table, verdict."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.segments import MIB

PROGRAM = Path(sysconfig.get_path("scripts")) / "tiered-sidecar"


@dataclass(frozen=True)
class Run:
    """What one process did: MB/s of the transfer and of the whole process, peak memory, CPU of both sides."""

    mb_per_s: float
    whole_mb_per_s: float
    peak_mb: float
    cpu_s: float
    server_cpu_s: float


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


def measured(
    command: list[str],
    variables: Mapping[str, str],
    gateway: Any,
    size_bytes: int,
    transfer_s: Callable[[str, str], float | None],
) -> Run:
    """Run a command to its end.

    Args:
        size_bytes: what it transfers.
        transfer_s: how long that took, by what it wrote to stdout and to stderr; None: as long as the process.
    """
    before_s = process_cpu_s(gateway.process.pid)
    started_s = time.perf_counter()
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as logged:
        child = subprocess.Popen(command, stdout=printed, stderr=logged, env={**os.environ, **variables})
        peak_kib = watch_peak_kib(child)
        _, status, usage = os.wait4(child.pid, 0)
        whole_s = time.perf_counter() - started_s
        child.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (printed, logged):
            file.seek(0)
            texts.append(file.read().decode())
    output, errors = texts
    if child.returncode:
        raise RuntimeError(f"{command[:3]} ended with {child.returncode}: {errors[-2000:]}")
    return Run(
        mb_per_s=size_bytes / (transfer_s(output, errors) or whole_s) / 1e6,
        whole_mb_per_s=size_bytes / whole_s / 1e6,
        peak_mb=peak_kib * 1024 / 1e6,
        cpu_s=usage.ru_utime + usage.ru_stime,
        server_cpu_s=process_cpu_s(gateway.process.pid) - before_s,
    )


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


def medians(results: Mapping[str, list[Run]]) -> list[dict[str, Any]]:
    """A row for each contestant."""
    return [
        {
            "name": name,
            **{
                field: statistics.median(getattr(run, field) for run in runs)
                for field in ("mb_per_s", "whole_mb_per_s", "cpu_s", "server_cpu_s")
            },
            "peak_mb": max(run.peak_mb for run in runs),
            "runs_mb_per_s": [round(run.mb_per_s, 1) for run in runs],
        }
        for name, runs in results.items()
    ]


def print_rows(rows: list[dict[str, Any]]) -> None:
    """As a table of Markdown."""
    print("| contestant | median MB/s | whole process | runs | peak MB | CPU s | server CPU s |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        runs = " ".join(f"{run:.0f}" for run in row["runs_mb_per_s"])
        print(
            f"| {row['name']} | {row['mb_per_s']:.0f} | {row['whole_mb_per_s']:.0f} | {runs} | {row['peak_mb']:.0f} "
            f"| {row['cpu_s']:.1f} | {row['server_cpu_s']:.1f} |"
        )


def input_text(segments: int, segment_bytes: int, rounds: int, load: float) -> str:
    """What was measured on which machine. `load`: before the first run."""
    return f"{segments} x {segment_bytes // MIB} MiB, {rounds} round(s), {os.cpu_count()} cores, load before {load:.1f}"


def options(description: str) -> argparse.ArgumentParser:
    """Those that these benchmarks have in common."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="a few MiB, one round: shows that the benchmark runs")
    parser.add_argument("--json", help="write the summary to this file")
    return parser


def conclude(
    title: str,
    summary: dict[str, Any],
    ratios: Sequence[str],
    arguments: argparse.Namespace,
    *,
    promised_ratio: float,
    promised_peak_mb: float,
) -> int:
    """Print the table and what comes of it; 1 if a promise is broken (never with --tiny: that measures nothing)."""
    print(f"{title}, {summary['about']}\n")
    print_rows(summary["rows"])
    peak = f"peak memory {summary['peak_mb']:.0f} MB (promised {promised_peak_mb})"
    print(f"\n{'; '.join([*ratios, peak])}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(summary, indent=2) + "\n")
    kept = summary["ratio"] >= promised_ratio and summary["peak_mb"] <= promised_peak_mb
    return 0 if kept or arguments.tiny else 1
