"""Lost offsets that are fewer than the markers that they need: told before hours of fetching."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from producer_state.table import ProducerTable
from sidecar.errors import PartitionError
from sidecar.model import ArchivedSegment, PartName
from sidecar.pipeline.restore.histories import READERS
from sidecar.pipeline.restore.outcome import PartitionOutcome
from sidecar.pipeline.restore.over_holes import ended_in_hole, require_room
from sidecar.pipeline.restore.plan import PartitionPlan
from sidecar.pipeline.restore.segment_check import fetch_parts
from sidecar.ports import ObjectStore


def tell_narrow_holes(store: ObjectStore, outcomes: Sequence[PartitionOutcome]) -> None:
    """Note the problem of each partition that has such a hole in what is to be restored. Raises StoreError."""
    asked = [outcome for outcome in outcomes if not outcome.is_done]
    with ThreadPoolExecutor(READERS, thread_name_prefix="restore-holes") as pool:
        problems = list(pool.map(lambda outcome: _problem(store, outcome.plan), asked))
    for outcome, problem in zip(asked, problems, strict=True):
        outcome.problem = outcome.problem or problem


def _problem(store: ObjectStore, plan: PartitionPlan) -> str:
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
