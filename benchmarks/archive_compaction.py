"""How long does `compact --archive` take as a whole, compared with only moving the same bytes, and with the broker's cleaner?

Question    Seconds of the installed program, from the start of its process to its end, against boto3, which only downloads the
            same `.log` objects into files and uploads as many bytes as the program did; and, with --broker, against what a 4.3.0
            broker's LogCleaner says that it took for the same segments on its disk.
Input       1,525 MiB in 6 segments: 13 million records of about 124 bytes, 1 million keys, uncompressed, batches of 1,000;
            archived by `backfill`. versitygw on the same machine, on loopback. After each run the compaction is undone.
Unit        Seconds of wall time. MB/s (10^6 bytes of input) of whole processes. Peak resident memory and CPU seconds of the
            process. CPU seconds of the server. `tests/pipeline/test_store_traffic_of_compaction.py` counts what is read.
Promise     median <= 8 s on two idle cores; MB/s >= 0.4 of boto3's; peak memory of every run <= 700 MB.
Run         python -m benchmarks.archive_compaction [--rounds 5] [--broker] [--json result.json]      (--tiny: a few seconds)

Each run is a process of its own; runs of both alternate. On a machine that does other work only the ratio and CPU seconds
mean much.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.compaction import broker_s
from benchmarks.compaction_input import TOPIC, Shape, write_partition
from benchmarks.product_runs import PROGRAM, Run, conclude, measured, medians, options, variables_of
from benchmarks.restore import download
from benchmarks.segments import CLUSTER_ID, MIB

PROMISED_RATIO = 0.4
PROMISED_PEAK_MB = 700
PROMISED_S = 8.0
OURS, FLOOR, BROKER = "tiered-sidecar compact --archive", "boto3 download and upload", "LogCleaner on its own disk"
FULL = Shape(13_000_000, 1_000_000)
TINY = Shape(120_000, 9_000, segment_bytes=9 * MIB)
_FILES_AT_ONCE = 4


@dataclass(frozen=True)
class Bench:
    """What all runs share. `partition`: the input on disk, of `size_bytes`."""

    gateway: Any
    partition: Path
    size_bytes: int
    scratch: Path

    @property
    def url(self) -> str:
        """The archive's."""
        return f"s3://{self.gateway.bucket}/archive"

    def archive(self) -> None:
        """Back-fill the partition."""
        log_dir = self.partition.parent
        end_offset = max(int(path.stem) for path in self.partition.glob("*.log"))
        (log_dir / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={CLUSTER_ID}\n")
        (self.partition / "partition.metadata").write_text("version: 0\ntopic_id: bWVhc3VyZWQtdG9waWMtMQ")
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            (log_dir / name).write_text(f"0\n1\n{TOPIC} 0 {end_offset}\n")
        (log_dir / "log-start-offset-checkpoint").write_text("0\n0\n")
        self._sidecar("backfill", "--log-dir", str(log_dir), "--assume-leader")

    def compact(self) -> tuple[Run, dict[str, Any]]:
        """One compaction and its answer; undone."""
        answers: list[str] = []
        command = [str(PROGRAM), "compact", "--archive", self.url, "--topic", TOPIC, "--json", "--quiet"]
        run = measured(
            command, self._variables(), self.gateway, self.size_bytes, lambda printed, _: answers.append(printed)
        )
        found: dict[str, Any] = json.loads(answers[0])
        self._sidecar("compact", "--archive", self.url, "--undo", "--topic", TOPIC)
        return run, found

    def boto3(self, uploaded_bytes: int) -> Run:
        """All `.log` objects that were archived first into files, and as many bytes back as the compaction uploads."""
        with closing(self.gateway.client()) as client:
            listed = client.list_objects_v2(Bucket=self.gateway.bucket)["Contents"]
        sizes = {path.stat().st_size for path in self.partition.glob("*.log")}
        target = self.scratch / "downloaded"
        target.mkdir()
        task = {
            "keys": [entry["Key"] for entry in listed if entry["Key"].endswith(".log") and entry["Size"] in sizes],
            "bucket": self.gateway.bucket,
            "files_at_once": _FILES_AT_ONCE,
            "sync": False,
            "target": str(target),
            "upload_bytes": uploaded_bytes,
            "client": {
                "endpoint_url": self.gateway.endpoint,
                "region_name": self.gateway.region,
                "aws_access_key_id": self.gateway.access_key,
                "aws_secret_access_key": self.gateway.secret_key,
            },
        }
        command = [sys.executable, "-m", "benchmarks.archive_compaction", "--worker", json.dumps(task)]
        run = measured(command, {}, self.gateway, self.size_bytes, lambda _, __: None)
        shutil.rmtree(target)
        return run

    def _variables(self) -> dict[str, str]:
        return variables_of(self.gateway, self.url, self.scratch / "state")

    def _sidecar(self, *arguments: str) -> None:
        environment = {**os.environ, **self._variables()}
        subprocess.run([str(PROGRAM), *arguments, "--quiet"], env=environment, check=True, stdout=subprocess.DEVNULL)


def move(task: dict[str, Any]) -> None:
    """The worker of boto3's runs."""
    import boto3
    from botocore.config import Config

    download(task)
    source = Path(task["target"]) / "upload"
    with source.open("wb") as file:
        left = task["upload_bytes"]
        for path in sorted(Path(task["target"]).glob("*.log")):
            left -= file.write(path.read_bytes()[:left]) if left else 0
    client = boto3.client("s3", config=Config(s3={"addressing_style": "path"}), **task["client"])
    client.upload_file(str(source), task["bucket"], "uploaded")


def measure(rounds: int, shape: Shape, *, broker: bool) -> dict[str, Any]:
    """All runs; the summary."""
    from tests.servers.versitygw import VersityGateway

    load, results, broker_seconds = os.getloadavg()[0], dict[str, list[Run]]({OURS: [], FLOOR: []}), list[float]()
    with (
        tempfile.TemporaryDirectory(prefix="archive-compaction-") as directory,
        VersityGateway(Path(directory) / "gateway", options=["--quiet"]) as gateway,
    ):
        partition = write_partition(Path(directory) / "logs" / f"{TOPIC}-0", shape)
        size_bytes = sum(path.stat().st_size for path in partition.glob("*.log"))
        bench = Bench(gateway, partition, size_bytes, Path(directory))
        bench.archive()
        for turn in range(rounds):
            os.sync()  # else one contestant writes out what another one has left
            run, answer = bench.compact()
            if answer["problem"] is not None or not 0 < answer["records_after"] <= shape.keys:
                raise RuntimeError(f"not what was to come of it: {answer}")
            results[OURS].append(run)
            os.sync()
            results[FLOOR].append(bench.boto3(answer["bytes_after"]))
            if broker:
                broker_seconds.append(broker_s(partition, Path(directory) / f"broker-{turn}"))
            for name, runs in results.items():
                print(
                    f"{turn + 1}/{rounds} {name:40s} {size_bytes / runs[-1].whole_mb_per_s / 1e6:7.2f} s",
                    file=sys.stderr,
                )
    rows = medians(results)
    ours, floor = rows
    about = f"{size_bytes // MIB} MiB, {rounds} round(s), {os.cpu_count()} cores, load before {load:.1f}"
    return {
        "about": about,
        "rows": rows,
        "ours_s": size_bytes / ours["whole_mb_per_s"] / 1e6,
        "ratio": ours["whole_mb_per_s"] / floor["whole_mb_per_s"],
        "cpu_ratio": ours["cpu_s"] / floor["cpu_s"],
        "broker_s": broker_seconds,
        "peak_mb": ours["peak_mb"],
    }


def main() -> int:
    """Run the comparison and print its outcome, see `conclude`."""
    parser = options("Seconds of `tiered-sidecar compact --archive` beside plain downloads and uploads.")
    parser.add_argument("--broker", action="store_true", help="the LogCleaner of a 4.3.0 broker in turn")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        move(json.loads(arguments.worker))
        return 0
    size = (1, TINY) if arguments.tiny else (arguments.rounds, FULL)
    summary = measure(*size, broker=arguments.broker)
    ratios = [
        f"{summary['ours_s']:.2f} s (promised {PROMISED_S:g} on two idle cores)",
        f"ratio {summary['ratio']:.2f} to boto3 (promised {PROMISED_RATIO})",
        f"{summary['cpu_ratio']:.2f} x its CPU seconds",
        *(f"{BROKER} {seconds:.1f} s" for seconds in summary["broker_s"]),
    ]
    return conclude(
        "Compaction of an archive in versitygw on the same machine",
        summary,
        ratios,
        arguments,
        promised_ratio=PROMISED_RATIO,
        promised_peak_mb=PROMISED_PEAK_MB,
    )


if __name__ == "__main__":
    sys.exit(main())
