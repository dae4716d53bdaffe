"""Leader epoch 0 in every batch: the field lies outside of a batch's checksum, which stays right."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sidecar.logformat.batches import BatchColumns
from sidecar.logformat.headers import CURRENT_MAGIC
from sidecar.ports import MIB
from sidecar.restore.segments.in_place import bytes_at, put_at

FLAT_EPOCH = 0
EPOCH_POSITION = 12
"""Of the field in a batch of magic 2. Source: DefaultRecordBatch.PARTITION_LEADER_EPOCH_OFFSET."""
_EPOCH_BYTES = 4
_WINDOW_BYTES = 4 * MIB


def flatten_epochs(descriptor: int, path: Path, columns: BatchColumns) -> None:
    """Write epoch 0 into these batches of an open file. Raises as `bytes_at` does.

    Batches lie close together as a rule, so whole windows are read and written back.
    """
    rows = np.flatnonzero((columns.magic >= CURRENT_MAGIC) & (columns.leader_epoch != FLAT_EPOCH))
    fields = columns.position[rows] + EPOCH_POSITION
    begin = 0
    while begin < len(fields):
        first = int(fields[begin])
        end = int(np.searchsorted(fields, first + _WINDOW_BYTES - _EPOCH_BYTES, side="right"))
        data = bytes_at(descriptor, path, first, int(fields[end - 1]) + _EPOCH_BYTES - first)
        window = np.frombuffer(data, dtype=np.uint8)
        window[(fields[begin:end, None] - first + np.arange(_EPOCH_BYTES)).reshape(-1)] = FLAT_EPOCH
        put_at(descriptor, path, first, window.data)
        begin = end
