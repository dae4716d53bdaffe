"""How fast is `tiered-sidecar restore` as a whole, compared with only downloading the same objects?

Question    MB/s of the installed program, which fetches, checks every byte and batch, writes, syncs and checks the archive's
            history, against `download_file` of boto3 (from S3), and `cp` (from a directory), which only copy the objects.
Input       7 rolled segments of 256 MiB in real format (`benchmarks/segments.py`), archived by `backfill` into a directory;
            the same objects in versitygw on the same machine.
Unit        MB/s (10^6 bytes of `.log` objects): of the transfer, from the first segment's turn to the last one checked and synced,
            as the program's own log says, beside boto3's from the first `download_file` to the end of the last; and of the "whole"
            process, start included, for both (cp has nothing else). Peak resident memory and CPU seconds of the process. CPU
            seconds of the server. Peers sync what they write only where "+ sync" says so; restore always must.
Promise     median from S3 >= 0.9 of the fastest boto3 that syncs; peak memory of every run <= 200 MB (with the library of kernels).
Run         python -m benchmarks.restore [--rounds 5] [--json result.json]      (--tiny: a few seconds)

Each run is a process of its own into an empty directory; runs of all contestants alternate. What was restored is compared with the
source, outside of the measured time, and removed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from filecmp import cmp
from pathlib import Path
from typing import Any

from benchmarks.product_runs import PROGRAM, Run, conclude, input_text, measured, medians, options, variables_of
from benchmarks.segments import MIB, TOPIC, write_log_dir

PROMISED_RATIO = 0.9
PROMISED_PEAK_MB = 200
FROM_S3, FROM_DIRECTORY = "tiered-sidecar restore from S3", "tiered-sidecar restore from a directory"
FILES_AT_ONCE = (1, 4)


@dataclass(frozen=True)
class Bench:
    """What all runs share. `objects`: keys of the `.log` objects; `size_bytes`: their sum."""

    gateway: Any
    log_dir: Path
    objects: list[str]
    size_bytes: int
    scratch: Path

    @property
    def s3_url(self) -> str:
        """The archive in versitygw."""
        return f"s3://{self.gateway.bucket}/archive"

    @property
    def directory(self) -> Path:
        """The same archive in a directory."""
        return self.scratch / "archive"

    def variables(self, url: str) -> dict[str, str]:
        """The environment with which the program reaches an archive."""
        return variables_of(self.gateway, url, self.scratch / "state")

    def archive(self) -> None:
        """Back-fill into the directory, and upload its objects as they are."""
        arguments = ["backfill", "--log-dir", str(self.log_dir), "--assume-leader", "--quiet"]
        environment = {**os.environ, **self.variables(str(self.directory))}
        subprocess.run([str(PROGRAM), *arguments], env=environment, check=True, capture_output=True)
        with closing(self.gateway.client()) as client:
            for path in sorted(found for found in self.directory.rglob("*") if found.is_file()):
                key = str(path.relative_to(self.directory))
                client.upload_file(str(path), self.gateway.bucket, f"archive/{key}")
                self.objects.extend([key] if path.suffix == ".log" else [])

    def restore(self, url: str) -> Run:
        """One restore; its segments are compared with the source's."""
        target = self.scratch / "restored"
        target.mkdir()
        (target / "meta.properties").write_bytes((self.log_dir / "meta.properties").read_bytes())
        arguments = ["restore", "--topic", TOPIC, "--to", str(target), "--topic-id", "bWVhc3VyZWQtdG9waWMtMQ"]
        command = [str(PROGRAM), *arguments, "--json"]
        run = measured(command, self.variables(url), self.gateway, self.size_bytes, lambda _, log: _fetching_s(log))
        for path in sorted(self.log_dir.glob("*/*.log")):
            if not cmp(path, target / path.relative_to(self.log_dir), shallow=False):
                raise RuntimeError(f"{path.name} was not restored as it was")
        shutil.rmtree(target)
        return run

    def download_task(self) -> dict[str, Any]:
        """The `.log` objects and their store, for a worker."""
        return {
            "keys": [f"archive/{key}" for key in self.objects],
            "bucket": self.gateway.bucket,
            "client": {
                "endpoint_url": self.gateway.endpoint,
                "region_name": self.gateway.region,
                "aws_access_key_id": self.gateway.access_key,
                "aws_secret_access_key": self.gateway.secret_key,
            },
        }

    def boto3(self, files_at_once: int, *, sync: bool) -> Run:
        """The `.log` objects by `download_file`."""
        task = {
            **self.download_task(),
            "files_at_once": files_at_once,
            "sync": sync,
            "target": str(self.scratch / "downloaded"),
        }
        command = [sys.executable, "-m", "benchmarks.restore", "--worker", json.dumps(task)]
        return self._copied(command, lambda _, reported: float(reported))

    def cp(self, *, sync: bool) -> Run:
        """The `.log` objects by GNU cp, and sync of each."""
        sources = " ".join(f"'{self.directory / key}'" for key in self.objects)
        target = self.scratch / "downloaded"
        script = f"cp --reflink=never {sources} '{target}'" + (f" && sync '{target}'/*" if sync else "")
        return self._copied(["sh", "-c", script], lambda _, __: None)

    def _copied(self, command: list[str], transfer_s: Callable[[str, str], float | None]) -> Run:
        (self.scratch / "downloaded").mkdir()
        run = measured(command, {}, self.gateway, self.size_bytes, transfer_s)
        shutil.rmtree(self.scratch / "downloaded")
        return run


