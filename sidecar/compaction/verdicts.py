"""What transactions decide on batches, from the events that were read of every split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from producer_state.facts import Int64Column
from producer_state.replay import CompletedTransaction
from sidecar.compaction.kernels.transactions import judge
from sidecar.compaction.scan import ABORT, COMMIT, NO_VERDICTS, TransactionEvents
from sidecar.compaction.transactions import still_marked


@dataclass(frozen=True, slots=True, eq=False)
class SplitVerdicts:
    """By batch of a split, not 0 for aborted data and for markers on which no data depends; empty where all are 0.

    `kept`: the aborted transactions that end in this split and of which something is left, in marker order.
    """

    by_batch: npt.NDArray[np.uint8]
    kept: tuple[CompletedTransaction, ...]

    @property
    def drops_nothing(self) -> bool:
        """Whether no batch of the split is touched on behalf of a transaction."""
        return not self.by_batch.any()


def judge_splits(
    events: Sequence[TransactionEvents],
    batch_counts: Sequence[int],
    aborted: Sequence[CompletedTransaction],
    start_offset: int,
    end_offset: int,
    *,
    spares_deletes: bool = False,
) -> list[SplitVerdicts]:
    """Judge the splits of the range `[start_offset, end_offset)` of a partition, in log order.

    `aborted`: every aborted transaction that overlaps the range; others are passed over.
    `spares_deletes`: see CompactionRules; data of a transaction that began below the range counts as met, and no marker is
    judged idle unless it is empty.
    """
    joined = TransactionEvents.joined(list(events))
    if not len(joined):
        return [SplitVerdicts(NO_VERDICTS, ())] * len(events)
    ends = np.flatnonzero(joined.kind == ABORT)
    markers = set(zip(joined.producer_id[ends].tolist(), joined.last_offset[ends].tolist(), strict=True))
    relevant = still_marked(aborted, markers, start_offset, end_offset)
    producers, numbers = np.unique(joined.producer_id, return_inverse=True)
    verdicts = np.zeros(len(joined), dtype=np.uint8)
    kept = np.full(len(joined), -1, dtype=np.int64)
    count = len(producers)
    judge(
        joined.last_offset,
        numbers.astype(np.int64),
        joined.kind,
        np.array([found.first_offset for found in relevant], dtype=np.int64),
        _numbers_of([found.producer_id for found in relevant], producers),
        np.array([spares_deletes and found.first_offset < start_offset for found in relevant], dtype=np.uint8),
        np.full(count, -1, dtype=np.int64),
        np.zeros(count, dtype=np.uint8),
        np.zeros(count, dtype=np.uint8),
        verdicts,
        kept,
    )
    if spares_deletes:
        verdicts[(joined.kind == ABORT) | (joined.kind == COMMIT)] = 0
    found: list[SplitVerdicts] = []
    begin = 0
    for part, batches in zip(events, batch_counts, strict=True):
        end = begin + len(part)
        by_batch = NO_VERDICTS
        if verdicts[begin:end].any():
            by_batch = np.zeros(batches, dtype=np.uint8)
            by_batch[part.batch] = verdicts[begin:end]
        ended = kept[begin:end]
        found.append(SplitVerdicts(by_batch, tuple(relevant[index] for index in ended[ended >= 0].tolist())))
        begin = end
    return found


def _numbers_of(producer_ids: list[int], producers: Int64Column) -> Int64Column:
    """Dense numbers of producers, -1 for those that have no event."""
    wanted = np.array(producer_ids, dtype=np.int64)
    numbers = np.searchsorted(producers, wanted)
    present = numbers < len(producers)
    present[present] = producers[numbers[present]] == wanted[present]
    return np.where(present, numbers, -1).astype(np.int64)
