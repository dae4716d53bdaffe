"""The scenarios of upstream's LogCleanerTest that are about producers, transactions and their markers, by its names."""

from __future__ import annotations

from dataclasses import replace

from sidecar.logformat.bodies.building import build_marker
from tests.compaction.engine import compact
from tests.compaction.reference.cleaning import clean
from tests.compaction.story import NOW_MS, RETENTION_MS, Story


def test_clean_segments_retaining_last_empty_batch() -> None:
    story = Story()
    for _ in range(3):
        story.put(1).put(2).roll()
    story.put(1, 2).roll()
    groups = clean(story.segments, story.rules, groups=[4], first_uncleanable_offset=8).groups
    assert len(groups) == 1
    emptied = clean([*story.segments[:3]], story.rules, groups=[3]).groups[0]
    assert emptied.segment.end_offset == 6
    story.rules = replace(story.rules, kafka_4_3=False)
    _, logs = compact(story.segments, replace(story.rules, segment_bytes=100))
    assert all(log for log in logs)


def test_log_cleaner_retains_producer_last_sequence() -> None:
    story = Story().put(0).put(0, producer=1).put(0, producer=2).put(0, producer=3).put(1, producer=2).roll()
    story.clean()
    assert (story.offsets(), story.last_offsets()) == ([3, 4], [1, 3, 4])
    assert story.last_sequences() == {1: 0, 2: 1, 3: 0}


def test_log_cleaner_retains_last_sequence_even_if_transaction_aborted() -> None:
    story = Story().txn(1, 1).txn(1, 2, 3).abort(1).roll()
    dirty = story.clean().end_offset
    assert (story.offsets(), story.last_offsets(), story.last_sequences()) == ([3], [2, 3], {1: 2})
    story.txn(1, 1).txn(1, 5).roll()
    story.clean(dirty)
    assert (story.offsets(), story.last_offsets(), story.last_sequences()) == ([3, 4, 5], [3, 4, 5], {1: 4})


def test_multi_pass_segment_cleaning_with_aborted_transactions() -> None:
    story = Story()
    story.rules = replace(story.rules, now_ms=1_000_000, delete_retention_ms=50_000)
    story.txn(1, 1, 2).txn(2, 2, 3).txn(1, 3, 4).commit(1).commit(2).txn(1, 2, 3).abort(1)
    story.txn(2, 4, 5).txn(1, 5, 6).commit(1).abort(2).txn(2, 6, 7).commit(2).roll()
    assert story.clean(slots=4).end_offset == 4
    bases = [0, 2, 4, 6, 7, 10, 13, 15, 16, 17, 19]
    assert (story.offsets(), story.base_offsets()) == ([0, 2, 3, 4, 5, 6, 7, 10, *range(13, 20)], bases)
    assert len(story.transactions) == 2
    assert story.clean(4, slots=4).end_offset == 14
    assert (story.base_offsets(), story.transactions) == (bases, [])
    assert story.clean(14, slots=4, now_ms=1_050_000).end_offset == 20
    assert (story.base_offsets(), story.transactions) == ([0, 2, 4, 6, 7, 13, 15, 17, 19], [])


def test_basic_transaction_aware_cleaning() -> None:
    story = Story().txn(1, 1, 2).txn(2, 2, 3).txn(1, 3, 4).abort(1).commit(2).txn(1, 2).commit(1).roll()
    story.clean()
    assert (story.keys(), story.offsets()) == ([3, 2], [3, 6, 7, 8, 9])
    assert [(found.producer_id, found.first_offset, found.last_offset) for found in story.transactions] == [(1, 0, 6)]


def test_clean_with_transactions_spanning_segments() -> None:
    story = Story().txn(1, 1, 2).txn(3, 2, 3).txn(2, 3, 4).roll()
    story.txn(2, 5, 6).txn(3, 6, 7).txn(1, 7, 8).abort(2).txn(3, 8, 9).commit(3).txn(1, 9, 10).abort(1).roll()
    dirty = story.clean(uncleanable=6).end_offset
    assert story.keys() == [2, 3, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10]
    story.txn(2, 11).txn(1, 12).roll()
    story.clean(dirty)
    assert story.keys() == [2, 3, 6, 7, 8, 9, 11, 12]


def test_commit_marker_removal() -> None:
    story = Story().txn(1, 1).txn(1, 2, 3).commit(1).txn(1, 2).commit(1).roll()
    dirty = story.clean().end_offset
    assert story.offsets() == [0, 2, 3, 4, 5]
    story.txn(1, 1, 3).commit(1).roll()
    dirty = story.clean(dirty).end_offset
    assert story.offsets() == [3, 4, 5, 6, 7, 8]
    story.clean(dirty)
    assert story.offsets() == [3, 4, 5, 6, 7, 8]
    story.clean(dirty, now_ms=NOW_MS + RETENTION_MS)
    assert story.offsets() == [4, 5, 6, 7, 8]


