"""Which aborted transactions matter to a range of batches."""

from __future__ import annotations

from collections.abc import Container, Iterable

from producer_state.replay import CompletedTransaction


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
