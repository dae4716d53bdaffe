"""Compares a snapshot that a broker wrote with the state that replay gives at the same offset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum

from producer_state.snapshot import ProducerEntry


class Conformance(StrEnum):
    """EQUAL: the same entries. PERMISSIBLE: differences that brokers make among themselves. WRONG: anything else."""

    EQUAL = "equal"
    PERMISSIBLE = "permissible"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Difference:
    """One producer whose entries differ. `permissible` is the reason why it may, "" if it may not."""

    producer_id: int
    what: str
    permissible: str = ""

    def __str__(self) -> str:
        return f"producer {self.producer_id}: {self.what}" + (f" ({self.permissible})" if self.permissible else "")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a snapshot is worth, and the producers whose entries differ. EQUAL has no differences."""

    conformance: Conformance
    differences: tuple[Difference, ...] = ()

    def describe(self, at_most: int = 5) -> str:
        shown = "; ".join(str(difference) for difference in self.differences[:at_most])
        more = len(self.differences) - at_most
        return shown + (f"; and {more} more" if more > 0 else "")


def compare_snapshots(
    theirs: Iterable[ProducerEntry], ours: Iterable[ProducerEntry], allowance: Allowance
) -> Comparison:
    """Compare as maps."""
    broker = {entry.producer_id: entry for entry in theirs}
    replayed = {entry.producer_id: entry for entry in ours}
    found: list[Difference] = []
    for producer_id in sorted(broker.keys() | replayed.keys()):
        left, right = broker.get(producer_id), replayed.get(producer_id)
        if left == right:
            continue
        if left is not None and right is not None:
            found.append(allowance.differing(left, right))
        elif right is not None:
            found.append(Difference(producer_id, "missing in the broker's file", allowance.may_lack(right)))
        elif left is not None:
            found.append(Difference(producer_id, "not in the log", allowance.may_add(left)))
    if not found:
        return Comparison(Conformance.EQUAL)
    verdict = Conformance.PERMISSIBLE if all(difference.permissible for difference in found) else Conformance.WRONG
    return Comparison(verdict, tuple(found))


_EXPIRED = "already expired"
_FORGOTTEN = "the broker forgot it when the producer expired between two writes"
_BELOW_START = "it is below the log start offset"
_DELETED = "its batches were deleted before the broker replayed the log"
_CLEANED = "compaction has removed later batches or markers"
_BATCH = ("last_sequence", "last_offset", "offset_delta")


@dataclass(frozen=True, slots=True)
class Allowance:
    """Why a field or an entry may differ: reasons, "" for none.

    `now_ms`: a moment not later than the clock of whoever will load the snapshot. `expiration_ms`: the brokers'
    `producer.id.expiration.ms`, None for never. `exact`: False where the replayed log had been cleaned, so that replay may know
    less than the broker did. `log_start_offset`: where our replay began with nothing known; of what lies below, only the broker
    can know. `deleted_below`: the broker's log start offset; it may lie above that (DeleteRecords), and a broker that replayed
    its log since then knows nothing of what lies below, though the batches are still on disk. `first_offset`: where the log that
    we replayed begins. No batch of a transaction that only a snapshot there names need be in it.
    """

    now_ms: int
    expiration_ms: int | None
    exact: bool
    log_start_offset: int = 0
    deleted_below: int = 0
    first_offset: int = 0

    def may_lack(self, ours: ProducerEntry) -> str:
        if self._expired(ours):
            return _EXPIRED
        # Of one with a marker alone the offset is not known: nothing of it was deleted where the replay lacks nothing either.
        deleted = ours.last_offset < self.deleted_below > self.log_start_offset
        return _DELETED if deleted and ours.current_txn_first_offset is None else ""

    def may_add(self, theirs: ProducerEntry) -> str:
        if theirs.producer_epoch < 0 and theirs.current_txn_first_offset is None:
            return "known only from an empty control batch"
        if self._expired(theirs):
            return _EXPIRED
        if theirs.last_offset < self.log_start_offset > (theirs.current_txn_first_offset or 0):
            return _BELOW_START
        return "" if self.exact else "its batches are no longer in the log"

    def differing(self, theirs: ProducerEntry, ours: ProducerEntry) -> Difference:
        before, after = asdict(theirs), asdict(ours)
        names = [name for name in before if before[name] != after[name]]
        what = ", ".join(f"{name} {before[name]}, according to the log {after[name]}" for name in names)
        if self._expired(theirs) and self._expired(ours):
            return Difference(theirs.producer_id, what, _EXPIRED)
        reasons = [self._reason(name, theirs, ours) for name in names]
        permissible = "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""
        return Difference(theirs.producer_id, what, permissible)

    def _reason(self, name: str, theirs: ProducerEntry, ours: ProducerEntry) -> str:
        if name == "coordinator_epoch":
            if theirs.coordinator_epoch < 0:
                return "" if self.expiration_ms is None else _FORGOTTEN
            if ours.coordinator_epoch < 0 < self.log_start_offset:
                return _BELOW_START
            return "" if self.exact else _CLEANED
        if name in _BATCH:
            return self._batch_reason(theirs, ours)
        if name == "current_txn_first_offset":
            return self._transaction_reason(theirs.current_txn_first_offset, ours)
        return "" if self.exact else _CLEANED

    def _batch_reason(self, theirs: ProducerEntry, ours: ProducerEntry) -> str:
        same_epoch = theirs.producer_epoch == ours.producer_epoch
        if theirs.last_offset < 0 and same_epoch:
            # Only markers can have followed since it was forgotten: whoever writes data again is known with its batch.
            only_markers = theirs.coordinator_epoch >= 0 and theirs.current_txn_first_offset is None
            return _FORGOTTEN if only_markers and self.expiration_ms is not None else ""
        if ours.last_offset < 0 and same_epoch and theirs.last_offset < self.log_start_offset:
            return _BELOW_START
        # Compaction keeps a producer's last batch of all, not the one that was its last at an earlier boundary. A marker of
        # a new epoch clears the batch; where compaction took the marker, replay still has the batch.
        poorer = theirs.last_offset > ours.last_offset or (theirs.last_offset < 0 and not same_epoch)
        return _CLEANED if poorer and not self.exact else ""

    def _transaction_reason(self, theirs: int | None, ours: ProducerEntry) -> str:
        if theirs is not None and theirs < self.log_start_offset and ours.coordinator_epoch < 0:
            return _BELOW_START  # A marker in the log would have ended it.
        first_offset = ours.current_txn_first_offset
        # Markers stay as long as any batch of their transaction: a cleaned log can hide a transaction. It prolongs one only where
        # all its batches were deleted. Source: CleanedTransactionMetadata.onControlBatchRead.
        hidden = theirs is not None and (first_offset is None or first_offset > theirs)
        has_no_batch = theirs is not None or ours.last_offset < self.first_offset
        prolonged = first_offset is not None and first_offset < self.first_offset and has_no_batch
        return _CLEANED if (hidden or prolonged) and not self.exact else ""

    def _expired(self, entry: ProducerEntry) -> bool:
        """Source: ProducerStateManager.isProducerExpired."""
        if self.expiration_ms is None or entry.current_txn_first_offset is not None:
            return False
        return self.now_ms - entry.last_timestamp_ms >= self.expiration_ms
