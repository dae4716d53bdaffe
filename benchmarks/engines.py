"""Is Spark in this container ever faster than this process? `--engine auto` takes this process, up to a bound of its memory.

Question    Seconds of wall time of one command, from the start of its process to its end, on either engine:
            `compact DIR --out OUT` and `snapshots rebuild DIR --out OUT`.
Input       Partitions of 16 to 1,024 MiB in segments of 64 MiB: records of about 124 bytes, 15 to a key, uncompressed,
            batches of 1,000. All in the page cache.
Unit        Seconds, medians; the two engines alternate. MB/s are 10^6 bytes of log for each second that 16 MiB do not take.
Result      docs/how-to/run-on-spark.md has the table; sidecar/cli/engines.py the bound.
Run         python -m benchmarks.engines [--rounds 3] [--mebibytes 16 64 256 1024] [--json result.json]      (--tiny: small)
            `tiered-sidecar prepare` before, as an image has had it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.compaction_input import TOPIC, Shape, write_partition
from sidecar.cli.engines import Work, WorkKind, choose_engine
from sidecar.host.limits import processors
from sidecar.model import EngineName

MIB = 1024 * 1024
ENGINES = ("local", "spark")
COMMANDS = {"compact": ("compact",), "rebuild": ("snapshots", "rebuild")}


@dataclass(frozen=True)
class Row:
    """One size of work. Seconds are medians; `auto` is what this checkout chooses."""

    command: str
    size_bytes: int
    segments: int
    local_s: float
    spark_s: float
    auto: str
    load: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mebibytes", type=int, nargs="+", default=[16, 64, 256, 1024])
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sizes, rounds = ([1, 2], 1) if arguments.tiny else (arguments.mebibytes, arguments.rounds)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="engines-benchmark-") as scratch:
        for mebibytes in sizes:
            records = mebibytes * MIB // 124
            shape = Shape(records, max(1, records // 15), segment_bytes=(1 if arguments.tiny else 64) * MIB)
            partition = write_partition(Path(scratch) / f"{mebibytes}" / f"{TOPIC}-0", shape)
            rows += (_measure(name, partition, Path(scratch), rounds) for name in COMMANDS)
            shutil.rmtree(partition.parent)
    _show(rows)
    if arguments.json:
        found = {"cores": processors(), "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


def _measure(name: str, partition: Path, scratch: Path, rounds: int) -> Row:
    sizes = [path.stat().st_size for path in partition.glob("*.log")]
    seconds: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for _ in range(rounds):
        for engine in ENGINES:
            out = scratch / "out" / f"{TOPIC}-0"
            command = [sys.executable, "-m", "sidecar", *COMMANDS[name], str(partition), "--out", str(out)]
            started = time.perf_counter()
            subprocess.run([*command, "--engine", engine], check=True, capture_output=True)
            seconds[engine].append(time.perf_counter() - started)
            shutil.rmtree(scratch / "out")
    kind = WorkKind.COMPACTION if name == "compact" else WorkKind.READING
    work = Work(kind, sum(sizes), on_this_machine=True)
    auto = choose_engine(EngineName.AUTO, work, has_cluster=False)
    medians = {engine: statistics.median(seconds[engine]) for engine in ENGINES}
    row = Row(name, work.size_bytes, len(sizes), medians["local"], medians["spark"], auto.value, os.getloadavg()[0])
    print(
        f"  {name:8s} {row.size_bytes / MIB:7.0f} MiB  local {row.local_s:7.2f} s  spark {row.spark_s:7.2f} s",
        flush=True,
    )
    return row


def _show(rows: list[Row]) -> None:
    print(f"\n{processors()} cores")
    print("| Work | Log | Segments | `local` | `spark` | `auto` takes |\n|---|---|---|---|---|---|")
    for row in rows:
        size = f"{row.size_bytes / MIB:,.0f} MiB"
        print(
            f"| `{row.command}` | {size} | {row.segments} | {row.local_s:.1f} s | {row.spark_s:.1f} s | `{row.auto}` |"
        )
    for name in COMMANDS:
        own = [row for row in rows if row.command == name]
        if len(own) > 1:
            first, last = own[0], own[-1]
            moved = last.size_bytes - first.size_bytes
            rates = [moved / 1e6 / max(1e-9, getattr(last, f"{e}_s") - getattr(first, f"{e}_s")) for e in ENGINES]
            print(
                f"{name}: local {rates[0]:,.0f} MB/s, spark {rates[1]:,.0f} MB/s; spark begins {first.spark_s:.1f} s late"
            )


if __name__ == "__main__":
    sys.exit(main())
