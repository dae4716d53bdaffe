"""The compiled loop over batch facts. Every constant is cast: mixing widths would silently give floating point."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

EPOCH, SEQUENCE, LAST_OFFSET, DELTA, TIMESTAMP, COORDINATOR, TXN = range(7)
FIELDS = 7
BLANK = (-1, -1, -1, 0, -1, -1, -1)
EMPTY = np.int64(-1)

DONE, TABLE_FULL, OUTPUT_FULL, INVALID_TXN, MALFORMED_MARKER = range(5)
COMPLETED_FIELDS = 5


@numba.njit(cache=True, nogil=True, inline="always")  # type: ignore[misc, untyped-decorator]
def _slot_of(ids: Any, producer_id: Any) -> Any:
    mask = np.uint64(ids.shape[0] - 1)
    # Fibonacci hashing: producer ids are small and consecutive, blocks of 1000 per broker.
    slot = ((np.uint64(producer_id) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
    while ids[np.int64(slot)] != EMPTY and ids[np.int64(slot)] != producer_id:
        slot = (slot + np.uint64(1)) & mask
    return np.int64(slot)


@numba.njit(cache=True, nogil=True)  # type: ignore[misc, untyped-decorator]
def insert(ids: Any, rows: Any, producer_id: Any, values: Any) -> Any:
    """Put one producer into a table that has room."""
    slot = _slot_of(ids, producer_id)
    ids[slot] = producer_id
    for field in range(FIELDS):
        rows[slot, field] = values[field]


@numba.njit(cache=True, nogil=True)  # type: ignore[misc, untyped-decorator]
def _lowest_open(ids: Any, rows: Any, except_id: Any, otherwise: Any) -> Any:
    lowest = np.int64(-1)
    for slot in range(ids.shape[0]):
        first = rows[slot, TXN]
        if ids[slot] != EMPTY and ids[slot] != except_id and first >= 0 and (lowest < 0 or first < lowest):
            lowest = first
    return lowest if lowest >= 0 else otherwise


@numba.njit(cache=True, nogil=True)  # type: ignore[misc, untyped-decorator]
def replay(
    ids: Any,
    rows: Any,
    used: Any,
    start: Any,
    base_offset: Any,
    last_offset: Any,
    producer_id: Any,
    producer_epoch: Any,
    last_sequence: Any,
    max_timestamp: Any,
    attributes: Any,
    record_count: Any,
    marker_type: Any,
    coordinator_epoch: Any,
    marker_timestamp: Any,
    completed: Any,
) -> Any:
    """Apply batches from `start` on; returns (next row, used slots, completed rows, why it stopped)."""
    ended = 0
    slot = np.int64(-1)
    for at in range(start, base_offset.shape[0]):
        pid = producer_id[at]
        if pid < 0:
            continue
        if slot < 0 or ids[slot] != pid:
            slot = _slot_of(ids, pid)
            if ids[slot] == EMPTY:
                if used * 2 >= ids.shape[0]:
                    return at, used, ended, TABLE_FULL
                ids[slot] = pid
                for field in range(FIELDS):
                    rows[slot, field] = np.int64(-1)
                rows[slot, DELTA] = np.int64(0)
                used += 1
        control = attributes[at] & 0x20
        if control and record_count[at] == 0:
            continue
        if control and marker_type[at] != 0 and marker_type[at] != 1:
            return at, used, ended, MALFORMED_MARKER
        if not control and not attributes[at] & 0x10 and rows[slot, TXN] >= 0:
            return at, used, ended, INVALID_TXN
        if control and rows[slot, TXN] >= 0 and ended == completed.shape[0]:
            return at, used, ended, OUTPUT_FULL
        if rows[slot, EPOCH] != producer_epoch[at]:
            rows[slot, EPOCH] = producer_epoch[at]
            rows[slot, SEQUENCE] = np.int64(-1)
            rows[slot, LAST_OFFSET] = np.int64(-1)
            rows[slot, DELTA] = np.int64(0)
        if control:
            if rows[slot, TXN] >= 0:
                aborted = marker_type[at] == 0
                completed[ended, 0] = pid
                completed[ended, 1] = rows[slot, TXN]
                completed[ended, 2] = base_offset[at]
                completed[ended, 3] = _lowest_open(ids, rows, pid, base_offset[at] + 1) if aborted else np.int64(-1)
                completed[ended, 4] = np.int64(1) if aborted else np.int64(0)
                ended += 1
            rows[slot, COORDINATOR] = coordinator_epoch[at]
            rows[slot, TXN] = np.int64(-1)
            rows[slot, TIMESTAMP] = marker_timestamp[at]
        else:
            rows[slot, SEQUENCE] = last_sequence[at]
            rows[slot, LAST_OFFSET] = last_offset[at]
            rows[slot, DELTA] = last_offset[at] - base_offset[at]
            rows[slot, TIMESTAMP] = max_timestamp[at]
            if attributes[at] & 0x10 and rows[slot, TXN] < 0:
                rows[slot, TXN] = base_offset[at]
    return base_offset.shape[0], used, ended, DONE
