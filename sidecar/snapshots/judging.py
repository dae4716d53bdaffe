"""Holds a snapshot that a broker left against the state that replay gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from producer_state.compare import Comparison, Conformance, compare_snapshots
from producer_state.snapshot import CorruptSnapshot, read_snapshot
from producer_state.table import Expiration, ProducerTable
from sidecar.snapshots.jobs import Forgetting, StateAt
from sidecar.snapshots.planning import PartitionLog


@dataclass(frozen=True, slots=True)
class Verdict:
    """`problem`: why the file is no snapshot, "" if it is one; then `comparison` says the rest. `entry_count`: its producers.

    `older_transactions`: producers with a transaction open that began below where the replay did, and its first offset; the state
    lacks them.
    """

    comparison: Comparison | None
    entry_count: int = 0
    problem: str = ""
    older_transactions: Mapping[int, int] = field(default_factory=dict)

    @property
    def is_wrong(self) -> bool:
        """Whether a broker that loads it does not know what the log says."""
        return self.comparison is None or self.comparison.conformance is Conformance.WRONG

    def describe(self) -> str:
        """For people."""
        return self.problem if self.comparison is None else self.comparison.describe()


def judge(log: PartitionLog, state: StateAt, forgetting: Forgetting) -> Verdict:
    """Compare the snapshot at the state's offset with the state.

    A broker leaves out who is expired by its clock when it writes. That is not later than any loader's clock, so the
    snapshot's time is taken for it; where that was lost (an older one), the newest timestamp in the log is.

    Raises the errors of `PartitionLog.snapshot`.
    """
    data, stored_ms = log.snapshot(state.table.end_offset)
    try:
        theirs = read_snapshot(data)
    except CorruptSnapshot as error:
        return Verdict(None, problem=f"{error}; brokers skip such a file and load an older one")
    written_ms = max(state.log_time_ms, stored_ms) if forgetting.as_of_ms is None else forgetting.as_of_ms
    start = state.start
    start_offset = 0 if start is None or start.has_snapshot else start.offset
    comparison = compare_snapshots(
        theirs,
        state.table.unexpired(Expiration(0, None)).entries(),
        now_ms=min(written_ms, forgetting.now_ms),
        expiration_ms=forgetting.producer_id_expiration_ms,
        exact=not state.cleaned,
        log_start_offset=start_offset,
        deleted_below=log.log_start_offset,
    )
    older = {
        entry.producer_id: entry.current_txn_first_offset
        for entry in theirs
        if entry.current_txn_first_offset is not None and entry.current_txn_first_offset < start_offset
    }
    return Verdict(comparison, len(theirs), older_transactions=lacking(state.table, older, log.first_offset))


def lacking(table: ProducerTable, open_since: Mapping[int, int], log_start: int) -> dict[int, int]:
    """The transactions that a snapshot proves to have begun below the replay, that no marker has ended, and that a state lacks.

    It lacks none of which it has all that is left in the log: then no record of it is given out as committed.

    Args:
        open_since: producers, and the first offsets of their transactions.
    """
    found: dict[int, int] = {}
    for producer_id, first_offset in open_since.items():
        entry = table.get(producer_id)
        ours = None if entry is None else entry.current_txn_first_offset
        is_ended = ours is None and entry is not None and entry.coordinator_epoch >= 0
        is_known = ours is not None and (ours <= first_offset or first_offset < log_start)
        if not is_ended and not is_known:
            found[producer_id] = first_offset
    return found


def unexpired_now(state: StateAt, forgetting: Forgetting) -> ProducerTable:
    """Whom a broker that starts now would know from a complete snapshot; fewer rather than more."""
    return state.table.unexpired(forgetting.expiration_now)
