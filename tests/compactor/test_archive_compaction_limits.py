"""Where compaction of an archive stops: open transactions, ends of ranges, and holes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from producer_state.replay import CompletedTransaction
from sidecar.archive.actions import Lost, Remove
from sidecar.archive.state import PartitionState
from sidecar.commits.commit_log import CommitLog
from sidecar.compaction.rules import CompactionRules
from sidecar.compactor.archive.archived_log import ArchivedSurvey
from sidecar.compactor.archive.plan import CompactionRequest, PartitionCompaction, plan_archive
from sidecar.model import ObjectKey
from sidecar.segment.archived_objects import table_at_end
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import (
    NOW_MS,
    WRITER,
    archived,
    compact_one,
    compactor,
    log_of,
    only_state,
    reference_logs,
    sound,
    use,
)

RULES = CompactionRules(NOW_MS)


def first_open_offsets(store: MemoryStore, state: PartitionState) -> list[int | None]:
    """At the end of each segment: where the earliest transaction begins that is open there."""
    return [
        table_at_end(store, state.lineage.root, segment).first_open_transaction_offset() for segment in state.segments
    ]


def require_as_reference(store: MemoryStore, before: PartitionState, result: PartitionCompaction) -> None:
    """The compacted range is what the reference says of it, given all transactions of the archive before."""
    assert result.error is None
    after = only_state(store)
    groups = [len(output.sources) for output in result.outputs]
    live = after.segments[: len(groups)]
    assert [log_of(store, after, segment) for segment in live] == reference_logs(store, before, RULES, groups)
    assert after.segments[len(groups) :] == before.segments[sum(groups) :]
    sound(store)


def test_a_range_may_end_within_transactions_that_end_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = archived(tmp_path, "transactions-0")
    state = only_state(whole)
    objects, times = dict(whole.objects), dict(whole.modified_ms)
    use(monkeypatch, whole)
    looked_beyond, followed = 0, dict[int, int]()
    ended_later = ArchivedSurvey._ended_later

    def noted(survey: ArchivedSurvey) -> Iterator[CompletedTransaction]:
        found = list(ended_later(survey))
        followed[survey.log.end_offset] = len(found)
        return iter(found)

    monkeypatch.setattr(ArchivedSurvey, "_ended_later", noted)
    for segment, open_offset in list(zip(state.segments, first_open_offsets(whole, state), strict=True))[:-1]:
        if open_offset is None:
            continue
        whole.objects, whole.modified_ms = dict(objects), dict(times)
        request = CompactionRequest(state.lineage.root, RULES, WRITER, segment.end_offset)
        assert plan_archive(whole, request, whole.clock).segments[-1] == segment
        (result,) = compactor(whole, tmp_path).compact([request])
        require_as_reference(whole, state, result)
        assert only_state(whole).clean_end_offset == segment.end_offset
        assert followed[segment.end_offset] > 0
        looked_beyond += 1
    assert looked_beyond > 0


@pytest.mark.parametrize("partition", ["transactions-0", "compacted-0"])
def test_nothing_from_a_transaction_on_that_is_open_at_the_archives_end_is_touched(
    partition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived(tmp_path, partition)
    use(monkeypatch, store)
    before = only_state(store)
    begun_at = first_open_offsets(store, before)[-1]
    assert begun_at is not None
    ends = [segment.end_offset for segment in before.segments]
    result = compact_one(store, before, RULES, tmp_path)
    require_as_reference(store, before, result)
    assert only_state(store).clean_end_offset == max(end for end in ends if end <= begun_at)
    assert result.left_alone == sum(end > begun_at for end in ends) > 0
    assert result.bytes_after < result.bytes_before


def lose(store: MemoryStore, number: int) -> PartitionState:
    """A live segment in the middle is recorded as lost."""
    state = only_state(store)
    gone = state.segments[number]
    log = CommitLog(store, ObjectKey(state.lineage.root), store.clock)
    remove = Remove(gone.segment_id, gone.base_offset, gone.end_offset, "a test")
    return log.append([remove, Lost(gone.base_offset, gone.end_offset, "a test")], WRITER, state)


def test_no_segment_is_joined_over_a_hole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    number = 3
    hole = only_state(store).segments[number]
    before = lose(store, number)
    result = compact_one(store, before, RULES, tmp_path)
    require_as_reference(store, before, result)
    after = only_state(store)
    assert after.holes == before.holes
    assert hole.base_offset in [segment.end_offset for segment in after.segments]
    assert hole.end_offset in [segment.base_offset for segment in after.segments]
    # Without the hole all would fit one segment.
    assert len(after.segments) == 2
    assert after.clean_end_offset == before.end_offset


@pytest.mark.parametrize("number", [1, 2])
def test_nothing_from_a_transaction_on_whose_end_may_be_lost_is_touched(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived(tmp_path, "transactions-0")
    use(monkeypatch, store)
    begun_at = first_open_offsets(store, only_state(store))[number - 1]
    assert begun_at is not None
    before = lose(store, number)
    # It begins in the first segment; what lies above must not be compacted without what lies below.
    assert begun_at < before.segments[0].end_offset
    objects = dict(store.objects)
    result = compact_one(store, before, RULES, tmp_path)
    assert (result.error, result.commit_number, result.left_alone) == (None, None, len(before.segments))
    assert store.objects == objects
