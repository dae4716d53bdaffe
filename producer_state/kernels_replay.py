"""The loop of `producer_state.replay`, compiled by numba. Its rules in plain Python: `tests/producer_state/plain_rules.py`.

Imported only inside functions: loading numba takes longer than most commands.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from producer_state.compiling import native
from producer_state.facts import (
    CONTROL,
    INVALID_TXN_STATE,
    MALFORMED,
    MARKER_ABORT,
    MARKER_COMMIT,
    NO_PROBLEM,
    TRANSACTIONAL,
)
from producer_state.joins import enter_entry
from producer_state.kernels_slots import find


@native
def replay(
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
    entries: Any,
    used: int,
    links: Any,
    completed: Any,
) -> Any:
    """Apply all batches to `entries`, which has a free row per batch of a producer: (next row, rows used, completed, problem).

    `links` is the list of open transactions, ascending by first offset, as rows of (before, after) with a sentinel in
    the last row: the earliest one of another producer is then found at once.
    """
    done = np.int64(0)
    current = np.int64(-1)
    for at in range(len(base_offset)):
        pid = producer_id[at]
        if pid < 0:
            continue
        if current < 0 or entries[current]["producer_id"] != pid:
            slot, current = find(slots, entries, pid)
            if current < 0:
                slots[slot] = used
                current = np.int64(used)
                enter_entry(entries[current], pid)
                used += 1
        entry = entries[current]
        if attributes[at] & CONTROL:
            if record_count[at] == 0:
                continue
            if marker_type[at] != MARKER_ABORT and marker_type[at] != MARKER_COMMIT:
                return at, used, done, MALFORMED
            _set_epoch(entry, producer_epoch[at])
            if entry["current_txn_first_offset"] >= 0:
                _unlink(links, current)
                ended = completed[done]
                done += 1
                ended["producer_id"] = pid
                ended["first_offset"] = entry["current_txn_first_offset"]
                ended["last_offset"] = base_offset[at]
                earliest = links[-1, 1]
                still_open = earliest != len(links) - 1
                stable = entries[earliest]["current_txn_first_offset"] if still_open else base_offset[at] + 1
                ended["last_stable_offset"] = stable
                ended["aborted"] = marker_type[at] == MARKER_ABORT
                entry["current_txn_first_offset"] = -1
            entry["coordinator_epoch"] = coordinator_epoch[at]
            entry["last_timestamp_ms"] = marker_timestamp_ms[at]
        else:
            if attributes[at] & TRANSACTIONAL:
                if entry["current_txn_first_offset"] < 0:
                    entry["current_txn_first_offset"] = base_offset[at]
                    _link(links, entries, current)
            elif entry["current_txn_first_offset"] >= 0:
                return at, used, done, INVALID_TXN_STATE
            _set_epoch(entry, producer_epoch[at])
            entry["last_sequence"] = last_sequence[at]
            entry["last_offset"] = last_offset[at]
            entry["offset_delta"] = last_offset[at] - base_offset[at]
            entry["last_timestamp_ms"] = max_timestamp_ms[at]
    return len(base_offset), used, done, NO_PROBLEM


@native
def link_open(links: Any, entries: Any, used: int) -> None:
    """Start the list of open transactions with those that are open already."""
    links[-1, 0] = links[-1, 1] = len(links) - 1
    for row in range(used):
        if entries[row]["current_txn_first_offset"] >= 0:
            _link(links, entries, row)


@native
def _link(links: Any, entries: Any, row: Any) -> None:
    # Transactions begin at ascending offsets: but for those of a snapshot, the place is the end.
    sentinel = len(links) - 1
    before = links[sentinel, 0]
    first_offset = entries[row]["current_txn_first_offset"]
    while before != sentinel and entries[before]["current_txn_first_offset"] > first_offset:
        before = links[before, 0]
    after = links[before, 1]
    links[row, 0], links[row, 1] = before, after
    links[before, 1] = row
    links[after, 0] = row


@native
def _unlink(links: Any, row: Any) -> None:
    before, after = links[row, 0], links[row, 1]
    links[before, 1] = after
    links[after, 0] = before


@native
def _set_epoch(entry: Any, epoch: int) -> None:
    if entry["producer_epoch"] != epoch:
        entry["producer_epoch"] = epoch
        entry["last_sequence"] = -1
        entry["last_offset"] = -1
        entry["offset_delta"] = 0
