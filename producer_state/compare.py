"""Compares a snapshot that a broker wrote with the state that replay gives at the same offset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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
    """The verdict and what it rests on."""

    conformance: Conformance
    differences: tuple[Difference, ...] = ()

    def describe(self, at_most: int = 5) -> str:
        """For people: the first differences."""
        shown = "; ".join(str(difference) for difference in self.differences[:at_most])
        more = len(self.differences) - at_most
        return shown + (f"; and {more} more" if more > 0 else "")


def compare_snapshots(
    theirs: Iterable[ProducerEntry],
    ours: Iterable[ProducerEntry],
    *,
    now_ms: int,
    expiration_ms: int | None,
    exact: bool,
) -> Comparison:
    """Compare as maps.

    Args:
        now_ms: a moment not later than the clock of whoever will load the snapshot.
        expiration_ms: the brokers' `producer.id.expiration.ms`, None for never.
        exact: False where the replayed log had been cleaned, so that replay may know less than the broker did.
    """
    broker = {entry.producer_id: entry for entry in theirs}
    replayed = {entry.producer_id: entry for entry in ours}
    found: list[Difference] = []
    for producer_id in sorted(broker.keys() | replayed.keys()):
        left, right = broker.get(producer_id), replayed.get(producer_id)
        if left == right:
            continue
        if left is None and right is not None:
            found.append(
                Difference(producer_id, "missing in the broker's file", _may_lack(right, now_ms, expiration_ms))
            )
        elif right is None and left is not None:
            found.append(Difference(producer_id, "not in the log", _may_add(left, now_ms, expiration_ms, exact)))
        elif left is not None and right is not None:
            found.append(_differing(left, right, now_ms, expiration_ms, exact))
    if not found:
        return Comparison(Conformance.EQUAL)
    verdict = Conformance.PERMISSIBLE if all(difference.permissible for difference in found) else Conformance.WRONG
    return Comparison(verdict, tuple(found))


def _may_lack(ours: ProducerEntry, now_ms: int, expiration_ms: int | None) -> str:
    if expiration_ms is not None and is_expired(ours, now_ms, expiration_ms):
        return "already expired"
    return ""


def _may_add(theirs: ProducerEntry, now_ms: int, expiration_ms: int | None, exact: bool) -> str:
    if theirs.producer_epoch < 0:
        return "known from an empty control batch only"
    if expiration_ms is not None and is_expired(theirs, now_ms, expiration_ms):
        return "already expired"
    if theirs.last_offset < 0 and theirs.current_txn_first_offset is None:
        return "its batches are no longer in the log" if not exact else ""
    return "" if exact else "its batches are no longer in the log"


def _differing(
    theirs: ProducerEntry, ours: ProducerEntry, now_ms: int, expiration_ms: int | None, exact: bool
) -> Difference:
    names = ("producer_epoch", "last_sequence", "last_offset", "offset_delta", "last_timestamp_ms", "coordinator_epoch")
    differing = [name for name in (*names, "current_txn_first_offset") if getattr(theirs, name) != getattr(ours, name)]
    what = ", ".join(f"{name} {getattr(theirs, name)}, by the log {getattr(ours, name)}" for name in differing)
    reason = ""
    if (
        expiration_ms is not None
        and is_expired(theirs, now_ms, expiration_ms)
        and is_expired(ours, now_ms, expiration_ms)
    ):
        reason = "already expired"
    elif differing == ["coordinator_epoch"] and theirs.coordinator_epoch < 0:
        reason = "the broker forgot the coordinator when the producer expired in between"
    elif not exact and set(differing) <= {"producer_epoch", "last_timestamp_ms", "coordinator_epoch"}:
        reason = "markers were removed by compaction"
    return Difference(theirs.producer_id, what, reason)


def is_expired(entry: ProducerEntry, now_ms: int, expiration_ms: int) -> bool:
    """Source: ProducerStateManager.isProducerExpired."""
    return entry.current_txn_first_offset is None and now_ms - entry.last_timestamp_ms >= expiration_ms
