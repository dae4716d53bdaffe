"""What transactions decide on batches, as a native loop over the events of a log."""

from __future__ import annotations

from typing import Any

import numpy as np

from sidecar.compaction.compiling import native

_DATA, _ABORT, _COMMIT, _EMPTY = 0, 1, 2, 4


@native
def judge(
    last_offset: Any, producer: Any, kind: Any, first_offsets: Any, owners: Any, began_below: Any, current: Any, seen: Any,
    committed: Any, verdicts: Any, kept: Any,
) -> None:  # fmt: skip
    """Judge events in log order.

    Args:
        last_offset, producer, kind: by event; producers as dense numbers.
        first_offsets, owners: the aborted transactions by ascending first offset, their producers by the same numbers.
        began_below: uint8 by aborted transaction, not 0 where data of it may lie below the range: it counts as met.
        current, seen, committed: by producer, -1 and zeros: the aborted transaction it is in, whether data of that was met,
            whether other data was met.
        verdicts: uint8 by event, set to 1 for aborted data and for markers on which no data depends.
        kept: int64 by event, set to the transaction that an abort marker with data ends, else -1.
    """
    reached = 0
    for event in range(last_offset.shape[0]):
        while reached < first_offsets.shape[0] and first_offsets[reached] <= last_offset[event]:
            owner = owners[reached]
            if owner >= 0 and current[owner] < 0:
                current[owner] = reached
                seen[owner] = began_below[reached]
            reached += 1
        who = producer[event]
        idle = False
        kept[event] = -1
        if kind[event] == _DATA:
            if current[who] >= 0:
                seen[who] = 1
                idle = True
            else:
                committed[who] = 1
        elif kind[event] == _EMPTY:
            idle = True
        elif kind[event] == _ABORT:
            idle = current[who] < 0 or seen[who] == 0
            if not idle:
                kept[event] = current[who]
            current[who] = -1
        elif kind[event] == _COMMIT:
            idle = committed[who] == 0
            committed[who] = 0
        verdicts[event] = np.uint8(1) if idle else np.uint8(0)
