"""How long does `snapshots heal` take for a whole broker of small partitions, and how much memory does it need?

Question    Wall seconds of the command, from start to exit, for a stopped broker's log dir in which every snapshot is missing.
Input       1,000 partitions x 10 rolled segments of one batch (and an active one), from one producer each; page cache warm.
            10,000 snapshots are written, each with fsync, and every partition's directory is synced.
            And one partition with one rolled segment of 2 GiB.
            And one partition of 32 rolled segments of 64 MiB, a day each, whose two newest snapshots are missing: with right ones
            below, and with empty ones below, from which no replay may begin: the whole log is read, for open transactions.
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
from sidecar.archive.bundle import EMPTY_SNAPSHOT
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record

PARTITIONS, TINY_PARTITIONS, SEGMENTS, RECORDS = 1000, 5, 10, 10
FIRST_TIMESTAMP_MS = 1_760_000_000_000
LARGE_MIB, TINY_MIB = 2047, 1
DAYS, DAY_MIB, TINY_DAYS = 32, 64, 16
DAY_MS, BATCH_BYTES = 86_400_000, 131_000


@dataclass(frozen=True)
class Healing:
    """One run of the command."""

    name: str
    partitions: int
    seconds: float
    peak_mb: float
    created: int
    read_mb: float


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
            _healed("small, second run", small, partitions, "--replay", "full"),
            _healed("large", large, 1),
        ]
        runs += newest_missing(Path(scratch), tiny=arguments.tiny)
    for run in runs:
        each_ms = 1000 * run.seconds / run.partitions
        print(
            f"{run.name:32s} {run.seconds:7.2f} s  {each_ms:8.2f} ms per partition  {run.peak_mb:5.0f} MB at the peak  "
            f"{run.created} snapshots created, {run.read_mb:.0f} MB read"
        )
    full, after_snapshot, after_empty = runs[-3:]
    for window in (after_snapshot, after_empty):
        print(
            f"{window.name}: 1/{full.read_mb / window.read_mb:.1f} of the bytes and 1/{full.seconds / window.seconds:.1f} of the "
            f"time of a full replay"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(run) for run in runs], indent=2) + "\n")
    return 0 if [run.created for run in runs] == [partitions * SEGMENTS, 0, 1, 2, 2, 2] else 1


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


def newest_missing(scratch: Path, *, tiny: bool) -> list[Healing]:
    """A log of a segment a day that lacks its two newest snapshots: in full, from a trusted snapshot, above empty ones."""
    days, size_bytes = (TINY_DAYS, TINY_MIB * MIB) if tiny else (DAYS, DAY_MIB * MIB)
    log_dir = write_log_dir(scratch / "days", days, size_bytes, batch_ms=DAY_MS * BATCH_BYTES // size_bytes)
    (log_dir / ".kafka_cleanshutdown").touch()
    _healed("days, all missing", log_dir, 1)
    snapshots = sorted((log_dir / "measured-0").glob("*.snapshot"))
    runs = []
    for name, replay in (("newest missing, full", "full"), ("newest missing, after a snapshot", "window")):
        for path in snapshots[-2:]:
            path.unlink()
        runs.append(_healed(name, log_dir, 1, "--replay", replay))
    for path in snapshots[-2:]:
        path.unlink()
    for path in snapshots[:-2]:
        path.write_bytes(EMPTY_SNAPSHOT)
    return [*runs, _healed("newest missing, after empty ones", log_dir, 1, "--replay", "window")]


def _healed(name: str, log_dir: Path, partitions: int, *options: str) -> Healing:
    command = [sys.executable, "-m", "sidecar", "--json", "--quiet", "snapshots", "heal", str(log_dir), *options]
    with tempfile.TemporaryFile() as printed:
        started = time.perf_counter()
        child = subprocess.Popen(command, stdout=printed)
        peak_mb = peak_pss_mb(child.pid, lambda: child.poll() is not None)
        seconds = time.perf_counter() - started
        printed.seek(0)
        answer = json.loads(printed.read())
    if child.returncode not in {0, 4}:  # 4: empty snapshots that hide producers are there, on purpose.
        raise RuntimeError(f"{command[2:]} ended with {child.returncode}: {answer}")
    return Healing(
        name, partitions, seconds, peak_mb, answer["counts"]["created"], answer["counts"]["read_bytes"] / 1e6
    )


if __name__ == "__main__":
    sys.exit(main())
