"""How fast are segments uploaded, compared with the fastest way boto3 itself has?

Question    MB/s of our S3 adapter against `upload_file` of boto3 in several configurations, one file at a time and several.
Input       7 files of 256 MiB, random bytes, in the page cache; versitygw on the same machine, on loopback.
Unit        MB/s (10^6 bytes) of wall clock; peak resident memory and CPU seconds of the uploading process.
Promise     median of ours >= 0.95 of the highest median of boto3; peak memory <= 300 MB.
Run         python -m benchmarks.backfill_throughput [--rounds 5] [--json result.json]      (--tiny: a few seconds)

Each run is a process of its own, so that memory and warm-up are its own; runs of all contestants alternate, and the
order turns with each round, so that a slow minute of the machine hits all alike. What a run stored is deleted after it.
On a machine that does other work the MB/s mean little; compare the CPU seconds then.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.product_runs import empty, input_as_told, options, process_cpu_s
from benchmarks.segments import MIB
from benchmarks.uploaders import BOTO3, OURS, TUNING, Contestant, worker_command
from sidecar.randomness import SystemRandomness

PROMISED_RATIO = 0.95
PROMISED_PEAK_MB = 300


@dataclass(frozen=True)
class Run:
    """What one process measured."""

    mb_per_s: float
    peak_mb: float
    cpu_s: float
    server_cpu_s: float = 0.0


def main() -> int:
    """Run the comparison, print the table; 1 if a promise is broken (never with --tiny: that measures nothing)."""
    parser = options("Upload throughput of the sidecar's S3 adapter and of boto3.")
    parser.add_argument("--tune", action="store_true", help="also try other part sizes and thread counts of ours")
    arguments = parser.parse_args()
    from tests.servers.versitygw import VersityGateway

    files, size_mib, rounds = (2, 11, 1) if arguments.tiny else (7, 256, arguments.rounds)
    contestants = [*OURS, *BOTO3, *(TUNING if arguments.tune else [])]
    results: dict[Contestant, list[Run]] = {contestant: [] for contestant in contestants}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as directory, VersityGateway(Path(directory), options=["--quiet"]) as gateway:
        sources = _write_sources(Path(directory) / "sources", files, size_mib * MIB)
        for turn in range(rounds):
            for contestant in contestants[turn % len(contestants) :] + contestants[: turn % len(contestants)]:
                run = _run_worker(contestant, gateway, sources)
                results[contestant].append(run)
                empty(gateway)
                print(f"{turn + 1}/{rounds} {contestant.name:60s} {run.mb_per_s:7.0f} MB/s", file=sys.stderr)
    summary = summarise(
        results,
        input_as_told(files, size_mib * MIB, rounds, load),
    )
    _print(summary)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(summary, indent=2) + "\n")
    kept = summary["ratio"] >= PROMISED_RATIO and summary["peak_mb"] <= PROMISED_PEAK_MB
    return 0 if kept or arguments.tiny else 1


def summarise(results: dict[Contestant, list[Run]], input_text: str) -> dict[str, Any]:
    """Medians per contestant, and the ratio of our default configuration to the fastest of boto3's."""
    rows = [
        {
            "name": contestant.name,
            "code": contestant.code,
            "median_mb_per_s": statistics.median(run.mb_per_s for run in runs),
            "runs_mb_per_s": [round(run.mb_per_s, 1) for run in runs],
            "peak_mb": max(run.peak_mb for run in runs),
            "cpu_s": statistics.median(run.cpu_s for run in runs),
            "server_cpu_s": statistics.median(run.server_cpu_s for run in runs),
        }
        for contestant, runs in results.items()
    ]
    fastest = max((row for row in rows if row["code"] == "boto3"), key=lambda row: row["median_mb_per_s"])
    ours = rows[0]
    return {
        "input": input_text,
        "rows": rows,
        "ours": ours["name"],
        "fastest_boto3": fastest["name"],
        "ratio": ours["median_mb_per_s"] / fastest["median_mb_per_s"],
        "peak_mb": ours["peak_mb"],
        # Client and server together. Says on a busy machine, too, who has less to do for the same bytes.
        "cpu_ratio": _cpu(ours) / min(_cpu(row) for row in rows if row["code"] == "boto3"),
    }


def _cpu(row: dict[str, Any]) -> float:
    return float(row["cpu_s"] + row["server_cpu_s"])


def _write_sources(directory: Path, files: int, size_bytes: int) -> list[str]:
    directory.mkdir()
    paths = []
    for number in range(files):
        path = directory / f"{number:020d}.log"
        with path.open("wb") as file:
            for _ in range(size_bytes // MIB):
                file.write(SystemRandomness().random_bytes(MIB))
        paths.append(str(path))
    os.sync()  # else the first contestants share the disk with the writing of the sources
    return paths


def _run_worker(contestant: Contestant, gateway: Any, sources: list[str]) -> Run:
    before_s = process_cpu_s(gateway.process.pid)
    done = subprocess.run(worker_command(contestant, gateway, sources), stdout=subprocess.PIPE, text=True, check=True)
    return Run(**json.loads(done.stdout), server_cpu_s=process_cpu_s(gateway.process.pid) - before_s)


def _print(summary: dict[str, Any]) -> None:
    print(f"Upload to versitygw on the same machine, {summary['input']}\n")
    print("| contestant | median MB/s | runs | peak MB | CPU s | server's CPU s |")
    print("|---|---|---|---|---|---|")
    for row in summary["rows"]:
        runs = " ".join(f"{run:.0f}" for run in row["runs_mb_per_s"])
        used = f"{row['peak_mb']:.0f} | {row['cpu_s']:.1f} | {row['server_cpu_s']:.1f}"
        print(f"| {row['name']} | {row['median_mb_per_s']:.0f} | {runs} | {used} |")
    print(
        f"\nratio {summary['ratio']:.2f} ({summary['ours']} to {summary['fastest_boto3']}; promised {PROMISED_RATIO}),",
        end=" ",
    )
    print(f"peak memory {summary['peak_mb']:.0f} MB (promised {PROMISED_PEAK_MB}),", end=" ")
    print(f"CPU of both sides {summary['cpu_ratio']:.2f} of boto3's least")


if __name__ == "__main__":
    sys.exit(main())
