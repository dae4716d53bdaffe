"""Transactions that are open at the archive's end: refused before anything is fetched where they must be ended, and are not."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from producer_state.table import ProducerTable
from sidecar.errors import PartitionError, SettingsError
from sidecar.model import PartName
from sidecar.pipeline.restore.histories import READERS
from sidecar.pipeline.restore.outcome import PartitionOutcome
from sidecar.pipeline.restore.request import OpenTransactionMode, ProducerStateMode, RestoreRequest
from sidecar.pipeline.restore.segment_check import fetch_parts
from sidecar.ports import ObjectStore

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
