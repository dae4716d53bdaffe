# ruff: noqa: INP001 - scripts of the image build, no package
"""Compacts a small partition once on Spark and once without, in the image itself, and compares the files.

Also makes the clients of the store's library, so that a missing description of a service is noticed here.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import boto3

from sidecar.logformat.building import build_batch
from sidecar.logformat.record import Record

KEYS = 50
BATCHES = 40


def main() -> None:
    """End with an error unless both engines write the same."""
    for service in ("s3", "sts", "sso", "sso-oidc"):
        boto3.client(service, region_name="us-east-1", aws_access_key_id="-", aws_secret_access_key="-")  # noqa: S106
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        log_dir = work / "log" / "smoke-0"
        log_dir.mkdir(parents=True)
        rows = [_batch(number) for number in range(BATCHES)]
        half = BATCHES // 2
        (log_dir / f"{0:020d}.log").write_bytes(b"".join(rows[:half]))
        (log_dir / f"{half * KEYS:020d}.log").write_bytes(b"".join(rows[half:]))
        written = [_compacted(log_dir, work / engine, engine) for engine in ("spark", "local")]
        if not written[0] or written[0] != written[1]:
            sys.exit(f"Spark wrote {sorted(written[0])}, this process {sorted(written[1])}, or their contents differ")
    print(f"smoke: {len(written[0])} files, the same from both engines")  # noqa: T201


def _batch(number: int) -> bytes:
    first = number * KEYS
    records = [
        Record(first + key, 1_700_000_000_000 + number, f"key-{key}".encode(), f"value-{number}".encode())
        for key in range(KEYS)
    ]
    return build_batch(records, leader_epoch=0)


def _compacted(log_dir: Path, out: Path, engine: str) -> dict[str, bytes]:
    target = out / log_dir.name
    target.parent.mkdir()
    program = Path(sys.executable).parent / "tiered-sidecar"
    arguments = [
        str(log_dir),
        "--out",
        str(target),
        "--engine",
        engine,
        "--now-ms",
        "1800000000000",
        "--include-active",
    ]
    subprocess.run([str(program), "compact", *arguments], check=True)
    return {path.name: path.read_bytes() for path in target.iterdir() if path.is_file()}


if __name__ == "__main__":
    main()
