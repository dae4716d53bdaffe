"""Partitions with many versions of each key, made in seconds: for measurements of compaction."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from benchmarks.segments import varint
from sidecar.logformat.bodies.codecs import compress

TOPIC = "measured"
KEY_BYTES = 10
_FIRST_TIMESTAMP_MS = 1_760_000_000_000
_HEAD = struct.Struct(">qiibI")
_BODY = struct.Struct(">hiqqqhii")
_HEAD_BYTES_IN_SIZE = 9
_POOL_BYTES = 16 * 1024 * 1024

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Shape:
    """`records` records of `value_bytes` random hexadecimal digits; keys are drawn evenly from `keys`, or with `distinct` each
    key comes once before any comes again."""

    records: int
    keys: int
    value_bytes: int = 103
    records_per_batch: int = 1000
    codec: int = 0
    segment_bytes: int = 256 * 1024 * 1024
    distinct: bool = False
    seed: int = 1


def write_partition(directory: Path, shape: Shape) -> Path:
    """A partition directory of rolled segments and an empty active one, without indexes; its path."""
    directory.mkdir(parents=True)
    offset, written = 0, 0
    file = (directory / f"{0:020d}.log").open("wb")
    for batch, count in _batches(shape):
        if written and written + len(batch) > shape.segment_bytes:
            file.close()
            written = 0
            file = (directory / f"{offset:020d}.log").open("wb")
        file.write(batch)
        written += len(batch)
        offset += count
    file.close()
    (directory / f"{offset:020d}.log").touch()
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return directory


def _batches(shape: Shape) -> Iterator[tuple[bytes, int]]:
    random = np.random.default_rng(shape.seed)
    pool = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)[random.integers(0, 16, _POOL_BYTES)]
    template = _Template(shape)
    for first in range(0, shape.records, shape.records_per_batch):
        count = min(shape.records_per_batch, shape.records - first)
        numbers = np.arange(first, first + count) * 7_919 if shape.distinct else random.integers(0, shape.keys, count)
        start = int(random.integers(0, _POOL_BYTES - count * shape.value_bytes))
        records = template.filled(numbers % shape.keys, pool[start : start + count * shape.value_bytes])
        timestamp_ms = _FIRST_TIMESTAMP_MS + first // 100
        stream = records if shape.codec == 0 else compress(shape.codec, records)
        body = _BODY.pack(shape.codec, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count) + stream
        yield _HEAD.pack(first, _HEAD_BYTES_IN_SIZE + len(body), 0, 2, crc32c(body)) + body, count


class _Template:
    """The records of a batch with gaps for keys and values: offset deltas of one byte, and then of two."""

    def __init__(self, shape: Shape) -> None:
        self._value_bytes = shape.value_bytes
        self._short = [self._record(number) for number in range(min(64, shape.records_per_batch))]
        self._long = [self._record(number) for number in range(64, shape.records_per_batch)]

    def _record(self, number: int) -> Bytes:
        value = varint(self._value_bytes)
        body = (
            b"\0\0" + varint(number) + varint(KEY_BYTES) + bytes(KEY_BYTES) + value + bytes(self._value_bytes) + b"\0"
        )
        return np.frombuffer(varint(len(body)) + body, dtype=np.uint8)

    def filled(self, keys: npt.NDArray[np.int64], values: Bytes) -> bytes:
        """As many records as keys."""
        digits = (keys[:, None] // 10 ** np.arange(KEY_BYTES - 1, -1, -1) % 10 + ord("0")).astype(np.uint8)
        texts = values.reshape(len(keys), self._value_bytes)
        short = min(len(keys), 64)
        pieces = [self._fill(np.stack(self._short[:short]), digits[:short], texts[:short])]
        if len(keys) > short:
            pieces.append(self._fill(np.stack(self._long[: len(keys) - short]), digits[short:], texts[short:]))
        return b"".join(piece.tobytes() for piece in pieces)

    def _fill(self, records: Bytes, digits: Bytes, values: Bytes) -> Bytes:
        end = records.shape[1] - 1
        value_at = end - self._value_bytes
        key_at = value_at - len(varint(self._value_bytes)) - KEY_BYTES
        records[:, key_at : key_at + KEY_BYTES] = digits
        records[:, value_at:end] = values
        return records
