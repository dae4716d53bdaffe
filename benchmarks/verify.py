"""How fast is `tiered-sidecar verify --deep` as a whole, compared with only downloading the same objects?

Question    MB/s of the installed program, which reads every byte, checks each batch, each index and both checksums, against boto3's
            `get_object`, whose bytes are thrown away.
Input       7 rolled segments of 256 MiB in real format (`benchmarks/segments.py`), archived in versitygw on the same machine.
Unit        MB/s (10^6 bytes of `.log` objects) of the whole process, start included. Peak resident memory and CPU seconds of
            the process. CPU seconds of the server.
Promise     median >= 0.9 of the fastest download; peak memory of every run <= 200 MB.
Run         python -m benchmarks.verify [--rounds 5] [--json result.json]      (--tiny: a few seconds)

Each run is a process of its own; runs of all contestants alternate.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.product_runs import PROGRAM, Run, conclude, input_text, measured, medians, options
from benchmarks.restore import Bench
from benchmarks.segments import MIB, write_log_dir

PROMISED_RATIO = 0.9
PROMISED_PEAK_MB = 200
OURS = "tiered-sidecar verify --deep"
OBJECTS_AT_ONCE = (1, 2, 4)


def verified(bench: Bench) -> Run:
    """One verification. Raises RuntimeError if it finds anything."""
    command = [str(PROGRAM), "verify", "--deep", "--engine", "local", "--json"]
    return measured(command, bench.variables(bench.s3_url), bench.gateway, bench.size_bytes, lambda _, __: None)


def downloaded(bench: Bench, objects_at_once: int) -> Run:
    """The `.log` objects by `get_object`, in a worker."""
    task = {**bench.download_task(), "objects_at_once": objects_at_once}
    command = [sys.executable, "-m", "benchmarks.verify", "--worker", json.dumps(task)]
    return measured(command, {}, bench.gateway, bench.size_bytes, lambda _, __: None)


def download(task: dict[str, Any]) -> None:
    """The worker."""
    import boto3
    from botocore.config import Config

    client = boto3.client("s3", config=Config(s3={"addressing_style": "path"}), **task["client"])

    def one(key: str) -> None:
        body = client.get_object(Bucket=task["bucket"], Key=key)["Body"]
        while body.read(MIB):
            continue

    with ThreadPoolExecutor(task["objects_at_once"]) as pool:
        list(pool.map(one, task["keys"]))


def measure(rounds: int, segments: int, segment_bytes: int, objects_at_once: tuple[int, ...]) -> dict[str, Any]:
    """All runs; the summary."""
    from tests.servers.versitygw import VersityGateway

    load = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory() as directory,
        VersityGateway(Path(directory) / "gateway", options=["--quiet"]) as gateway,
    ):
        log_dir = write_log_dir(Path(directory) / "logs", segments, segment_bytes)
        size_bytes = sum(path.stat().st_size for path in log_dir.glob("*/*.log"))
        bench = Bench(gateway, log_dir, [], size_bytes, Path(directory))
        bench.archive()
        contestants: dict[str, Callable[[], Run]] = {OURS: lambda: verified(bench)}
        for count in objects_at_once:
            contestants[f"boto3 get_object, {count} at once"] = lambda count=count: downloaded(bench, count)  # type: ignore[misc]
        results: dict[str, list[Run]] = {name: [] for name in contestants}
        for turn in range(rounds):
            names = list(contestants)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                results[name].append(contestants[name]())
                print(f"{turn + 1}/{rounds} {name:50s} {results[name][-1].mb_per_s:7.0f} MB/s", file=sys.stderr)
    return summarise(results, input_text(segments, segment_bytes, rounds, load))


def summarise(results: dict[str, list[Run]], about: str) -> dict[str, Any]:
    """Medians per contestant, and ours to the fastest download."""
    rows = medians(results)
    ours, *others = rows
    fastest = max(others, key=lambda row: row["mb_per_s"])
    ratio = ours["mb_per_s"] / fastest["mb_per_s"]
    return {"about": about, "rows": rows, "fastest": fastest["name"], "ratio": ratio, "peak_mb": ours["peak_mb"]}


def main() -> int:
    """Run the comparison and print its outcome, see `conclude`."""
    parser = options("Throughput of `tiered-sidecar verify --deep` beside plain downloads.")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        download(json.loads(arguments.worker))
        return 0
    size = (1, 2, 9 * MIB) if arguments.tiny else (arguments.rounds, 7, 256 * MIB)
    summary = measure(*size, OBJECTS_AT_ONCE[:1] if arguments.tiny else OBJECTS_AT_ONCE)
    return conclude(
        "Deep verification of objects on the same machine",
        summary,
        [f"ratio {summary['ratio']:.2f} to {summary['fastest']} (promised {PROMISED_RATIO})"],
        arguments,
        promised_ratio=PROMISED_RATIO,
        promised_peak_mb=PROMISED_PEAK_MB,
    )


if __name__ == "__main__":
    sys.exit(main())
