"""How long does `snapshots heal` take for a whole broker of small partitions?

Question    Wall seconds of the command, from start to exit, for a stopped broker's log dir in which every snapshot is missing.
Input       1,000 partitions x 10 rolled segments of one batch (and an active one), from one producer each; page cache warm.
            10,000 snapshots are written, each with fsync, and every partition's directory is synced.
Unit        seconds, and milliseconds per partition; again for the second run, which judges every snapshot and writes none.
Run         python -m benchmarks.heal [--json result.json]                                   (--tiny: 5 partitions)
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sidecar.logformat.building import build_batch
from sidecar.logformat.record import Record

PARTITIONS, TINY_PARTITIONS, SEGMENTS, RECORDS = 1000, 5, 10, 10
FIRST_TIMESTAMP_MS = 1_760_000_000_000


def main() -> int:
    """Measure and print; 1 if a snapshot is missing afterwards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    partitions = TINY_PARTITIONS if arguments.tiny else PARTITIONS
    with tempfile.TemporaryDirectory() as scratch:
        log_dir = write_partitions(Path(scratch) / "logs", partitions)
        first_s, first = _healed(log_dir)
        second_s, second = _healed(log_dir)
    created = [run["counts"]["created"] for run in (first, second)]
    for name, seconds, count in zip(("first run", "second run"), (first_s, second_s), created, strict=True):
        per_partition_ms = 1000 * seconds / partitions
        print(f"{name:11s} {seconds:7.2f} s  {per_partition_ms:7.2f} ms per partition  {count} snapshots created")
    if arguments.json:
        result = {"partitions": partitions, "first_s": first_s, "second_s": second_s, "created": created}
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if created == [partitions * SEGMENTS, 0] else 1


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


def _healed(log_dir: Path) -> tuple[float, dict[str, Any]]:
    command = [sys.executable, "-m", "sidecar", "--json", "--quiet", "snapshots", "heal", str(log_dir)]
    started = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.perf_counter() - started, json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
