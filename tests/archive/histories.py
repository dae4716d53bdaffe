"""Archives after a few commits, and after whatever may happen to one, drawn at random."""

from __future__ import annotations

from hypothesis import strategies as st

from sidecar.archive.actions import (
    UNDONE,
    Action,
    Add,
    DeleteRecords,
    Lost,
    Purge,
    Reinstate,
    Remove,
    compacted_by,
)
from sidecar.archive.state import PartitionState, empty_state
from sidecar.model import ArchivedSegment
from tests.archive.builders import (
    LINEAGE,
    a_compacted,
    a_segment,
    after,
)

A, B, C = a_segment(0), a_segment(100), a_segment(200)
THREE = after(empty_state(LINEAGE), [Add(A)], [Add(B)], [Add(C)])


def removal(segment: ArchivedSegment, reason: str = "replaced") -> Remove:
    """The action that takes a segment out."""
    return Remove(segment.segment_id, segment.base_offset, segment.end_offset, reason)


@st.composite
def histories(draw: st.DrawFn) -> PartitionState:
    """A state after random allowed commits of every kind."""
    state = after(empty_state(LINEAGE), [Add(a_segment(draw(st.integers(0, 50))))])
    merges: list[tuple[list[ArchivedSegment], ArchivedSegment]] = []
    for step in range(draw(st.integers(0, 12))):
        assert state.end_offset is not None
        live = state.segments
        kind = draw(st.sampled_from(["add", "add", "lose", "merge", "expire", "purge", "delete", "undo"]))
        length = draw(st.integers(1, 9))
        if kind == "add":
            actions: list[Action] = [Add(a_segment(state.end_offset, state.end_offset + length, step))]
        elif kind == "lose":
            actions = [Lost(state.end_offset, state.end_offset + length, f"step {step}")]
        elif kind == "merge" and live:
            first = draw(st.integers(0, len(live) - 1))
            group = [live[first]]
            if first + 1 < len(live) and live[first + 1].base_offset == live[first].end_offset:
                group.append(live[first + 1])
            generation = 1 + max(segment.generation for segment in group)
            merged = a_compacted(group[0].base_offset, group[-1].end_offset, generation, step)
            actions = [*(removal(segment, compacted_by("offset")) for segment in group), Add(merged)]
            merges.append((group, merged))
        elif kind == "expire" and live:
            actions = [removal(live[0], "expired")]
        elif kind == "purge" and state.removed:
            actions = [Purge((state.removed[0].segment_id,))]
        elif kind == "undo" and merges and merges[-1][1] in live:
            group, merged = merges.pop()
            if not {segment.segment_id for segment in group} <= {found.segment_id for found in state.removed}:
                continue
            actions = [removal(merged, UNDONE), *map(Reinstate, group)]
        elif kind == "delete" and state.deleted_before_offset < (state.end_offset or 0):
            actions = [DeleteRecords(draw(st.integers(state.deleted_before_offset, state.end_offset)))]
        else:
            continue
        state = after(state, actions)
    return state
