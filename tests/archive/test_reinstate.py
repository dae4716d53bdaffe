"""A removed segment may be live again as it was, as long as its objects are not purged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.archive.actions import (
    UNDONE,
    Action,
    Add,
    Clean,
    Purge,
    Reinstate,
    action_from_json,
    action_to_json,
    compacted_by,
)
from sidecar.archive.checkpoint import decode_checkpoint, encode_checkpoint
from sidecar.archive.replacement import newest_replacement
from sidecar.archive.state import PartitionState
from sidecar.archive.strict_json import canonical, read_object
from sidecar.errors import CommitRefused
from tests.archive.builders import LINEAGE, a_compacted, a_segment, after
from tests.archive.histories import THREE, A, B, C, removal

AB = a_compacted(0, 200, 1, "AB")
REASON = compacted_by("offset")
COMPACTED = after(THREE, [removal(A, REASON), removal(B, REASON), Add(AB), Clean(0, 300, "offset")])


def test_what_was_replaced_takes_its_place_again() -> None:
    state = after(COMPACTED, [removal(AB), Reinstate(A), Reinstate(B)])
    assert (state.segments, state.end_offset) == (THREE.segments, THREE.end_offset)
    assert [found.segment_id for found in state.removed] == [AB.segment_id]
    assert state.clean is None
    assert decode_checkpoint(encode_checkpoint(state), state.next_number - 1, LINEAGE) == state
    again = after(state, [removal(A), removal(B), Reinstate(AB)])
    assert again.segments == COMPACTED.segments
    assert after(again, [Purge((A.segment_id, B.segment_id))]).removed == ()


def test_its_json_is_read_back() -> None:
    found = canonical(action_to_json(Reinstate(A)))
    assert action_from_json(read_object(found, "")) == Reinstate(A)


@pytest.mark.parametrize(
    ("before", "actions", "message"),
    [
        (COMPACTED, [Reinstate(A)], "overlaps"),
        (COMPACTED, [removal(AB), Reinstate(A)], "leave"),
        (COMPACTED, [removal(AB), Reinstate(A), Reinstate(A)], "not among the removed"),
        (COMPACTED, [removal(AB), Reinstate(AB)], "by one commit"),
        (COMPACTED, [removal(AB), Reinstate(a_segment(0, 100, "never there")), Reinstate(B)], "not among the removed"),
        (COMPACTED, [removal(AB), Reinstate(replace(A, end_offset=200))], "not among the removed"),
        (COMPACTED, [removal(AB), Add(A), Reinstate(B)], "removed before"),
        (after(COMPACTED, [Purge((A.segment_id,))]), [removal(AB), Reinstate(A), Reinstate(B)], "objects were deleted"),
    ],
)
def test_what_the_rules_forbid(before: PartitionState, actions: list[Action], message: str) -> None:
    with pytest.raises(CommitRefused, match=message):
        after(before, actions)


def test_a_purge_of_what_is_live_again_is_refused() -> None:
    state = after(COMPACTED, [removal(AB), Reinstate(A), Reinstate(B)])
    with pytest.raises(CommitRefused, match="not among the removed"):
        after(state, [Purge((A.segment_id,))])


def test_only_the_newest_compaction_counts_and_only_whole() -> None:
    assert newest_replacement(THREE) is None
    found = newest_replacement(COMPACTED)
    assert found is not None
    assert (found.number, found.compacted) == (COMPACTED.next_number - 1, (AB,))
    assert [old.segment_id for old in found.replaced] == [A.segment_id, B.segment_id]
    assert newest_replacement(after(COMPACTED, [Purge((B.segment_id,))])) is None
    assert newest_replacement(after(COMPACTED, [removal(AB, UNDONE), Reinstate(A), Reinstate(B)])) is None
    top = a_compacted(200, 300, 1, "C")
    later = after(COMPACTED, [removal(C, REASON), Add(top)])
    newest = newest_replacement(later)
    assert newest is not None
    assert newest.compacted == (top,)
