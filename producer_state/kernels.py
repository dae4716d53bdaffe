"""The loops of `digest` and `replay`, compiled by numba. Their rules in plain Python: `tests/producer_state/plain_rules.py`.

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

_FIBONACCI = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@native
def find(slots: Any, rows: Any, producer_id: Any) -> Any:
    """(slot, row) of a producer; row -1: unknown, and the slot is free. `slots` is a power of two long, never full."""
    # Producer ids are handed out in blocks of consecutive numbers; the product spreads them over the upper bits.
    mask = np.int64(len(slots) - 1)
    slot = np.int64((np.uint64(producer_id) * _FIBONACCI) >> _HALF) & mask
    while True:
        row = np.int64(slots[slot])
        if row < 0 or rows[row]["producer_id"] == producer_id:
            return slot, row
        slot = (slot + 1) & mask


@native
def index_rows(slots: Any, rows: Any, used: int) -> None:
    for row in range(used):
        slot, _ = find(slots, rows, rows[row]["producer_id"])
        slots[slot] = row


@native
def merge(first: Any, second: Any, out: Any) -> tuple[int, int]:
    """Merge rows ascending by producer id: (rows written, row of `second` with a plain batch in an open transaction or -1)."""
    a = b = count = 0
    while a < len(first) or b < len(second):
        if b == len(second) or (a < len(first) and first[a]["producer_id"] < second[b]["producer_id"]):
            out[count] = first[a]
            a += 1
        elif a == len(first) or second[b]["producer_id"] < first[a]["producer_id"]:
            out[count] = second[b]
            b += 1
        else:
            if first[a]["txn_first_offset"] >= 0 and second[b]["first_plain_offset"] >= 0:
                return count, b
            out[count] = first[a]
            _follow(out[count], second[b])
            a += 1
            b += 1
        count += 1
    return count, -1


@native
def _follow(row: Any, later: Any) -> None:
    """Let the operations of `later` happen after those of `row`."""
    if later["flags"] & HAS_OPERATIONS == 0:
        return
    if row["flags"] & HAS_OPERATIONS == 0:
        row["first_epoch"] = later["first_epoch"]
        row["flags"] |= HAS_OPERATIONS | UNIFORM_EPOCH
    elif row["last_epoch"] != later["first_epoch"]:
        row["flags"] &= ~UNIFORM_EPOCH
    if later["flags"] & UNIFORM_EPOCH == 0:
        row["flags"] &= ~UNIFORM_EPOCH
    _take_batch(row, later, row["last_epoch"])
    row["last_epoch"] = later["last_epoch"]
    row["last_timestamp_ms"] = later["last_timestamp_ms"]
    if row["flags"] & HAS_MARKER == 0 and row["first_plain_offset"] < 0:
        row["first_plain_offset"] = later["first_plain_offset"]
    if later["flags"] & HAS_MARKER:
        row["flags"] |= HAS_MARKER
        row["coordinator_epoch"] = later["coordinator_epoch"]
        row["txn_first_offset"] = later["txn_first_offset"]
    elif row["txn_first_offset"] < 0:
        row["txn_first_offset"] = later["txn_first_offset"]


@native
def _take_batch(row: Any, later: Any, epoch_before: int) -> None:
    """The last batch: that of `later`; else the one before, if nothing but markers of the same epoch followed it."""
    same_epoch = later["flags"] & UNIFORM_EPOCH and epoch_before == later["first_epoch"]
    if later["last_offset"] >= 0 or not same_epoch:
        row["last_sequence"] = later["last_sequence"]
        row["last_offset"] = later["last_offset"]
        row["offset_delta"] = later["offset_delta"]


@native
def apply(entries: Any, digests: Any, out: Any) -> tuple[int, int]:
    """Apply digest rows to entry rows, both ascending: (rows written, digest row that offends as in `merge` or -1)."""
    a = b = count = 0
    while a < len(entries) or b < len(digests):
        if b == len(digests) or (a < len(entries) and entries[a]["producer_id"] < digests[b]["producer_id"]):
            out[count] = entries[a]
            a += 1
        else:
            if a == len(entries) or digests[b]["producer_id"] < entries[a]["producer_id"]:
                enter_entry(out[count], digests[b]["producer_id"])
            else:
                out[count] = entries[a]
                a += 1
            if out[count]["current_txn_first_offset"] >= 0 and digests[b]["first_plain_offset"] >= 0:
                return count, b
            _happen(out[count], digests[b])
            b += 1
        count += 1
    return count, -1


@native
def enter_entry(row: Any, producer_id: int) -> None:
    row["producer_id"] = producer_id
    row["producer_epoch"] = -1
    row["last_sequence"] = -1
    row["last_offset"] = -1
    row["offset_delta"] = 0
    row["last_timestamp_ms"] = -1
    row["coordinator_epoch"] = -1
    row["current_txn_first_offset"] = -1


@native
def _happen(entry: Any, digested: Any) -> None:
    if digested["flags"] & HAS_OPERATIONS == 0:
        return
    _take_batch(entry, digested, entry["producer_epoch"])
    entry["producer_epoch"] = digested["last_epoch"]
    entry["last_timestamp_ms"] = digested["last_timestamp_ms"]
    if digested["flags"] & HAS_MARKER:
        entry["coordinator_epoch"] = digested["coordinator_epoch"]
        entry["current_txn_first_offset"] = digested["txn_first_offset"]
    elif entry["current_txn_first_offset"] < 0:
        entry["current_txn_first_offset"] = digested["txn_first_offset"]


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
    newest = covered["max_timestamp_ms"]
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
    covered["batch_count"] += at - start
    covered["end_offset"] = expected
    covered["max_timestamp_ms"] = newest
    covered["cleaned"] = cleaned
    return at, used, problem


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