def test_deleted_batches_with_no_messages_read() -> None:
    story = Story().txn(1, 1).abort(1).txn(1, 2).txn(1, 2).commit(1).roll()
    dirty = story.clean().end_offset
    assert story.offsets() == [1, 3, 4]
    story.two_pass(dirty)
    assert story.offsets() == [3, 4]


def test_commit_marker_retention_with_empty_batch() -> None:
    story = Story().txn(1, 2, 3).roll().txn(2, 2, 3).commit(2).roll().txn(1, 2).txn(1, 3).commit(1).roll()
    dirty = story.clean().end_offset
    for _ in range(2):
        assert (story.offsets(), story.last_offsets()) == ([4, 5, 6, 7], [3, 4, 5, 6, 7])
        story.clean(dirty)
    story.txn(2, 1).commit(2).roll()
    dirty = story.clean(dirty).end_offset
    assert story.last_offsets() == [4, 5, 6, 7, 8, 9]
    story.two_pass(dirty)
    assert story.last_offsets() == [5, 6, 7, 8, 9]


def test_clean_empty_control_batch() -> None:
    story = Story().commit(1).put(2).put(3).roll()
    dirty = story.two_pass().end_offset
    for _ in range(2):
        assert (story.offsets(), story.last_offsets()) == ([1, 2], [0, 1, 2])
        story.two_pass(dirty)


def test_committed_transaction_spanning_segments() -> None:
    story = Story().txn(1, 1).roll().commit(1).roll()
    story.two_pass()
    assert story.offsets() == [0, 1]


def test_aborted_transaction_spanning_segments() -> None:
    story = Story().txn(1, 1).roll().abort(1).roll()
    dirty = story.two_pass().end_offset
    for _ in range(2):
        assert (story.offsets(), story.last_offsets()) == ([1], [0, 1])
        story.clean(dirty, now_ms=NOW_MS + RETENTION_MS)


def test_abort_marker_removal() -> None:
    story = Story().txn(1, 1).txn(1, 2, 3).abort(1).txn(1, 3).commit(1).roll()
    dirty = story.clean().end_offset
    assert story.offsets() == [3, 4, 5]
    story.two_pass(dirty)
    assert story.offsets() == [4, 5]


def test_empty_batch_removal_with_sequence_reuse() -> None:
    story = Story().txn(1, 1, base_sequence=0).commit(1).txn(1, 2, base_sequence=0).commit(1).put(1).put(2).roll()
    dirty = story.clean().end_offset
    assert (story.offsets(), story.last_offsets()) == ([1, 3, 4, 5], [1, 2, 3, 4, 5])
    story.two_pass(dirty)
    assert (story.offsets(), story.last_offsets()) == ([3, 4, 5], [2, 3, 4, 5])


def test_abort_marker_retention_with_empty_batch() -> None:
    story = Story().txn(1, 2, 3).abort(1).roll()
    dirty = story.clean().end_offset
    for _ in range(2):
        assert (story.offsets(), story.last_offsets()) == ([2], [1, 2])
        assert len(story.transactions) == 1
        story.clean(dirty)
    story.txn(1, 1).roll()
    dirty = story.clean(dirty).end_offset
    assert story.last_offsets() == [2, 3]
    story.two_pass(dirty)
    assert (story.last_offsets(), story.transactions) == ([3], [])


def test_cleaning_with_keys_conflicting_with_txn_marker_keys() -> None:
    story = Story().txn(1, 1).commit(1)
    story.put(b"\x00\x00\x00\x01", producer=1, transactional=True).commit(1).roll()
    story.clean()
    assert story.offsets() == [0, 1, 2, 3]


def test_of_markers_only_those_of_the_last_epoch_keep_an_empty_batch() -> None:
    """They fence what the producer was before; no batch of that epoch is known. Source: Cleaner.cleanInto."""
    story = Story().txn(1, 1).commit(1)
    # So early that the producer has not expired.
    story.rules = replace(story.rules, now_ms=10_000, delete_retention_ms=1000)
    fencing = build_marker(2, commit=False, producer_id=1, producer_epoch=1, coordinator_epoch=0, timestamp_ms=1002)
    story.add(fencing, 3).put(1).roll()
    story.clean()
    assert story.base_offsets() == [1, 2, 3]
    story.clean(now_ms=20_000)
    story.clean(now_ms=30_000)
    assert (story.base_offsets(), story.offsets()) == ([2, 3], [3])
