"""How long does `snapshots heal` take for a whole broker of small partitions, and how much memory does it need?

Question    Wall seconds of the command, from start to exit, for a stopped broker's log dir in which every snapshot is missing.
Input       1,000 partitions x 10 rolled segments of one batch (and an active one), from one producer each; page cache warm.
            10,000 snapshots are written, each with fsync, and every partition's directory is synced.
            And one partition with one rolled segment of 2 GiB.
Unit        seconds, and milliseconds per partition; again for the second run, which judges every snapshot and writes none.
            MB (10^6 bytes) of all its processes together at the peak, what they share counted once (Pss, every 50 ms).
Run         python -m benchmarks.heal [--json result.json]                   (--tiny: 5 partitions, a segment of 1 MiB)
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.memory import peak_pss_mb
from benchmarks.segments import MIB, write_log_dir
from sidecar.logformat.building import build_batch
from sidecar.logformat.record import Record

PARTITIONS, TINY_PARTITIONS, SEGMENTS, RECORDS = 1000, 5, 10, 10
FIRST_TIMESTAMP_MS = 1_760_000_000_000
LARGE_MIB, TINY_MIB = 2047, 1


@dataclass(frozen=True)
class Healing:
    """One run of the command."""

    name: str
    partitions: int
    seconds: float
    peak_mb: float
    created: int


def main() -> int:
    """Measure and print; 1 if a snapshot is missing afterwards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    partitions = TINY_PARTITIONS if arguments.tiny else PARTITIONS
    with tempfile.TemporaryDirectory() as scratch:
        small = write_partitions(Path(scratch) / "small", partitions)
        large = write_log_dir(Path(scratch) / "large", 1, (TINY_MIB if arguments.tiny else LARGE_MIB) * MIB)
        (large / ".kafka_cleanshutdown").touch()
        runs = [
            _healed("small, first run", small, partitions),
            _healed("small, second run", small, partitions),
            _healed("large", large, 1),
        ]
    for run in runs:
        each_ms = 1000 * run.seconds / run.partitions
        print(
            f"{run.name:18s} {run.seconds:7.2f} s  {each_ms:8.2f} ms per partition  {run.peak_mb:5.0f} MB at the peak  "
            f"{run.created} snapshots created"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(run) for run in runs], indent=2) + "\n")
    return 0 if [run.created for run in runs] == [partitions * SEGMENTS, 0, 1] else 1


def write_partitions(log_dir: Path, partitions: int) -> Path:
    """A log dir as after a clean stop, without any snapshot."""
    for partition in range(partitions):
        directory = log_dir / f"small-{partition}"
        directory.mkdir(parents=True)
        for segment in range(SEGMENTS):
            base = segment * RECORDS
            records = [Record(base + index, FIRST_TIMESTAMP_MS, b"key", b"value") for index in range(RECORDS)]
            batch = build_batch(records, producer_id=4000 + partition, producer_epoch=0, base_sequence=base)
            (directory / f"{base:020d}.log").write_bytes(batch)
        (directory / f"{SEGMENTS * RECORDS:020d}.log").touch()
    (log_dir / ".kafka_cleanshutdown").touch()
    return log_dir


def _healed(name: str, log_dir: Path, partitions: int) -> Healing:
    command = [sys.executable, "-m", "sidecar", "--json", "--quiet", "snapshots", "heal", str(log_dir)]
    with tempfile.TemporaryFile() as printed:
        started = time.perf_counter()
        child = subprocess.Popen(command, stdout=printed)
        peak_mb = peak_pss_mb(child)
        seconds = time.perf_counter() - started
        printed.seek(0)
        answer = json.loads(printed.read())
    if child.returncode:
        raise RuntimeError(f"{command[2:]} ended with {child.returncode}: {answer}")
    return Healing(name, partitions, seconds, peak_mb, answer["counts"]["created"])


if __name__ == "__main__":
    sys.exit(main())
