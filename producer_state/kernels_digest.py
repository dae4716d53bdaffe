"""The loop of `producer_state.digest`, compiled by numba. Its rules in plain Python: `tests/producer_state/plain_rules.py`.

Imported only inside functions: loading numba takes longer than most commands.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from producer_state.compiling import native
from producer_state.digest import (
    HAS_MARKER,
    HAS_OPERATIONS,
    OFFSET_GAP,
    SEEN_DELETE_HORIZON,
    SHORT_BATCH,
    UNIFORM_EPOCH,
)
from producer_state.facts import (
    CONTROL,
    DELETE_HORIZON,
    INVALID_TXN_STATE,
    MALFORMED,
    MARKER_ABORT,
    MARKER_COMMIT,
    NO_PROBLEM,
    NOT_ASCENDING,
    TRANSACTIONAL,
)
from producer_state.kernels_slots import find


@native
def _enter_digest(slots: Any, slot: int, rows: Any, used: int, producer_id: int) -> None:
    slots[slot] = used
    row = rows[used]
    row["producer_id"] = producer_id
    row["last_offset"] = -1
    row["last_timestamp_ms"] = -1
    row["txn_first_offset"] = -1
    row["first_plain_offset"] = -1
    row["last_sequence"] = -1
    row["offset_delta"] = 0
    row["coordinator_epoch"] = -1
    row["first_epoch"] = -1
    row["last_epoch"] = -1
    row["flags"] = 0


@native
def _enter_epoch(row: Any, epoch: int) -> None:
    if row["flags"] & HAS_OPERATIONS == 0:
        row["flags"] |= HAS_OPERATIONS | UNIFORM_EPOCH
        row["first_epoch"] = epoch
        row["last_epoch"] = epoch
    elif row["last_epoch"] != epoch:
        row["flags"] &= ~UNIFORM_EPOCH
        row["last_epoch"] = epoch
        row["last_offset"] = -1
        row["last_sequence"] = -1
        row["offset_delta"] = 0


@native
def digest(
    start: int,
    base_offset: Any,
    last_offset: Any,
    producer_id: Any,
    producer_epoch: Any,
    last_sequence: Any,
    max_timestamp_ms: Any,
    attributes: Any,
    record_count: Any,
    marker_type: Any,
    coordinator_epoch: Any,
    marker_timestamp_ms: Any,
    slots: Any,
    rows: Any,
    used: int,
    coverage: Any,
) -> Any:
    """Take batches from row `start` on, until the end, a problem, or `rows` is full: (next row, rows used, problem).

    `coverage[0].end_offset` is the next offset expected.
    """
    covered = coverage[0]
    expected = covered["end_offset"]
    newest, newest_of_producers = covered["max_timestamp_ms"], covered["max_producer_timestamp_ms"]
    cleaned = np.int64(covered["cleaned"])
    problem = NO_PROBLEM
    current = np.int64(-1)
    at = np.int64(start)
    while at < len(base_offset) and used < len(rows):
        base, last, count = base_offset[at], last_offset[at], record_count[at]
        if base < expected or last < base:
            problem = NOT_ASCENDING
            break
        pid = producer_id[at]
        timestamp = max_timestamp_ms[at]
        flags = attributes[at]
        if pid >= 0:
            if current < 0 or rows[current]["producer_id"] != pid:
                slot, current = find(slots, rows, pid)
                if current < 0:
                    _enter_digest(slots, slot, rows, used, pid)
                    current = np.int64(used)
                    used += 1
            row = rows[current]
            if flags & CONTROL:
                if count != 0:
                    if marker_type[at] != MARKER_ABORT and marker_type[at] != MARKER_COMMIT:
                        problem = MALFORMED
                        break
                    _enter_epoch(row, producer_epoch[at])
                    row["flags"] |= HAS_MARKER
                    row["coordinator_epoch"] = coordinator_epoch[at]
                    row["txn_first_offset"] = -1
                    row["last_timestamp_ms"] = marker_timestamp_ms[at]
                    newest_of_producers = max(newest_of_producers, marker_timestamp_ms[at])
            else:
                if flags & TRANSACTIONAL:
                    if row["txn_first_offset"] < 0:
                        row["txn_first_offset"] = base
                elif row["txn_first_offset"] >= 0:
                    problem = INVALID_TXN_STATE
                    break
                elif row["flags"] & HAS_MARKER == 0 and row["first_plain_offset"] < 0:
                    row["first_plain_offset"] = base
                _enter_epoch(row, producer_epoch[at])
                row["last_sequence"] = last_sequence[at]
                row["last_offset"] = last
                row["offset_delta"] = last - base
                row["last_timestamp_ms"] = timestamp
            newest_of_producers = max(newest_of_producers, timestamp)
        # Of a compressed legacy message neither the count nor the first offset is known.
        if count >= 0:
            if base != expected:
                cleaned |= OFFSET_GAP
            if count <= last - base:
                cleaned |= SHORT_BATCH
            if flags & DELETE_HORIZON:
                cleaned |= SEEN_DELETE_HORIZON
        newest = max(newest, timestamp)
        expected = last + 1
        at += 1
    if at > start:
        if covered["batch_count"] == 0:
            covered["first_offset"] = base_offset[start]
        covered["last_offset"] = expected - 1
    covered["batch_count"] += at - start
    covered["end_offset"] = expected
    covered["max_timestamp_ms"] = newest
    covered["max_producer_timestamp_ms"] = newest_of_producers
    covered["cleaned"] = cleaned
    return at, used, problem
