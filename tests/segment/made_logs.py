"""Logs of `orders-0` made of records that a test chooses, and which of them a plain dictionary says must stay."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random

from sidecar.compaction_strategy import Strategy
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from tests.compaction.reference.batches import decode_segment
from tests.golden import wall_clock_ms

NOW_MS = wall_clock_ms("4.3.0")
LEADER_EPOCH = 4
VERSION = "version"


def roll(log_dir: Path, segments: Mapping[int, Iterable[bytes]], end_offset: int) -> None:
    """Make these segments, of which the last is active, the broker's log."""
    directory = log_dir / "orders-0"
    for path in directory.iterdir():
        if path.name[:20].isdigit():
            path.unlink()
    for base_offset, batches in segments.items():
        path = directory / f"{base_offset:020d}.log"
        path.write_bytes(b"".join(batches))
        os.utime(path, ns=((NOW_MS - 60_000) * 1_000_000,) * 2)
    (directory / "leader-epoch-checkpoint").write_text(f"0\n1\n{LEADER_EPOCH} 0\n")
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (log_dir / name).write_text(f"0\n1\norders 0 {end_offset}\n")
    (log_dir / "log-start-offset-checkpoint").write_text("0\n0\n")


def random_segments(random: Random, count: int, *, keys: int = 6) -> dict[int, tuple[bytes, ...]]:
    """So many rolled segments and an empty active one. Times and versions do not follow the offsets."""
    segments: dict[int, tuple[bytes, ...]] = {}
    offset = 0
    for _ in range(count):
        base_offset, batches = offset, []
        for _ in range(random.randint(1, 3)):
            records = [_record(random, offset + number, keys) for number in range(random.randint(1, 4))]
            batches.append(build_batch(records, leader_epoch=LEADER_EPOCH))
            offset += len(records)
        segments[base_offset] = tuple(batches)
    return {**segments, offset: ()}


def _record(random: Random, offset: int, keys: int) -> Record:
    version = random.randint(0, 50).to_bytes(8, signed=True)
    return Record(
        offset,
        NOW_MS - 5_000_000 + random.randint(0, 1000),
        b"k%d" % random.randrange(keys),
        b"v%d" % offset,
        ((VERSION, version),) if random.random() < 0.8 else (),
    )


def records_in(logs: Iterable[bytes]) -> list[Record]:
    """All records, in order."""
    return [record for log in logs for batch in decode_segment(log) for record in batch.records]


def winners(records: Sequence[Record], strategy: Strategy) -> set[int]:
    """The offsets that a dictionary keeps."""

    def rank(record: Record) -> tuple[object, ...]:
        if strategy is Strategy.TIMESTAMP:
            return record.timestamp_ms, record.offset
        if strategy is Strategy.HEADER:
            versions = [int.from_bytes(value or b"", signed=True) for name, value in record.headers if name == VERSION]
            return (1, versions[-1], record.offset) if versions else (0, 0, record.offset)
        return (record.offset,)

    best: dict[bytes | None, Record] = {}
    for record in records:
        old = best.get(record.key)
        if old is None or rank(record) >= rank(old):
            best[record.key] = record
    return {record.offset for record in best.values()}
