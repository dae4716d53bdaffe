"""Which archived segments of a partition may be compacted now, and what must be looked at for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from socket import gethostname

import structlog

from producer_state.snapshot import Rows
from sidecar import __version__
from sidecar.archive.commit import Writer
from sidecar.archive.newest_strategy import newest_strategy
from sidecar.archive.state import PartitionState
from sidecar.clock import Clock
from sidecar.commits.commit_log import CommitLog
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction_strategy import StrategyInUse
from sidecar.compactor.archive.archived_log import ArchivedLog
from sidecar.compactor.archive.bundle import table_at_end
from sidecar.compactor.archive.first_look import LookTask
from sidecar.compactor.archive.request import CompactionRequest
from sidecar.errors import Fenced, PartitionError
from sidecar.model import ArchivedSegment
from sidecar.ports import ObjectStore
from sidecar.store_settings import StoreSettings

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """The first `count` live segments are compacted; `beyond` so many are looked at for the transactions that end there.

    `last_batches`: of the producers known at the end of the range. `strategy_before`: of the newest compaction, if it was another
    one than that of the request.
    """

    state: PartitionState
    writer: Writer
    count: int
    beyond: int
    last_batches: LastBatches
    strategy_before: StrategyInUse | None = None

    @property
    def segments(self) -> tuple[ArchivedSegment, ...]:
        """To be compacted."""
        return self.state.segments[: self.count]

    def look_tasks(self, job: int, store: StoreSettings, split_bytes: int) -> Iterator[LookTask]:
        """One for each segment of the range, and beyond it."""
        state = self.state
        before: ArchivedSegment | None = None
        for number, segment in enumerate(state.segments[: self.count + self.beyond]):
            known = before if before is not None and before.end_offset == segment.base_offset else None
            log = ArchivedLog(store, state.lineage.root, segment)
            yield LookTask(job, number, log, known, split_bytes)
            before = segment


def plan_archive(store: ObjectStore, request: CompactionRequest, clock: Clock) -> ArchivePlan:
    """Read the commits, and the producer states that decide. Raises Fenced, CorruptFile, StoreError."""
    state = CommitLog(store, request.root, clock, known=request.newest_commit).read()
    writer = request.writer or operator(state)
    if writer.leader_epoch < state.highest_leader_epoch:
        raise Fenced(
            f"{state.lineage.root}: leader epoch {state.highest_leader_epoch} has committed, this writer has "
            f"{writer.leader_epoch}: another broker leads {state.lineage.topic_partition} now; nothing was compacted"
        )
    newest = newest_strategy(state)
    if not request.may_change_strategy and newest not in (None, request.rules.in_use):
        raise PartitionError(
            f"{state.lineage.root}: its newest compaction was by strategy {newest}, this one would be by {request.rules.in_use}; "
            f"nothing was compacted, because neither the settings nor the topic's config give the strategy. Set it in the topic's "
            f"entry of compaction.topics, or compact by hand with --override"
        )
    undecided = _first_undecided(store, state)
    limit = min(offset for offset in (request.end_offset, undecided, 2**63 - 1) if offset is not None)
    count = sum(segment.end_offset <= limit for segment in state.segments)
    if not count:
        return ArchivePlan(state, writer, 0, 0, LastBatches())
    table = table_at_end(store, state.lineage.root, state.segments[count - 1])
    pending = _open(table.rows)
    beyond = 0
    for segment in state.segments[count:]:
        if not pending:
            break
        beyond += 1
        pending &= _open(table_at_end(store, state.lineage.root, segment).rows)
    before = newest if newest != request.rules.in_use else None
    if before is not None:
        _log.warning(
            "compaction_changes_strategy",
            partition=str(state.lineage.topic_partition),
            old=str(before),
            new=str(request.rules.in_use),
            first_dirty_offset=state.clean_end_offset,
        )
    return ArchivePlan(state, writer, count, beyond, LastBatches.of(table), before)


def operator(state: PartitionState) -> Writer:
    """Who compacts or clears up by hand: in the name of the last leader, so that a commit of a later one fences it."""
    return Writer(-1, state.highest_leader_epoch, f"{gethostname()}:{os.getpid()}", f"tiered-sidecar {__version__}")


def _first_undecided(store: ObjectStore, state: PartitionState) -> int | None:
    """First offset of the earliest transaction of which it is not archived how it ended; its data may yet be aborted.

    It is open at the archive's end; or at the beginning of a hole, in which its end may be lost.
    """
    root = state.lineage.root
    ends = [before for before, after in pairwise(state.segments) if before.end_offset != after.base_offset]
    offsets = [
        table_at_end(store, root, segment).first_open_transaction_offset() for segment in (*ends, *state.segments[-1:])
    ]
    return min((offset for offset in offsets if offset is not None), default=None)


def _open(rows: Rows) -> set[tuple[int, int]]:
    """Producer and first offset of each open transaction."""
    table = rows[rows["current_txn_first_offset"] >= 0]
    return set(zip(table["producer_id"].tolist(), table["current_txn_first_offset"].tolist(), strict=True))
