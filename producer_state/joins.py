"""Merging and applying digests: joins of rows ascending by producer id, compiled by numba."""

from __future__ import annotations

from typing import Any

from producer_state.compiling import native
from producer_state.digest import HAS_MARKER, HAS_OPERATIONS, UNIFORM_EPOCH


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
    """Make a row that of a producer of whom nothing is known."""
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
