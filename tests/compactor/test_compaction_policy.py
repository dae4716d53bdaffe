"""When a partition is due, how far it may be compacted, and who comes first. Times are in ms, sizes in bytes of `.log`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.compactor.policy import (
    Assessment,
    assess,
    needs_first_batches,
)
from sidecar.config import CompactionPolicy
from tests.compactor.policy_rows import NOW_MS, TABLE, Row
from tests.runner.archived import segment


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_the_rules(row: Row) -> None:
    policy = CompactionPolicy(**row.policy)
    found = assess(
        row.segments,
        row.clean_end,
        policy,
        now_ms=NOW_MS,
        first_batch_timestamps_ms=row.first_batches,
        stable_end_offset=row.stable_end,
    )
    assert found == Assessment(
        first_dirty_offset=row.clean_end if row.first_dirty is None else row.first_dirty,
        first_uncleanable_offset=row.uncleanable,
        clean_bytes=row.clean,
        cleanable_bytes=row.cleanable,
        trigger=row.trigger,
        recheck_at_ms=row.recheck_at_ms,
    )


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 99), st.integers(-1, 2000)), max_size=6),
    st.integers(-1, 40),
    st.floats(0, 1),
    st.integers(0, 2000),
    st.integers(1, 2000),
)
def test_what_is_due_can_be_compacted_and_time_alone_changes_nothing_before_it_was_said_to(
    sizes: list[tuple[int, int, int]], clean_end: int, ratio: float, min_lag_ms: int, max_lag_ms: int
) -> None:
    segments, base, first_batches = [], 0, {}
    for length, size_bytes, timestamp_ms in sizes:
        segments.append(segment(base, base + length, size_bytes=size_bytes, max_timestamp_ms=timestamp_ms))
        first_batches[base] = timestamp_ms // 2
        base += length
    policy = CompactionPolicy(
        min_cleanable_dirty_ratio=ratio, min_compaction_lag_ms=min_lag_ms, max_compaction_lag_ms=max_lag_ms
    )

    def at(now_ms: int) -> Assessment:
        return assess(segments, clean_end, policy, now_ms=now_ms, first_batch_timestamps_ms=first_batches)

    found = at(2000)
    boundaries = {0, base, *(s.base_offset for s in segments)}
    if found.trigger is not None:
        assert found.cleanable_bytes > 0
        assert found.first_dirty_offset < found.first_uncleanable_offset <= base
        assert found.first_uncleanable_offset in boundaries
    until_ms = 6000 if found.recheck_at_ms is None else found.recheck_at_ms
    assert until_ms > 2000
    assert at(until_ms - 1).trigger == found.trigger
    assert at(until_ms - 1).first_uncleanable_offset == found.first_uncleanable_offset


def test_first_batches_are_asked_for_only_where_there_is_a_max_lag() -> None:
    assert not needs_first_batches(CompactionPolicy())
    assert needs_first_batches(CompactionPolicy(max_compaction_lag_ms=1))
