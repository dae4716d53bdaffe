"""Splits large segments at batches that their offset index names, so that one segment keeps several cores busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from sidecar.logformat.regular_file import read_regular
from sidecar.pipeline.snapshots.tasks import SegmentTask

PART_BYTES: Final = 128 * 1024 * 1024
"""Segments of twice this size and more are split. Handing out a smaller part costs two busy cores more than it evens out."""

_ENTRY = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])


def parts_of(task: SegmentTask, part_bytes: int = PART_BYTES) -> tuple[SegmentTask, ...]:
    """The task, or parts of it of about `part_bytes` each.

    The index may be wrong: each part is checked to end where the next begins, and if one does not the segment is read whole.
    """
    index = task.source.offset_index
    if index is None or task.cuts or task.end_offset is None or task.size_bytes < 2 * part_bytes:
        return (task,)
    starts = [0, *_positions(index, task.size_bytes, part_bytes)]
    ends: Sequence[int | None] = [*starts[1:], None]
    return tuple(replace(task, start_position=start, end_position=end) for start, end in zip(starts, ends, strict=True))


def _positions(index: Path, size_bytes: int, part_bytes: int) -> list[int]:
    """Positions of batches at or above each multiple of `part_bytes`, as far as the index knows any."""
    try:
        data = read_regular(index)
    except OSError:
        return []
    positions = np.frombuffer(data, _ENTRY, count=len(data) // _ENTRY.itemsize)["position"].astype(np.int64)
    positions = positions[: int(np.argmax(positions)) + 1] if len(positions) else positions
    at = np.searchsorted(positions, np.arange(part_bytes, size_bytes - part_bytes // 2, part_bytes))
    found = np.unique(positions[at[at < len(positions)]])
    return [int(position) for position in found if 0 < position < size_bytes]
