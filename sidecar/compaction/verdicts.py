"""What transactions decide on batches, from the events that were read of every split."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from producer_state.facts import Int64Column
from producer_state.replay import CompletedTransaction
from sidecar.compaction.library import judge
from sidecar.compaction.scan import ABORT, COMMIT, NO_VERDICTS, TransactionEvents


def still_marked(
    aborted: Iterable[CompletedTransaction], markers: Container[tuple[int, int]], start_offset: int, end_offset: int
) -> tuple[CompletedTransaction, ...]:
    """The aborted transactions that matter to the batches `[start_offset, end_offset)`, by ascending first offset.

    `markers`: (producer, offset) of the abort markers there. A transaction that ended before the range, or whose marker an
    earlier compaction has removed, would never be ended, and hide what its producer wrote afterwards.
    """
    found = [
        transaction
        for transaction in aborted
        if transaction.aborted
        and transaction.last_offset >= start_offset
        and (transaction.last_offset >= end_offset or (transaction.producer_id, transaction.last_offset) in markers)
    ]
    return tuple(sorted(found, key=lambda transaction: transaction.first_offset))


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
    splits: Sequence[tuple[TransactionEvents, int]],
    completed: Sequence[CompletedTransaction],
    start_offset: int,
    end_offset: int,
    *,
    spares_deletes: bool = False,
) -> list[SplitVerdicts]:
    """Judge the splits of the range `[start_offset, end_offset)` of a partition, in log order.

    `splits`: the events of each, and how many batches it has. `completed`: every aborted transaction that overlaps the range;
    others are passed over.
    `spares_deletes`: see CompactionRules; data of a transaction that began below the range counts as met, and no marker is
    judged idle unless it is empty.
    """
    joined = TransactionEvents.joined([events for events, _ in splits])
    if not len(joined):
        return [SplitVerdicts(NO_VERDICTS, ())] * len(splits)
    ends = np.flatnonzero(joined.kind == ABORT)
    markers = set(zip(joined.producer_id[ends].tolist(), joined.last_offset[ends].tolist(), strict=True))
    relevant = still_marked(completed, markers, start_offset, end_offset)
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
    for part, batches in splits:
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
