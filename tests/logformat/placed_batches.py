"""Batches that exist only as columns, for what looks at headers and never at bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from sidecar.logformat.batches import BatchColumns
from sidecar.logformat.indexes.offset_index import OffsetIndexCheck
from sidecar.logformat.indexes.rebuild import BuiltIndexes, IndexBuilder
from sidecar.logformat.indexes.time_index import TimeIndexCheck
from sidecar.logformat.indexes.transaction_index import TransactionIndexCheck
from sidecar.logformat.indexes.verdict import IndexVerdict

ABORT = 0
COMMIT = 1

_TYPES = {"size_bytes": "i4", "magic": "i1", "attributes": "i2", "leader_epoch": "i4", "producer_epoch": "i2"} | {
    "base_sequence": "i4",
    "last_sequence": "i4",
    "record_count": "i4",
    "marker_type": "i1",
    "coordinator_epoch": "i4",
}


@dataclass(frozen=True)
class Placed:
    """One batch. `last_offset` defaults to the base offset."""

    base_offset: int
    size_bytes: int = 100
    last_offset: int | None = None
    max_timestamp_ms: int = -1
    leader_epoch: int = 0
    producer_id: int = -1
    marker_type: int = -1
    magic: int = 2
    crc: int = 0


SIX = [Placed(offset, 3000, max_timestamp_ms=ts) for offset, ts in enumerate((10, 50, 40, 50, 60, 20))]


def columns_of(batches: Sequence[Placed], first_position: int = 0) -> BatchColumns:
    """The batches one after the other, from `first_position` on."""
    sizes = np.array([batch.size_bytes for batch in batches], dtype=np.int64)
    columns: dict[str, list[int]] = {field.name: [-1] * len(batches) for field in fields(BatchColumns)}
    columns["position"] = (first_position + np.cumsum(sizes) - sizes).tolist()
    columns["last_offset"] = [last_offset_of(batch) for batch in batches]
    for name in fields(Placed):
        if name.name != "last_offset":
            columns[name.name] = [getattr(batch, name.name) for batch in batches]
    return BatchColumns(**{name: np.array(values, dtype=_TYPES.get(name, "i8")) for name, values in columns.items()})


def last_offset_of(batch: Placed) -> int:
    return batch.base_offset if batch.last_offset is None else batch.last_offset


def chunks_of(batches: Sequence[Placed], rows: int) -> Iterator[BatchColumns]:
    """The same columns in chunks of at most `rows` rows."""
    whole = columns_of(batches)
    for first in range(0, len(batches), rows):
        yield whole[first : first + rows]


def build(
    batches: Sequence[Placed], *, rows: int = 3, base_offset: int = 0, interval_bytes: int = 4096
) -> BuiltIndexes:
    """The indexes of these batches, given in chunks of that many rows."""
    builder = IndexBuilder(base_offset, interval_bytes)
    for columns in chunks_of(batches, rows):
        builder.add(columns)
    return builder.finish()


def judged(
    check: OffsetIndexCheck | TimeIndexCheck | TransactionIndexCheck,
    batches: Sequence[Placed],
    rows: int,
    rebuilt: bytes,
) -> IndexVerdict:
    """What a check says after these batches, given in chunks of that many rows."""
    for columns in chunks_of(batches, rows):
        check.add(columns)
    return check.finish(rebuilt)
