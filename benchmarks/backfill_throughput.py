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

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

MIB = 1024 * 1024
PROMISED_RATIO = 0.95
PROMISED_PEAK_MB = 300


@dataclass(frozen=True)
class Contestant:
    """One way to upload: which code, with which part size and threads, and how many files at once."""

    code: str
    part_mib: int
    threads: int
    files_at_once: int = 1
    signed: bool = False
    checksum: bool = True

    @property
    def name(self) -> str:
        kind = (
            ""
            if self.code == "sidecar"
            else f"{', signed' if self.signed else ''}{', CRC-32' if self.checksum else ''}"
        )
        return f"{self.code} {self.part_mib} MiB x {self.threads}, {self.files_at_once} file(s) at once{kind}"


OURS = [Contestant("sidecar", 16, 4, files_at_once=2), Contestant("sidecar", 16, 4)]  # the defaults of S3Settings
BOTO3 = [
    Contestant("boto3", 8, 10, signed=True),  # what upload_file does when nothing is set
    Contestant("boto3", 8, 4, checksum=False),
    Contestant("boto3", 8, 10, checksum=False),
    Contestant("boto3", 16, 4, checksum=False),
    Contestant("boto3", 64, 4, checksum=False),
    Contestant("boto3", 16, 2, files_at_once=2, checksum=False),
    Contestant("boto3", 8, 4, files_at_once=3, checksum=False),
]
TUNING = [Contestant("sidecar", part, threads) for part in (5, 8, 16, 32) for threads in (2, 3, 4, 8)]


@dataclass(frozen=True)
class Run:
    """What one process measured."""

    mb_per_s: float
    peak_mb: float
    cpu_s: float
    server_cpu_s: float = 0.0


def main() -> int:
    """Run the comparison, print the table; 1 if a promise is broken (never with --tiny: that measures nothing)."""
    arguments = _arguments()
    if arguments.worker:
        measured = _upload_all(json.loads(arguments.worker))
        print(json.dumps({"mb_per_s": measured.mb_per_s, "peak_mb": measured.peak_mb, "cpu_s": measured.cpu_s}))
        return 0
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
                _empty(gateway)
                print(f"{turn + 1}/{rounds} {contestant.name:60s} {run.mb_per_s:7.0f} MB/s", file=sys.stderr)
    summary = summarise(
        results,
        input_text=f"{files} x {size_mib} MiB, {rounds} round(s), {os.cpu_count()} cores, load before {load:.1f}",
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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Upload throughput of the sidecar's S3 adapter and of boto3.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="a few MiB, one round: shows that the benchmark runs")
    parser.add_argument("--tune", action="store_true", help="also try other part sizes and thread counts of ours")
    parser.add_argument("--json", help="write the summary to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def _write_sources(directory: Path, files: int, size_bytes: int) -> list[str]:
    directory.mkdir()
    paths = []
    for number in range(files):
        path = directory / f"{number:020d}.log"
        with path.open("wb") as file:
            for _ in range(size_bytes // MIB):
                file.write(os.urandom(MIB))
        paths.append(str(path))
    os.sync()  # else the first contestants share the disk with the writing of the sources
    return paths


def _run_worker(contestant: Contestant, gateway: Any, sources: list[str]) -> Run:
    task = {
        "contestant": asdict(contestant),
        "sources": sources,
        "endpoint_url": gateway.endpoint,
        "bucket": gateway.bucket,
        "region_name": gateway.region,
        "access_key": gateway.access_key,
        "secret_key": gateway.secret_key,
    }
    command = [sys.executable, "-m", "benchmarks.backfill_throughput", "--worker", json.dumps(task)]
    before_s = _cpu_seconds(gateway.process.pid)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Run(**json.loads(done.stdout), server_cpu_s=_cpu_seconds(gateway.process.pid) - before_s)


def _cpu_seconds(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return used.user + used.system


def _empty(gateway: Any) -> None:
    with closing(gateway.client()) as client:
        while listed := client.list_objects_v2(Bucket=gateway.bucket).get("Contents", []):
            client.delete_objects(
                Bucket=gateway.bucket, Delete={"Objects": [{"Key": entry["Key"]} for entry in listed], "Quiet": True}
            )


def _upload_all(task: dict[str, Any]) -> Run:
    contestant = Contestant(**task["contestant"])
    prepare = {"sidecar": _sidecar_uploader, "boto3": _boto3_uploader}[contestant.code]
    upload = prepare(contestant, task)
    before = resource.getrusage(resource.RUSAGE_SELF)
    started_s = time.perf_counter()
    with ThreadPoolExecutor(contestant.files_at_once) as pool:
        list(pool.map(upload, task["sources"]))
    elapsed_s = time.perf_counter() - started_s
    after = resource.getrusage(resource.RUSAGE_SELF)
    size_bytes = sum(Path(source).stat().st_size for source in task["sources"])
    return Run(
        mb_per_s=size_bytes / elapsed_s / 1e6,
        peak_mb=after.ru_maxrss * 1024 / 1e6,
        cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    )


def _sidecar_uploader(contestant: Contestant, task: dict[str, Any]) -> Callable[[str], None]:
    from sidecar.model import ObjectKey
    from sidecar.storage import FileSource, open_store
    from sidecar.store_settings import StoreSettings

    settings = StoreSettings.model_validate(
        {
            "url": f"s3://{task['bucket']}/benchmark",
            "s3": {
                "endpoint_url": task["endpoint_url"],
                "region": task["region_name"],
                "addressing_style": "path",
                "access_key_id": task["access_key"],
                "secret_access_key": task["secret_key"],
                "part_bytes": contestant.part_mib * MIB,
                "concurrency": contestant.threads,
            },
        }
    )
    store = open_store(settings)

    def upload(source: str) -> None:
        with Path(source).open("rb") as file:
            store.upload(
                ObjectKey(Path(source).name), FileSource(file.fileno(), os.fstat(file.fileno()).st_size, source)
            )

    return upload


def _boto3_uploader(contestant: Contestant, task: dict[str, Any]) -> Callable[[str], None]:
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config

    client = boto3.client(
        "s3",
        endpoint_url=task["endpoint_url"],
        region_name=task["region_name"],
        aws_access_key_id=task["access_key"],
        aws_secret_access_key=task["secret_key"],
        config=Config(
            max_pool_connections=contestant.threads * contestant.files_at_once,
            s3={"addressing_style": "path", **({} if contestant.signed else {"payload_signing_enabled": False})},
            request_checksum_calculation="when_supported" if contestant.checksum else "when_required",
        ),
    )
    part_bytes = contestant.part_mib * MIB
    transfer = TransferConfig(
        multipart_threshold=part_bytes, multipart_chunksize=part_bytes, max_concurrency=contestant.threads
    )

    def upload(source: str) -> None:
        client.upload_file(source, task["bucket"], f"benchmark/{Path(source).name}", Config=transfer)

    return upload


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
