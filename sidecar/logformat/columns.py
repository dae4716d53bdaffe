"""Batch headers as numpy columns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np

from producer_state.facts import BatchFacts, Int8Column, Int16Column, Int32Column, Int64Column
from sidecar.logformat.headers import BatchFlag

POSITION, BASE_OFFSET, LAST_OFFSET, CRC, BASE_TIMESTAMP, MAX_TIMESTAMP, PRODUCER_ID, MARKER_TIMESTAMP = range(8)
"""Rows of the int64 block."""
SIZE, LEADER_EPOCH, BASE_SEQUENCE, LAST_SEQUENCE, RECORD_COUNT, COORDINATOR_EPOCH = range(6)
"""Rows of the int32 block."""
ATTRIBUTES, PRODUCER_EPOCH = range(2)
"""Rows of the int16 block."""
MAGIC, MARKER_TYPE = range(2)
"""Rows of the int8 block."""

Blocks = tuple[Any, Any, Any, Any]
"""The columns by width: int64[8, n], int32[6, n], int16[2, n], int8[2, n]. A kernel takes four arrays, not eighteen."""


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """Batch headers in file order, one row each; columns of equal length n.

    A row is a magic 2 batch, or one legacy message (magic 0 and 1), which may be the wrapper of a compressed set.
    Absent values are -1. Of a legacy wrapper only the offset of its last message is known without decompression:
    base_offset repeats last_offset there, and record_count is -1. base_timestamp_ms is the delete horizon where the
    attributes say so. The marker columns are as in BatchFacts.
    """

    position: Int64Column
    size_bytes: Int32Column
    base_offset: Int64Column
    last_offset: Int64Column
    magic: Int8Column
    attributes: Int16Column
    leader_epoch: Int32Column
    crc: Int64Column
    base_timestamp_ms: Int64Column
    max_timestamp_ms: Int64Column
    producer_id: Int64Column
    producer_epoch: Int16Column
    base_sequence: Int32Column
    last_sequence: Int32Column
    record_count: Int32Column
    marker_type: Int8Column
    coordinator_epoch: Int32Column
    marker_timestamp_ms: Int64Column

    def __len__(self) -> int:
        return int(self.position.shape[0])

    def __getitem__(self, rows: slice) -> BatchColumns:
        return BatchColumns(*(getattr(self, field.name)[rows] for field in fields(self)))

    def facts(self) -> BatchFacts:
        """The columns that producer state is made of; views, nothing is copied."""
        return BatchFacts(*(getattr(self, field.name) for field in fields(BatchFacts)))

    @property
    def delete_horizon_ms(self) -> Int64Column:
        """When tombstones and markers of the batch may go, -1 where it has not been decided. Source: deleteHorizonMs."""
        flagged = (self.attributes & np.int16(BatchFlag.DELETE_HORIZON)) != 0
        return np.where(flagged & (self.magic == 2), self.base_timestamp_ms, np.int64(-1))


def allocate(rows: int) -> Blocks:
    """Blocks for so many rows, as `kernels.walk_batches` fills them."""
    return (
        np.empty((8, rows), dtype=np.int64),
        np.empty((6, rows), dtype=np.int32),
        np.empty((2, rows), dtype=np.int16),
        np.empty((2, rows), dtype=np.int8),
    )


def columns_of(blocks: Blocks, rows: int) -> BatchColumns:
    """The first `rows` rows; copied if they are few, so that small chunks do not keep large blocks alive."""
    if 2 * rows < blocks[0].shape[1]:
        wide, words, halves, bytes_ = (np.ascontiguousarray(block[:, :rows]) for block in blocks)
    else:
        wide, words, halves, bytes_ = (block[:, :rows] for block in blocks)
    return BatchColumns(
        position=wide[POSITION],
        size_bytes=words[SIZE],
        base_offset=wide[BASE_OFFSET],
        last_offset=wide[LAST_OFFSET],
        magic=bytes_[MAGIC],
        attributes=halves[ATTRIBUTES],
        leader_epoch=words[LEADER_EPOCH],
        crc=wide[CRC],
        base_timestamp_ms=wide[BASE_TIMESTAMP],
        max_timestamp_ms=wide[MAX_TIMESTAMP],
        producer_id=wide[PRODUCER_ID],
        producer_epoch=halves[PRODUCER_EPOCH],
        base_sequence=words[BASE_SEQUENCE],
        last_sequence=words[LAST_SEQUENCE],
        record_count=words[RECORD_COUNT],
        marker_type=bytes_[MARKER_TYPE],
        coordinator_epoch=words[COORDINATOR_EPOCH],
        marker_timestamp_ms=wide[MARKER_TIMESTAMP],
    )


class Stop(IntEnum):
    """Why the walk returned. Up to `BATCH_TOO_WIDE` nothing is wrong; `detail` is what each says."""

    COLUMNS_FULL = 0
    MORE_BYTES = 1  # detail: bytes needed from the position on
    BATCH_TOO_WIDE = 2  # detail: size of a batch that is too large for memory
    SIZE = 3  # detail: the smallest size this magic may have
    MAGIC = 4  # detail: the magic found
    BASE_OFFSET = 5  # detail: the offset found, below the smallest possible
    LAST_OFFSET = 6  # detail: the offset found, above the largest possible
    LAST_OFFSET_DELTA = 7  # detail: the delta found
    RECORD_COUNT = 8  # detail: the count found
    CODEC = 9  # detail: the codec found
    CRC = 10  # detail: the checksum computed
