"""What is due for compaction, row by row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sidecar.compactor.policy import (
    Trigger,
)
from sidecar.model import ArchivedSegment
from tests.runner.archived import segment

NOW_MS = 1_000_000


TEN = (
    segment(0, 10, max_timestamp_ms=100),
    segment(10, 20, max_timestamp_ms=200),
    segment(20, 30, max_timestamp_ms=300),
)
"""Three segments of 100 bytes."""


@dataclass
class Row:
    """One row of the table: what goes in, and what is expected of it."""

    name: str
    clean_end: int
    policy: dict[str, Any]
    cleanable: int
    clean: int
    trigger: Trigger | None
    uncleanable: int = 30
    recheck_at_ms: int | None = None
    segments: tuple[ArchivedSegment, ...] = TEN
    first_batches: dict[int, int] = field(default_factory=dict)
    first_dirty: int | None = None
    stable_end: int = 2**63 - 1


TABLE = [
    Row("nothing was ever compacted", -1, {}, 300, 0, Trigger.DIRTY_RATIO, first_dirty=0),
    Row("all is clean", 30, {}, 0, 300, None),
    Row("a third is dirty", 20, {}, 100, 200, None),
    Row("two thirds are dirty", 10, {}, 200, 100, Trigger.DIRTY_RATIO),
    Row("the ratio must be exceeded, not reached", 10, {"min_cleanable_dirty_ratio": 200 / 300}, 200, 100, None),
    Row("ratio 0 takes whatever is dirty", 20, {"min_cleanable_dirty_ratio": 0}, 100, 200, Trigger.DIRTY_RATIO),
    Row("ratio 0 does not take what is clean", 30, {"min_cleanable_dirty_ratio": 0}, 0, 300, None),
    Row(
        "a first batch at time 0 has no timestamp",
        20,
        {"max_compaction_lag_ms": 1, "min_cleanable_dirty_ratio": 1},
        100,
        200,
        None,
        first_batches={20: 0},
    ),
    Row(
        "a segment whose newest record is of time 0 is that old, whatever its file says",
        -1,
        {"min_compaction_lag_ms": 1000},
        100,
        0,
        Trigger.DIRTY_RATIO,
        uncleanable=10,
        segments=(segment(0, 10, max_timestamp_ms=0, mtime_ms=NOW_MS),),
        first_dirty=0,
    ),
    Row("ratio 1 is never exceeded", -1, {"min_cleanable_dirty_ratio": 1}, 300, 0, None, first_dirty=0),
    Row("a clean end above the archive's end is no clean end", 31, {}, 300, 0, Trigger.DIRTY_RATIO, first_dirty=0),
    Row("a segment with the first dirty offset counts on both sides", 15, {}, 200, 200, None),
    Row(
        "min lag holds back the first young segment and all above it",
        -1,
        {"min_compaction_lag_ms": NOW_MS - 150},
        100,
        0,
        Trigger.DIRTY_RATIO,
        uncleanable=10,
        recheck_at_ms=200 + NOW_MS - 150,
        first_dirty=0,
    ),
    Row(
        "as old as the lag is old enough",
        -1,
        {"min_compaction_lag_ms": NOW_MS - 200},
        200,
        0,
        Trigger.DIRTY_RATIO,
        uncleanable=20,
        recheck_at_ms=300 + NOW_MS - 200,
        first_dirty=0,
    ),
    Row(
        "an old segment behind a young one waits with it",
        -1,
        {"min_compaction_lag_ms": 1000},
        100,
        0,
        Trigger.DIRTY_RATIO,
        uncleanable=10,
        recheck_at_ms=NOW_MS + 1000,
        segments=(TEN[0], segment(10, 20, max_timestamp_ms=NOW_MS), TEN[2]),
        first_dirty=0,
    ),
    Row(
        "clean segments may be young",
        10,
        {"min_compaction_lag_ms": 1000},
        200,
        100,
        Trigger.DIRTY_RATIO,
        segments=(segment(0, 10, max_timestamp_ms=NOW_MS), TEN[1], TEN[2]),
    ),
    Row(
        "all that is dirty is too young",
        20,
        {"min_compaction_lag_ms": NOW_MS, "min_cleanable_dirty_ratio": 0},
        0,
        200,
        None,
        uncleanable=20,
        recheck_at_ms=NOW_MS + 300,
    ),
    Row(
        "a young segment with the first dirty offset is not cleaned in part",
        25,
        {"min_compaction_lag_ms": NOW_MS, "min_cleanable_dirty_ratio": 0},
        0,
        300,
        None,
        uncleanable=20,
        recheck_at_ms=NOW_MS + 300,
    ),
    Row(
        "without timestamps the file's own counts",
        -1,
        {"min_compaction_lag_ms": 1000},
        0,
        0,
        None,
        uncleanable=0,
        recheck_at_ms=NOW_MS + 999,
        segments=(segment(0, 10, max_timestamp_ms=-1, mtime_ms=NOW_MS - 1),),
        first_dirty=0,
    ),
    Row(
        "max lag exceeded",
        20,
        {"max_compaction_lag_ms": 1000},
        100,
        200,
        Trigger.MAX_LAG,
        first_batches={20: NOW_MS - 1001},
    ),
    Row(
        "max lag must be exceeded, not reached",
        20,
        {"max_compaction_lag_ms": 1000},
        100,
        200,
        None,
        first_batches={20: NOW_MS - 1000},
        recheck_at_ms=NOW_MS + 1,
    ),
    Row(
        "max lag looks at dirty segments only",
        20,
        {"max_compaction_lag_ms": 1000},
        100,
        200,
        None,
        first_batches={0: 1, 10: 1, 20: NOW_MS},
        recheck_at_ms=NOW_MS + 1001,
    ),
    Row(
        "the oldest first batch counts, wherever it is",
        -1,
        {"max_compaction_lag_ms": 1000, "min_cleanable_dirty_ratio": 1},
        300,
        0,
        Trigger.MAX_LAG,
        first_batches={0: NOW_MS, 10: NOW_MS - 2000, 20: NOW_MS},
        first_dirty=0,
    ),
    Row(
        "timestamps that are none do not count",
        20,
        {"max_compaction_lag_ms": 1000},
        100,
        200,
        None,
        first_batches={20: -1},
    ),
    Row(
        "max lag does not take what min lag holds back",
        20,
        {"max_compaction_lag_ms": NOW_MS, "min_compaction_lag_ms": NOW_MS},
        0,
        200,
        None,
        uncleanable=20,
        first_batches={20: 1},
        recheck_at_ms=NOW_MS + 1 + 1,
    ),
    Row("a transaction without an end holds back", 10, {}, 100, 100, None, uncleanable=20, stable_end=25),
    Row(
        "one that begins at a segment's base holds back that one",
        -1,
        {},
        200,
        0,
        Trigger.DIRTY_RATIO,
        20,
        first_dirty=0,
        stable_end=20,
    ),
    Row("one behind the end holds nothing back", 10, {}, 200, 100, Trigger.DIRTY_RATIO, stable_end=30),
    Row(
        "nothing behind a transaction without an end",
        20,
        {"min_cleanable_dirty_ratio": 0},
        0,
        200,
        None,
        20,
        stable_end=20,
    ),
    Row(
        "the lower of two bounds counts",
        -1,
        {"min_compaction_lag_ms": NOW_MS - 150},
        100,
        0,
        Trigger.DIRTY_RATIO,
        uncleanable=10,
        recheck_at_ms=200 + NOW_MS - 150,
        first_dirty=0,
        stable_end=25,
    ),
    Row("nothing is archived", -1, {}, 0, 0, None, uncleanable=-1, segments=(), first_dirty=-1),
]
