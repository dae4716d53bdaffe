"""The scenarios of upstream's LogCleanerManagerTest, by its names, as far as they say what may be compacted and when.

A broker's log has an active segment, an archive has none: there, what is not stable yet stands for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from sidecar.compactor.policy import Assessment, Trigger, assess
from sidecar.config import CompactionPolicy
from sidecar.model import ArchivedSegment
from tests.runner.archived import segment

NEVER = 2**63 - 1


def one_record_segments(count: int) -> list[ArchivedSegment]:
    """Of 70 bytes each, written at 1000, 1001, ..."""
    return [segment(base, base + 1, size_bytes=70, max_timestamp_ms=1000 + base) for base in range(count)]


@dataclass(frozen=True)
class Limits:
    """`[first_dirty, first_uncleanable)` is what may be compacted."""

    first_dirty: int
    first_uncleanable: int


def weighed(
    segments: list[ArchivedSegment],
    clean_end: int = -1,
    *,
    now_ms: int = 10_000,
    stable_end: int = NEVER,
    **policy: Any,
) -> Assessment:
    """As `run` weighs an archive. `clean_end` -1: nothing was ever compacted."""
    first_batches = {found.base_offset: found.max_timestamp_ms for found in segments}
    return assess(
        segments,
        clean_end,
        CompactionPolicy(**policy),
        now_ms=now_ms,
        first_batch_timestamps_ms=first_batches,
        stable_end_offset=stable_end,
    )


def limits(segments: list[ArchivedSegment], clean_end: int = -1, **more: Any) -> Limits:
    found = weighed(segments, clean_end, **more)
    return Limits(found.first_dirty_offset, found.first_uncleanable_offset)


def test_log_to_clean() -> None:
    found = weighed(one_record_segments(6), 6)
    assert (found.clean_bytes, found.cleanable_bytes, found.trigger) == (420, 0, None)


def test_log_to_clean_with_uncleanable_section() -> None:
    found = weighed(one_record_segments(6), 2, stable_end=4, min_cleanable_dirty_ratio=0.5)
    assert (found.clean_bytes, found.cleanable_bytes, found.dirty_ratio) == (140, 140, 0.5)
    assert found.trigger is None  # the comparison is strict


def test_dirty_offset_reset_if_larger_than_end_offset() -> None:
    assert limits(one_record_segments(5), 200) == Limits(0, 5)


def test_dirty_offset_reset_if_smaller_than_start_offset() -> None:
    assert limits([segment(10, 15)], 0) == Limits(10, 15)


@pytest.mark.parametrize("clean_end", [18, 14])
def test_checkpoint_updated_for_invalid_offset(clean_end: int) -> None:
    start = {18: 20, 14: 15}[clean_end]
    assert limits([segment(start, start + 5)], clean_end) == Limits(start, start + 5)


def test_cleanable_offsets_for_none_and_active_segment() -> None:
    assert limits([segment(0, 100)], stable_end=50).first_uncleanable == 0  # rounded down to a base
    assert limits([segment(0, 50), segment(50, 100)], stable_end=50).first_uncleanable == 50
    assert limits(one_record_segments(9)) == Limits(0, 9)


@pytest.mark.parametrize(("now_ms", "end"), [(1_000_000 + 60_001, 4), (2_000_000 + 60_001, 8)])
def test_cleanable_offsets_for_time(now_ms: int, end: int) -> None:
    times = [1_000_000] * 4 + [2_000_000] * 4
    segments = [segment(base, base + 1, max_timestamp_ms=time) for base, time in enumerate(times)]
    assert limits(segments, now_ms=now_ms, min_compaction_lag_ms=60_000) == Limits(0, end)


def test_max_compaction_lag() -> None:
    rules: dict[str, Any] = {"max_compaction_lag_ms": 60_001, "min_cleanable_dirty_ratio": 0.99}
    assert weighed(one_record_segments(6), 2, now_ms=1000 + 60_002, **rules).trigger is None
    assert weighed(one_record_segments(6), 2, now_ms=1002 + 60_002, **rules).trigger is Trigger.MAX_LAG


@pytest.mark.parametrize(("last_stable", "end"), [(0, 0), (3, 3), (4, 4)])
def test_undecided_transactional_data_not_cleanable(last_stable: int, end: int) -> None:
    assert limits(one_record_segments(4), stable_end=last_stable) == Limits(0, end)
