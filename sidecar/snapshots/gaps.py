"""Offsets that no batch has, in a log whose directory says that no cleaner has been there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from producer_state.digest import END_GAP, OFFSET_GAP, SHORT_BATCH, SegmentDigest
from producer_state.facts import Int64Column
from sidecar.errors import SidecarError
from sidecar.model import TopicPartition
from sidecar.plurals import plural
from sidecar.snapshots.tasks import FETCH_AGAIN, SegmentTask

if TYPE_CHECKING:
    from sidecar.logformat.batches import BatchColumns

_MISSING: Final = SHORT_BATCH | OFFSET_GAP | END_GAP


def has_gap(digest: SegmentDigest) -> bool:
    """Whether offsets are missing between batches, inside one, or at the end."""
    return bool(digest.coverage.cleaned & _MISSING)


def describe_gap(topic_partition: TopicPartition, task: SegmentTask, digest: SegmentDigest) -> str:
    """What is missing in a segment whose digest has a gap, what that may mean and what to do. Reads its batch headers again."""
    try:
        what = _first_gap(task)
    except SidecarError:
        what = ""
    covered = digest.coverage
    what = what or f"offsets are missing between {covered.start_offset} and {covered.end_offset}"
    return (
        f"{task.source.name}: {what}, and according to the broker's cleaner-offset-checkpoint its cleaner has never "
        f"cleaned this partition. If a part of the log is lost and another replica has it, {FETCH_AGAIN}. If it "
        "was compacted elsewhere (fetched from a leader that had compacted it, or restored from a compacted "
        "archive), nothing is lost. It may also have been restored over offsets that its archive records as lost, "
        "which `restore` named. In both of these cases run again with --compacted "
        f"'{re.escape(topic_partition.topic)}'"
    )


def rows_with_gaps(columns: BatchColumns, expected_offset: int) -> Int64Column:
    """The batches before which, or inside of which, offsets are missing. `expected_offset`: where the first one should begin."""
    before = np.concatenate(([expected_offset], columns.last_offset[:-1] + 1))
    # Of a compressed legacy message neither the count nor the first offset is known.
    is_short = columns.record_count <= columns.last_offset - columns.base_offset
    return np.flatnonzero((columns.record_count >= 0) & ((columns.base_offset != before) | is_short))


def _first_gap(task: SegmentTask) -> str:
    from sidecar.logformat.batches import SegmentScanner  # loads numba

    expected = task.base_offset
    with task.source.opened() as read_at:
        scanner = SegmentScanner(
            read_at, task.source.size_bytes, base_offset=expected, file=task.source.name, check_crc=False
        )
        for columns in scanner:
            base, last, count = columns.base_offset, columns.last_offset, columns.record_count
            found = rows_with_gaps(columns, expected)
            if len(found):
                row = int(found[0])
                position, before = int(columns.position[row]), int(last[row - 1]) + 1 if row else expected
                if base[row] != before:
                    return f"no batch has the offsets {before} to {base[row] - 1}, before byte {position}"
                return (
                    f"the batch of the offsets {base[row]} to {last[row]} at byte {position} has only "
                    f"{plural(int(count[row]), 'record')}"
                )
            if len(columns):
                expected = int(last[-1]) + 1
    if task.end_offset is not None and expected < task.end_offset:
        return f"no batch has the offsets {expected} to {task.end_offset - 1}, and the next segment begins above them"
    return ""
