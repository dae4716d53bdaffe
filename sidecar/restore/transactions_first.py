"""Checks before anything is fetched: transactions open at the archive's end, and lost offsets too few for their markers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from producer_state.table import ProducerTable
from sidecar.errors import PartitionError, SettingsError
from sidecar.model import ArchivedSegment, PartName
from sidecar.ports import ObjectStore
from sidecar.restore.gaps.gap_transactions import ended_in_hole, require_room
from sidecar.restore.histories import READERS
from sidecar.restore.outcome import PartitionOutcome
from sidecar.restore.plan import PartitionPlan
from sidecar.restore.request import OpenTransactionMode, ProducerStateMode, RestoreRequest
from sidecar.restore.segments.segment_check import fetch_parts

_NAMED_MAX = 5


def refuse_open_transactions(store: ObjectStore, request: RestoreRequest, outcomes: Sequence[PartitionOutcome]) -> None:
    """Raise SettingsError if transactions are open at an archived end that is restored without producer state.

    Where a log ends inside a segment only that segment's batches tell, when it is fetched. Raises StoreError.
    """
    if request.open_transactions is OpenTransactionMode.ABORT:
        return
    asked = [found for found in outcomes if _drops_producers(found) and not found.plan.segments[-1].is_cut_at_end]
    with ThreadPoolExecutor(READERS, thread_name_prefix="restore-end") as pool:
        counts = list(pool.map(lambda outcome: _open_count(store, outcome), asked))
    found = [f"{outcome.plan.topic_partition}: {count}" for outcome, count in zip(asked, counts, strict=True) if count]
    if not found:
        return
    more = f" and {len(found) - _NAMED_MAX} more partitions" if len(found) > _NAMED_MAX else ""
    raise SettingsError(
        f"transactions are open at the archive's end ({', '.join(found[:_NAMED_MAX])}{more}), and without producer state "
        f"(--producer-state drop) a broker would show their records to read_committed readers. Nothing was fetched; give "
        f"--open-transactions abort"
    )


def _drops_producers(outcome: PartitionOutcome) -> bool:
    decisions = outcome.decisions
    return not outcome.is_done and decisions is not None and decisions.producer_state is ProducerStateMode.DROP


def _open_count(store: ObjectStore, outcome: PartitionOutcome) -> int:
    plan = outcome.plan
    segment = plan.segments[-1].segment
    try:
        snapshot = fetch_parts(store, plan.state.lineage.root, segment)[PartName.PRODUCER_SNAPSHOT]
    except PartitionError:
        return 0  # Told when it is fetched.
    table = ProducerTable.from_snapshot(segment.end_offset, snapshot)
    return sum(entry.current_txn_first_offset is not None for entry in table.entries())


def tell_narrow_holes(store: ObjectStore, outcomes: Sequence[PartitionOutcome]) -> None:
    """Note the problem of each partition with lost offsets that are fewer than the markers that they need. Raises StoreError."""
    asked = [outcome for outcome in outcomes if not outcome.is_done]
    with ThreadPoolExecutor(READERS, thread_name_prefix="restore-holes") as pool:
        problems = list(pool.map(lambda outcome: _room_problem(store, outcome.plan), asked))
    for outcome, problem in zip(asked, problems, strict=True):
        outcome.problem = outcome.problem or problem


def _room_problem(store: ObjectStore, plan: PartitionPlan) -> str:
    segments = [found.segment for found in plan.segments]
    for number, (lower, upper) in enumerate(pairwise(segments)):
        if lower.end_offset == upper.base_offset:
            continue
        try:
            count = _marker_count(store, plan, lower, segments[number + 1 :])
        except PartitionError:
            return ""  # An object that is damaged is told when it is fetched.
        try:
            require_room(plan.topic_partition, count, lower.end_offset, upper.base_offset)
        except PartitionError as error:
            return str(error)
    return ""


def _marker_count(
    store: ObjectStore, plan: PartitionPlan, lower: ArchivedSegment, above: Sequence[ArchivedSegment]
) -> int:
    """How many a hole needs, at most; what lies above it is only read where they might not fit."""
    root = plan.state.lineage.root
    known = ProducerTable.from_snapshot(lower.end_offset, fetch_parts(store, root, lower)[PartName.PRODUCER_SNAPSHOT])
    open_count = len(known.in_transaction())
    if open_count <= above[0].base_offset - lower.end_offset:
        return open_count
    snapshot = fetch_parts(store, root, above[0])[PartName.PRODUCER_SNAPSHOT]
    return len(ended_in_hole(known, snapshot, _indexes(store, root, above)))


def _indexes(store: ObjectStore, root: str, above: Sequence[ArchivedSegment]) -> Iterator[bytes]:
    for segment in above:
        parts = fetch_parts(store, root, segment)
        if PartName.TRANSACTION_INDEX in parts:
            yield parts[PartName.TRANSACTION_INDEX]
