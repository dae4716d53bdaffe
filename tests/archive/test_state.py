"""What commits add up to, and which commits the rules forbid."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings

from sidecar.archive.actions import Action, Add, AdoptTopicId, DeleteRecords, Lost, Purge, Remove
from sidecar.archive.commit import Writer, digest, encode_commit
from sidecar.archive.coverage import Hole, find_defects
from sidecar.archive.fold import fold
from sidecar.archive.state import PartitionState, empty_state
from sidecar.errors import CommitRefused, CoverageHole, Fenced
from sidecar.model import ArchivedSegment, TopicPartition
from tests.archive.builders import (
    LINEAGE,
    NAMELESS,
    TOPIC_ID,
    WRITER,
    a_commit,
    a_compacted,
    a_segment,
    after,
    an_id,
)
from tests.archive.histories import THREE, A, B, C, histories


def removal(segment: ArchivedSegment, reason: str = "replaced") -> Remove:
    """The action that takes a segment out."""
    return Remove(segment.segment_id, segment.base_offset, segment.end_offset, reason)


def test_segments_follow_one_another() -> None:
    assert (THREE.start_offset, THREE.end_offset, THREE.next_number) == (0, 300, 3)
    assert THREE.segments == (A, B, C)
    assert THREE.last_segment == C
    assert THREE.topic_id == TOPIC_ID
    assert THREE.leader_epoch == WRITER.leader_epoch
    assert THREE.size_bytes == 3 * A.size_bytes


def test_an_empty_state_covers_nothing() -> None:
    state = empty_state(NAMELESS)
    assert (state.start_offset, state.end_offset, state.topic_id, state.leader_epoch) == (None, None, None, -1)


def test_the_archive_may_begin_above_zero() -> None:
    assert after(empty_state(LINEAGE), [Add(a_segment(500))]).start_offset == 500


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        ([Add(a_segment(400))], CoverageHole, r"\[300, 400\) uncovered"),
        ([Add(a_segment(250))], CommitRefused, "overlaps"),
        ([Add(a_segment(100, name="again"))], CommitRefused, "overlaps"),
        ([Add(a_segment(0, 1000))], CommitRefused, "overlaps"),
        ([Lost(350, 400, "x")], CoverageHole, r"\[300, 350\)"),
        ([Lost(250, 400, "x")], CommitRefused, "covered twice"),
        ([removal(B)], CommitRefused, r"\[100, 200\) covered by nothing"),
        ([removal(C)], CommitRefused, r"\[200, 300\) covered by nothing"),
        ([Remove(an_id("x"), 0, 100, "x")], CommitRefused, "not live"),
        ([Remove(A.segment_id, 0, 99, "x")], CommitRefused, "not live"),
        ([removal(A), removal(A)], CommitRefused, "not live"),
        ([removal(A), Add(A)], CommitRefused, "fresh id"),
        ([removal(A), Add(a_segment(0, 50, "half"))], CommitRefused, r"\[50, 100\) covered by nothing"),
        ([Purge((A.segment_id,))], CommitRefused, "not among the removed"),
        ([AdoptTopicId(an_id("t"))], CommitRefused, "already belongs"),
        ([Add(replace(C, end_offset=150))], CommitRefused, "end must lie above"),
    ],
)
def test_forbidden_commits(actions: list[Action], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        after(THREE, actions)


def test_compacted_segments_replace_their_sources_in_one_commit() -> None:
    merged = a_compacted(0, 200)
    state = after(THREE, [removal(A), removal(B), Add(merged)])
    assert state.segments == (merged, C)
    assert (state.start_offset, state.end_offset) == (0, 300)
    assert [removed.segment_id for removed in state.removed] == [A.segment_id, B.segment_id]
    purged = after(state, [Purge((A.segment_id,))])
    assert [removed.segment_id for removed in purged.removed] == [B.segment_id]


def test_a_generation_never_falls() -> None:
    state = after(THREE, [removal(A), Add(a_compacted(0, 100, 2))])
    (old, *_) = state.segments
    with pytest.raises(CommitRefused, match="of generation 1 would replace"):
        after(state, [removal(old), Add(a_compacted(0, 100, 1, "lower"))])
    with pytest.raises(CommitRefused, match="of generation 0 would replace"):
        after(state, [removal(old), Add(a_segment(0, name="raw"))])
    assert after(state, [removal(old), Add(a_compacted(0, 100, 2, "repaired"))]).segments[0].generation == 2


def test_expired_segments_leave_from_the_start_only() -> None:
    state = after(THREE, [removal(A, "expired")])
    assert (state.start_offset, state.end_offset) == (100, 300)
    with pytest.raises(CommitRefused, match="below its start 100"):
        after(state, [Add(a_segment(0, name="back"))])
    empty = after(state, [removal(B), removal(C)])
    assert (empty.start_offset, empty.end_offset, empty.segments) == (300, 300, ())
    with pytest.raises(CommitRefused, match="below its start 300"):
        after(empty, [Add(a_segment(200, name="back"))])
    assert after(empty, [Add(a_segment(300))]).start_offset == 300


def test_a_lost_range_is_a_hole_that_readers_see() -> None:
    state = after(THREE, [Lost(300, 350, "deleted locally"), Add(a_segment(350))])
    assert state.holes == (Hole(300, 350, "deleted locally"),)
    assert state.end_offset == 450
    refilled = after(state, [Add(a_segment(310, 320))])
    assert [(hole.base_offset, hole.end_offset) for hole in refilled.holes] == [(300, 310), (320, 350)]
    expired = after(state, [removal(A), removal(B), removal(C)])
    assert (expired.start_offset, expired.holes) == (350, ())


def test_a_damaged_segment_can_be_declared_lost() -> None:
    state = after(THREE, [removal(B, "damaged"), Lost(100, 200, "damaged in the store")])
    assert state.segments == (A, C)
    assert state.holes == (Hole(100, 200, "damaged in the store"),)


def test_nothing_can_be_lost_before_the_first_segment() -> None:
    with pytest.raises(CommitRefused, match="before the first segment"):
        after(empty_state(LINEAGE), [Lost(0, 10, "x")])


def test_a_nameless_lineage_adopts_an_id_once() -> None:
    state = after(empty_state(NAMELESS), [Add(A)], [AdoptTopicId(TOPIC_ID), Add(B)])
    assert state.topic_id == TOPIC_ID
    with pytest.raises(CommitRefused, match="already belongs"):
        after(state, [AdoptTopicId(an_id("other"))])
    lying = replace(a_commit(state, Add(C)), topic_id=None)
    with pytest.raises(CommitRefused, match="names topic id None"):
        fold(state, [(lying, "00" * 32)])


def test_deleted_records_are_known_from_then_on() -> None:
    state = after(THREE, [DeleteRecords(150)])
    assert (state.deleted_before_offset, state.start_offset, state.segments) == (150, 0, THREE.segments)
    # In the commit of a segment it may lie inside that: what it says holds of the archive after the commit.
    grown = after(state, [DeleteRecords(350), Add(a_segment(300))])
    assert grown.deleted_before_offset == 350
    assert after(grown, [removal(A), removal(B), Add(a_compacted(0, 200))]).deleted_before_offset == 350
    for offset in (349, 401):
        with pytest.raises(CommitRefused, match=f"records below {offset} were deleted: expected an offset from 350"):
            after(grown, [DeleteRecords(offset)])


def test_a_lower_leader_epoch_is_fenced() -> None:
    with pytest.raises(Fenced, match="another broker leads"):
        after(THREE, [Add(a_segment(300))], writer=Writer(2, 4, "stale"))
    with pytest.raises(Fenced):
        after(THREE, [Add(a_segment(300))], writer=Writer(2, -1, "unknown"))
    assert after(THREE, [Add(a_segment(300))], writer=Writer(2, 6, "next")).highest_leader_epoch == 6


def test_commits_must_follow_one_another() -> None:
    good = a_commit(THREE, Add(a_segment(300)))
    for wrong, message in (
        (replace(good, number=4), "expected commit 3"),
        (replace(good, previous_sha256="00" * 32), "altered or replaced"),
        (replace(good, topic_partition=TopicPartition("orders", 4)), "belongs to orders-4"),
    ):
        with pytest.raises(CommitRefused, match=message):
            fold(THREE, [(wrong, "00" * 32)])


def test_a_refused_commit_leaves_the_state_as_it_was() -> None:
    before = (THREE.segments, THREE.holes, THREE.end_offset)
    with pytest.raises(CommitRefused):
        after(THREE, [removal(A), Add(a_segment(0, 50))])
    assert (THREE.segments, THREE.holes, THREE.end_offset) == before


@given(histories())
@settings(deadline=None)
def test_whatever_happened_segments_and_holes_tile_the_range(state: PartitionState) -> None:
    spans = [(segment.base_offset, segment.end_offset) for segment in state.segments]
    assert spans == sorted(spans)
    spans += [(hole.base_offset, hole.end_offset) for hole in state.holes]
    assert state.start_offset is not None
    assert state.end_offset is not None
    assert find_defects(spans, state.start_offset, state.end_offset) == ()


def test_ten_thousand_segments_fold_in_linear_time() -> None:
    def seconds(count: int) -> float:
        state = empty_state(LINEAGE)
        commits, previous = [], None
        for number in range(count):
            commit = a_commit(replace(state, next_number=number, last_sha256=previous), Add(a_segment(number * 100)))
            previous = digest(b"%d" % number)
            commits.append((commit, previous))
        begun = time.thread_time()
        assert len(fold(state, commits).segments) == count
        return time.thread_time() - begun

    small, large = min(seconds(1000) for _ in range(3)), seconds(10_000)
    assert large < 60 * small + 0.5, f"{large:.2f} s for 10,000 commits, {small:.3f} s for 1,000"


def test_the_digest_is_over_the_exact_bytes() -> None:
    assert digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest(encode_commit(a_commit(THREE))) == digest(encode_commit(a_commit(THREE)))
