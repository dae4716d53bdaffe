# ruff: noqa: INP001 - scripts of the image build, no package
"""Archives, verifies, heals and compacts a small partition in the image itself; what Spark compacts is compared with what this
process does.

Also makes the clients of the store's library, so that a missing description of a service is noticed here. Run with
NUMBA_CACHE_DIR it leaves there the kernels of all this.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import boto3

from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record

COMMIT_KEY, COMMIT_VALUE = b"\0\0\0\1", b"\0\0\0\0\0\0"
KEYS = 50
BATCHES = 40


def main() -> None:
    """End with an error unless both engines write the same."""
    for service in ("s3", "sts", "sso", "sso-oidc"):
        boto3.client(service, region_name="us-east-1", aws_access_key_id="-", aws_secret_access_key="-")  # noqa: S106
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        log_dir = work / "log" / "smoke-0"
        log_dir.mkdir(parents=True)
        rows = [_batch(number) for number in range(BATCHES)]
        half = BATCHES // 2
        (log_dir / f"{0:020d}.log").write_bytes(b"".join(rows[:half]))
        (log_dir / f"{half * KEYS:020d}.log").write_bytes(b"".join(rows[half:]))
        (log_dir / f"{BATCHES * KEYS:020d}.log").touch()
        for path in log_dir.iterdir():
            # What was just written is left to settle.
            os.utime(path, (1_700_000_000, 1_700_000_000))
        (log_dir.parent / "meta.properties").write_text("version=1\ncluster.id=c21va2Utc21va2Utc21va2\nnode.id=1\n")
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            (log_dir.parent / name).write_text(f"0\n1\nsmoke 0 {BATCHES * KEYS}\n")
        archive = str(work / "archive")
        _run(
            "backfill",
            "--log-dir",
            str(log_dir.parent),
            "--archive",
            archive,
            "--assume-leader",
            "--state-dir",
            f"{work}/state",
        )
        _run("verify", "--archive", archive, "--deep", "--engine", "local")
        _run("snapshots", "rebuild", str(log_dir), "--out", str(work / "snapshots"), "--engine", "local")
        written = [_compacted(log_dir, work / engine, engine) for engine in ("spark", "local")]
        if not written[0] or written[0] != written[1]:
            sys.exit(f"Spark wrote {sorted(written[0])}, this process {sorted(written[1])}, or their contents differ")
    print(f"smoke: {len(written[0])} files, the same from both engines")  # noqa: T201


def _batch(number: int) -> bytes:
    """Of an idempotent producer; every third is of a transaction, whose marker follows. All codecs come, and of each batch one
    record stays, so that each is written anew."""
    first = number * KEYS
    is_transactional, producer = number % 3 == 0, {"producer_id": number % 3, "producer_epoch": 0}
    records = [
        Record(first + key, 1_700_000_000_000 + number, _key(number, key), f"value-{number}".encode())
        for key in range(KEYS - is_transactional)
    ]
    sequence = number // 3 * (KEYS - is_transactional)
    batch = build_batch(
        records, leader_epoch=0, codec=number % 5, base_sequence=sequence, transactional=is_transactional, **producer
    )
    if not is_transactional:
        return batch
    marker = Record(first + KEYS - 1, 1_700_000_000_000 + number, COMMIT_KEY, COMMIT_VALUE)
    return batch + build_batch([marker], leader_epoch=0, transactional=True, control=True, **producer)


def _key(number: int, key: int) -> bytes:
    return f"only-{number}".encode() if key == 0 else f"key-{key}".encode()


def _compacted(log_dir: Path, out: Path, engine: str) -> dict[str, bytes]:
    target = out / log_dir.name
    target.parent.mkdir()
    options = ("--engine", engine, "--now-ms", "1800000000000", "--include-active")
    _run("compact", str(log_dir), "--out", str(target), *options)
    return {path.name: path.read_bytes() for path in target.iterdir() if path.is_file()}


def _run(*arguments: str) -> None:
    program = Path(sys.executable).parent / "tiered-sidecar"
    subprocess.run([str(program), *arguments], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
