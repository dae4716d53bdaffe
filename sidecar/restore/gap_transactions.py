"""Producers and transactions where offsets inside of what is restored are lost.

A transaction that was open below may have ended there, its marker lost with it. It is taken for ended by an abort, unless
something above shows that it went on: aborted records must never be read as committed, whatever that hides.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from producer_state.snapshot import ProducerEntry
from producer_state.table import ProducerTable
from sidecar.errors import PartitionError
from sidecar.logformat.indexes.transaction_index import read_transaction_index
from sidecar.model import PartName, TopicPartition
from sidecar.plurals import plural
from sidecar.ports import ObjectStore
from sidecar.restore.plan import PartitionPlan
from sidecar.segment.archived_objects import table_at_end
from sidecar.segment.dropped_producers import begins_anew


@dataclass(frozen=True, slots=True)
class UnsettledTransaction:
    """One that was open where offsets are lost, and nothing archived shows how it ended. `marker_offset`: of its abort marker.

    Names are those of the JSON form.
    """

    producer_id: int
    first_offset: int
    marker_offset: int


def ended_in_hole(
    below: ProducerTable, snapshot_above: bytes, transaction_indexes_above: Iterable[bytes]
) -> tuple[ProducerEntry, ...]:
    """Producers with a transaction open at a gap's beginning that may have ended in it, in the order in which their
    markers are due.

    An index above that has one ends it itself. A marker in the gap would end it twice, and what its producer wrote between the
    two would be read as committed. It is the same one wherever it is said to have begun below the gap, for a producer has one
    at a time. Replay from a log's start inside of it gives a later beginning than the broker knew.

    A marker is due before its producer's next transaction, which may have begun in the gap, too. A cleaner goes by the indexes
    of all segments in one pass: a marker above that beginning would end both, and keep what was aborted of the second. So the
    markers fit at the gap's beginning in this order, because each real one was there below what it was due for.
    Source: CleanedTransactionMetadata.onControlBatchRead.

    Args:
        snapshot_above: the state at the end of the segment behind the gap.
        transaction_indexes_above: of that segment, and of those that follow; read only where they are needed.
    """
    waiting = {entry.producer_id: entry for entry in below.in_transaction().entries()}
    if not waiting:
        return ()
    due: dict[int, int] = {}
    for producer_id, first_offset in _begun(snapshot_above, transaction_indexes_above):
        if first_offset >= below.end_offset:
            due[producer_id] = min(first_offset, due.get(producer_id, first_offset))
        elif waiting.pop(producer_id, None) is not None and not waiting:
            return ()

    def order(entry: ProducerEntry) -> tuple[int, int]:
        return due.get(entry.producer_id, sys.maxsize), entry.current_txn_first_offset or 0

    return tuple(sorted(waiting.values(), key=order))


def require_room(topic_partition: TopicPartition, marker_count: int, base_offset: int, end_offset: int) -> None:
    """Raise PartitionError if so many markers do not fit into the lost offsets [base_offset, end_offset)."""
    if marker_count > end_offset - base_offset:
        raise PartitionError(
            f"{topic_partition}: {plural(marker_count, 'transaction is', 'transactions are')} open at offset "
            f"{base_offset}, and the archive does "
            f"not show the outcome. Abort markers for all do not fit into the lost offsets [{base_offset}, "
            f"{end_offset}), and without markers aborted records may become visible. Restore one side of the lost "
            f"offsets: --offset-range {end_offset}: or :{base_offset}"
        )


def _begun(snapshot: bytes, transaction_indexes: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Producers and first offsets of transactions, of those that are open in a snapshot, and of those in indexes."""
    yield from ProducerTable.from_snapshot(0, snapshot).open_transactions().items()
    for content in transaction_indexes:
        index = read_transaction_index(content)
        yield from zip(index.producer_id.tolist(), index.first_offset.tolist(), strict=True)


def state_at_last_base(store: ObjectStore, partition: PartitionPlan, parts: Mapping[PartName, bytes]) -> ProducerTable:
    """The producers at the last segment's base: those at the end of the one below, carried over what is lost in between.

    Args:
        parts: the last segment's, all of them.

    Raises CorruptFile, StoreError.
    """
    last, before = partition.segments[-1].segment, partition.before
    base_offset = last.base_offset
    if before is None:
        return ProducerTable.blank(base_offset)
    table = table_at_end(store, partition.state.lineage.root, before)
    if table.end_offset == base_offset:
        return table.in_transaction() if begins_anew(before, last) else table
    indexes = [parts[PartName.TRANSACTION_INDEX]] if PartName.TRANSACTION_INDEX in parts else []
    ended = ended_in_hole(table, parts[PartName.PRODUCER_SNAPSHOT], indexes)
    return replace(table.without_transactions(entry.producer_id for entry in ended), end_offset=base_offset)
