"""Large log directories as a broker writes them, made in seconds: for measurements, and for uploads worth interrupting.

Batches of about 130 KB with real records inside (varint-framed, uncompressed), from ten idempotent producers that alternate, with
rising sequences and timestamps and a right CRC-32C each; offset and time indexes, leader epochs, checkpoints, and an empty
active segment. The records of all batches are the same bytes: nothing here compresses or deduplicates.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

from crc32c import crc32c

from sidecar.logformat.batches import scan_file
from sidecar.logformat.indexes.rebuild import IndexBuilder

MIB = 1024 * 1024
CLUSTER_ID = "bWFkZS1mb3ItdGVzdHMtMQ"
TOPIC = "measured"
RECORDS_PER_BATCH = 1000
VALUE_BYTES = 118
PRODUCERS = 10
FIRST_TIMESTAMP_MS = 1_760_000_000_000
_HEAD = struct.Struct(">qiibI")
_BODY = struct.Struct(">hiqqqhii")
_HEAD_BYTES_IN_SIZE = 9
"""Leader epoch, magic and checksum count into the size field; what stands before it does not."""


def write_log_dir(
    directory: Path, segments: int, segment_bytes: int, *, batch_ms: int = 10, leader_epoch: int = 3
) -> Path:
    """A log dir with one partition, `measured-0`, of so many rolled segments of about `segment_bytes`; its path.

    `batch_ms`: from the first timestamp of a batch to that of the next. `leader_epoch`: of all batches; a broker that is given the
    files must not be of an older one.
    """
    partition = directory / f"{TOPIC}-0"
    partition.mkdir(parents=True)
    records = _records(random.Random(1))
    offset = 0
    for _ in range(segments):
        offset = _write_segment(partition, offset, segment_bytes, records, batch_ms, leader_epoch)
    for suffix in ("log", "index", "timeindex"):
        (partition / f"{offset:020d}.{suffix}").touch()
    (partition / "leader-epoch-checkpoint").write_text(f"0\n1\n{leader_epoch} 0\n")
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: bWVhc3VyZWQtdG9waWMtMQ")
    write_checkpoints(directory, offset)
    return directory


def write_checkpoints(directory: Path, end_offset: int) -> None:
    """What a broker keeps in a log dir next to partitions: the cluster's id, and that `measured-0` is stable up to this offset."""
    (directory / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={CLUSTER_ID}\n")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (directory / name).write_text(f"0\n1\n{TOPIC} 0 {end_offset}\n")
    (directory / "log-start-offset-checkpoint").write_text("0\n0\n")


def _records(randomness: random.Random) -> bytes:
    """The records of a batch: rising offset and timestamp deltas, keys of 8 bytes, random values."""
    pieces = []
    for number in range(RECORDS_PER_BATCH):
        key = f"{randomness.randrange(10**8):08d}".encode()
        body = b"\0" + varint(number // 100) + varint(number) + varint(len(key)) + key
        body += varint(VALUE_BYTES) + randomness.randbytes(VALUE_BYTES) + varint(0)
        pieces += [varint(len(body)), body]
    return b"".join(pieces)


def varint(value: int) -> bytes:
    """Zigzag, as lengths stand in records. Not for negative values."""
    zigzag, encoded = value << 1, bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def _write_segment(
    partition: Path, base_offset: int, segment_bytes: int, records: bytes, batch_ms: int, leader_epoch: int
) -> int:
    """Returns the next segment's base offset."""
    path, offset, written = partition / f"{base_offset:020d}.log", base_offset, 0
    with path.open("wb") as file:
        while written < segment_bytes:
            batch = _batch(offset, records, batch_ms, leader_epoch)
            file.write(batch)
            written += len(batch)
            offset += RECORDS_PER_BATCH
    builder = IndexBuilder(base_offset)
    for columns in scan_file(path, base_offset=base_offset):
        builder.add(columns)
    built = builder.finish(())
    path.with_suffix(".index").write_bytes(built.offset_index)
    path.with_suffix(".timeindex").write_bytes(built.time_index)
    return offset


def _batch(base_offset: int, records: bytes, batch_ms: int, leader_epoch: int) -> bytes:
    number = base_offset // RECORDS_PER_BATCH
    producer, turn = number % PRODUCERS, number // PRODUCERS
    timestamp_ms = FIRST_TIMESTAMP_MS + batch_ms * number
    last_delta = RECORDS_PER_BATCH - 1
    largest_ms = timestamp_ms + last_delta // 100
    sequence = turn * RECORDS_PER_BATCH % 2**31
    body = (
        _BODY.pack(0, last_delta, timestamp_ms, largest_ms, 4000 + producer, 0, sequence, RECORDS_PER_BATCH) + records
    )
    return _HEAD.pack(base_offset, _HEAD_BYTES_IN_SIZE + len(body), leader_epoch, 2, crc32c(body)) + body