def _fetching_s(log: str) -> float:
    """Between the first progress line and the last."""
    events = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    stamps = [datetime.fromisoformat(event["timestamp"]) for event in events if event["event"] == "progress"]
    return (stamps[-1] - stamps[0]).total_seconds()


def download(task: dict[str, Any]) -> None:
    """The worker of boto3's runs: prints the seconds that it took, to stderr."""
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3", config=Config(s3={"addressing_style": "path"}, max_pool_connections=50), **task["client"]
    )

    def one(key: str) -> None:
        path = Path(task["target"]) / Path(key).name
        client.download_file(task["bucket"], key, str(path))
        if task["sync"]:
            with path.open("rb") as file:
                os.fsync(file.fileno())

    begun_s = time.perf_counter()
    with ThreadPoolExecutor(task["files_at_once"]) as pool:
        list(pool.map(one, task["keys"]))
    print(time.perf_counter() - begun_s, file=sys.stderr)


def measure(
    rounds: int, segments: int, segment_bytes: int, scratch_dir: str | None, files_at_once: tuple[int, ...]
) -> dict[str, Any]:
    """All runs; the summary. `files_at_once`: of boto3, one contestant each that syncs and one that does not."""
    from tests.servers.versitygw import VersityGateway

    load = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(dir=scratch_dir) as directory,
        VersityGateway(Path(directory) / "gateway", options=["--quiet"]) as gateway,
    ):
        log_dir = write_log_dir(Path(directory) / "logs", segments, segment_bytes)
        size_bytes = sum(path.stat().st_size for path in log_dir.glob("*/*.log"))
        bench = Bench(gateway, log_dir, [], size_bytes, Path(directory))
        bench.archive()
        contestants: dict[str, Callable[[], Run]] = {
            FROM_S3: lambda: bench.restore(bench.s3_url),
            FROM_DIRECTORY: lambda: bench.restore(str(bench.directory)),
            **{
                f"boto3 download_file, {count} at once{' + sync' if sync else ''}": (
                    lambda count=count, sync=sync: bench.boto3(count, sync=sync)  # type: ignore[misc]
                )
                for count in files_at_once
                for sync in (False, True)
            },
            "cp from the directory": lambda: bench.cp(sync=False),
            "cp from the directory + sync": lambda: bench.cp(sync=True),
        }
        results: dict[str, list[Run]] = {name: [] for name in contestants}
        for turn in range(rounds):
            names = list(contestants)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                os.sync()  # else one contestant writes out what another one has left
                results[name].append(contestants[name]())
                print(f"{turn + 1}/{rounds} {name:50s} {results[name][-1].mb_per_s:7.0f} MB/s", file=sys.stderr)
    return summarise(results, input_text(segments, segment_bytes, rounds, load))


def summarise(results: dict[str, list[Run]], about: str) -> dict[str, Any]:
    """Medians per contestant, and ours to the fastest peer that syncs."""
    rows = medians(results)
    speeds = {row["name"]: row["mb_per_s"] for row in rows}
    peers = [speed for name, speed in speeds.items() if name.startswith("boto3") and name.endswith("+ sync")]
    return {
        "about": about,
        "rows": rows,
        "ratio": speeds[FROM_S3] / max(peers),
        "directory_ratio": speeds[FROM_DIRECTORY] / speeds["cp from the directory + sync"],
        "peak_mb": max(row["peak_mb"] for row in rows if row["name"] in {FROM_S3, FROM_DIRECTORY}),
    }


def main() -> int:
    """Run the comparison and tell its outcome, see `conclude`."""
    parser = options("Throughput of `tiered-sidecar restore` beside plain downloads.")
    parser.add_argument("--dir", help="where to work; default: the directory for temporary files")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        download(json.loads(arguments.worker))
        return 0
    size = (1, 2, 9 * MIB) if arguments.tiny else (arguments.rounds, 7, 256 * MIB)
    summary = measure(*size, arguments.dir, FILES_AT_ONCE[:1] if arguments.tiny else FILES_AT_ONCE)
    ratios = [
        f"ratio {summary['ratio']:.2f} to the fastest boto3 that syncs (promised {PROMISED_RATIO})",
        f"from a directory {summary['directory_ratio']:.2f} of cp + sync",
    ]
    return conclude(
        "Restore to a disk of the same machine",
        summary,
        ratios,
        arguments,
        promised_ratio=PROMISED_RATIO,
        promised_peak_mb=PROMISED_PEAK_MB,
    )


if __name__ == "__main__":
    sys.exit(main())
