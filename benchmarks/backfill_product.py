"""How fast is `tiered-sidecar backfill` as a whole, compared with the fastest way boto3 itself has to send the same files?

Question    MB/s of the installed program, which reads, checks, replays, uploads, reads back and commits, against `upload_file`
            of boto3 in several configurations, which only uploads.
Input       7 rolled segments of 256 MiB in real format (`benchmarks/segments.py`), in the page cache; versitygw on the same
            machine, on loopback.
Unit        MB/s (10^6 bytes) from the first segment's turn to the last commit, as the program's own log says, beside boto3's
            from the first `upload_file` to the end of the last; both without the start of the process. "whole" is with it, for
            both. Peak resident memory and CPU seconds of the client process, whole. CPU seconds of the server.
Promise     median of ours >= 0.95 of the highest median of boto3; peak memory of every run <= 200 MB (with the library of kernels).
Run         python -m benchmarks.backfill_product [--rounds 5] [--json result.json]      (--tiny: a few seconds)

Each run is a process of its own; runs of all contestants alternate, and the order turns with each round. What a run stored is
deleted after it. On a machine that does other work MB/s mean little, and CPU seconds grow: see the printed load.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.product_runs import (
    PROGRAM,
    Run,
    conclude,
    empty,
    input_as_told,
    measured,
    medians,
    options,
    variables_of,
)
from benchmarks.segments import MIB, write_log_dir
from benchmarks.uploaders import BOTO3, Contestant, worker_command

PROMISED_RATIO = 0.95
PROMISED_PEAK_MB = 200
OURS = "tiered-sidecar backfill"


@dataclass(frozen=True)
class Bench:
    """What all runs share. `sources` are the rolled segments, `size_bytes` their sum."""

    gateway: Any
    log_dir: Path
    sources: list[str]
    size_bytes: int
    scratch: Path

    def product(self, number: int) -> Run:
        """One back-fill into an archive of its own."""
        url = f"s3://{self.gateway.bucket}/{number}"
        variables = variables_of(self.gateway, url, self.scratch / f"state-{number}")
        arguments = ["backfill", "--log-dir", str(self.log_dir), "--assume-leader", "--json"]
        command = [str(PROGRAM), *arguments]
        return measured(command, variables, self.gateway, self.size_bytes, lambda _, log: _transfer_s(log))

    def boto3(self, contestant: Contestant) -> Run:
        """The same files by `upload_file`, in a worker."""
        command = worker_command(contestant, self.gateway, self.sources)
        return measured(
            command,
            {},
            self.gateway,
            self.size_bytes,
            lambda printed, _: self.size_bytes / 1e6 / json.loads(printed)["mb_per_s"],
        )


def _transfer_s(log: str) -> float:
    """From the progress line before the first segment to the last commit."""
    events = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    stamps = {
        name: [datetime.fromisoformat(event["timestamp"]).timestamp() for event in events if event["event"] == name]
        for name in ("progress", "segment_committed")
    }
    return stamps["segment_committed"][-1] - stamps["progress"][0]


def measure(rounds: int, segments: int, segment_bytes: int, contestants: list[Contestant]) -> dict[str, Any]:
    """All runs; the summary."""
    from tests.servers.versitygw import VersityGateway

    load = os.getloadavg()[0]
    results: dict[str, list[Run]] = {OURS: [], **{contestant.name: [] for contestant in contestants}}
    with tempfile.TemporaryDirectory() as directory, VersityGateway(Path(directory), options=["--quiet"]) as gateway:
        log_dir = write_log_dir(Path(directory) / "logs", segments, segment_bytes)
        sources = [path for path in sorted(log_dir.glob("*/*.log")) if path.stat().st_size]
        size_bytes = sum(path.stat().st_size for path in sources)
        bench = Bench(gateway, log_dir, [str(path) for path in sources], size_bytes, Path(directory))
        os.sync()  # else the first contestants share the disk with the writing of the sources
        for turn in range(rounds):
            entries: list[Contestant | None] = [None, *contestants]
            for entry in entries[turn % len(entries) :] + entries[: turn % len(entries)]:
                number = time.time_ns()  # noqa: TID251 - only a name
                run = bench.product(number) if entry is None else bench.boto3(entry)
                name = OURS if entry is None else entry.name
                results[name].append(run)
                print(f"{turn + 1}/{rounds} {name:60s} {run.mb_per_s:7.0f} MB/s", file=sys.stderr)
                empty(gateway)
    return summarise(results, input_as_told(segments, segment_bytes, rounds, load))


def summarise(results: dict[str, list[Run]], about: str) -> dict[str, Any]:
    """Medians per contestant, and ours to the fastest of boto3's."""
    rows = medians(results)
    ours, *others = rows
    fastest = max(others, key=lambda row: row["mb_per_s"])
    return {
        "about": about,
        "rows": rows,
        "fastest_boto3": fastest["name"],
        "ratio": ours["mb_per_s"] / fastest["mb_per_s"],
        "whole_ratio": ours["whole_mb_per_s"] / max(row["whole_mb_per_s"] for row in others),
        "peak_mb": ours["peak_mb"],
    }


def main() -> int:
    """Run the comparison and tell its outcome, see `conclude`."""
    parser = options("Throughput of `tiered-sidecar backfill` beside boto3's.")
    parser.add_argument("--against", type=int, nargs="*", help="only these of boto3's configurations, by number from 0")
    arguments = parser.parse_args()
    contestants = [BOTO3[number] for number in arguments.against] if arguments.against else BOTO3
    size = (1, 2, 11 * MIB) if arguments.tiny else (arguments.rounds, 7, 256 * MIB)
    summary = measure(*size, contestants[:2] if arguments.tiny else contestants)
    ratios = [
        f"ratio {summary['ratio']:.2f} to {summary['fastest_boto3']} (promised {PROMISED_RATIO})",
        f"whole processes {summary['whole_ratio']:.2f}",
    ]
    return conclude(
        "Back-fill to versitygw on the same machine",
        summary,
        ratios,
        arguments,
        promised_ratio=PROMISED_RATIO,
        promised_peak_mb=PROMISED_PEAK_MB,
    )


if __name__ == "__main__":
    sys.exit(main())
