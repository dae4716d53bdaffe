"""Which batches belong to aborted transactions, and which markers nothing depends on any more.

Source: CleanedTransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop

from producer_state.facts import MARKER_ABORT, MARKER_COMMIT
from producer_state.replay import CompletedTransaction


class TransactionTracker:
    """Follows the batches of a range in log order. `kept` gathers the aborted transactions of which something is left."""

    def __init__(
        self, aborted: Iterable[CompletedTransaction], from_offset: int = 0, *, spares_deletes: bool = False
    ) -> None:
        """`aborted`: those that overlap the range, also where their marker lies behind its end.

        `from_offset`: where the range begins. The markers below it are never met, so their transactions must not count.
        `spares_deletes`: data of transactions that began below it may be there, and no marker is idle that has a record.
        """
        self._from_offset, self._spares_deletes = from_offset, spares_deletes
        self._pending = [
            (found.first_offset, number, found)
            for number, found in enumerate(aborted)
            if found.aborted and found.last_offset >= from_offset
        ]
        heapify(self._pending)
        self._aborted: dict[int, tuple[CompletedTransaction, bool]] = {}
        self._committed: set[int] = set()
        self.kept: list[CompletedTransaction] = []

    def data_is_aborted(self, last_offset: int, producer_id: int, *, transactional: bool) -> bool:
        """Take a data batch; whether its transaction was aborted, so that its records go."""
        self._reach(last_offset)
        if not transactional:
            return False
        if producer_id in self._aborted:
            self._aborted[producer_id] = self._aborted[producer_id][0], True
            return True
        self._committed.add(producer_id)
        return False

    def marker_is_idle(self, last_offset: int, producer_id: int, marker_type: int, record_count: int) -> bool:
        """Take a control batch; whether no data of its transaction is left, or it has itself been emptied before."""
        self._reach(last_offset)
        if record_count == 0:
            return True
        return self._ends_nothing(producer_id, marker_type) and not self._spares_deletes

    def _ends_nothing(self, producer_id: int, marker_type: int) -> bool:
        if marker_type == MARKER_ABORT:
            transaction, seen_data = self._aborted.pop(producer_id, (None, False))
            if transaction is None or not seen_data:
                return True
            self.kept.append(transaction)
            return False
        if marker_type == MARKER_COMMIT and producer_id in self._committed:
            self._committed.remove(producer_id)
            return False
        return marker_type == MARKER_COMMIT

    def _reach(self, offset: int) -> None:
        while self._pending and self._pending[0][0] <= offset:
            transaction = heappop(self._pending)[2]
            began_below = self._spares_deletes and transaction.first_offset < self._from_offset
            self._aborted.setdefault(transaction.producer_id, (transaction, began_below))
