"""Is what was fetched the segment that was committed?"""

from __future__ import annotations

from collections.abc import Mapping

from producer_state.table import ProducerTable
from sidecar.archive.keys import below
from sidecar.errors import CorruptFile, ObjectDamaged
from sidecar.logformat.batches import BatchColumns, SegmentScanner
from sidecar.model import ArchivedSegment, PartName
from sidecar.ports import ObjectStore
from sidecar.segment.archived_objects import read_parts
from sidecar.segment.log_check import ExpectedLog, LogCheck, unreadable_parts
from sidecar.snapshots.gaps import rows_with_gaps


class BatchCheck:
    """A fold over a segment's batches, in file order. `has_gaps`: offsets are missing, as compaction leaves it."""

    def __init__(self, segment: ArchivedSegment, key: str) -> None:
        self._segment = segment
        self._check = LogCheck(ExpectedLog.of_commit(segment), key)
        self.has_gaps = False

    def add(self, columns: BatchColumns) -> None:
        self.has_gaps |= len(rows_with_gaps(columns, self._check.last_offset + 1)) > 0
        self._check.add(columns)

    def finish(self, scanner: SegmentScanner) -> None:
        """Raise CorruptFile unless these were the batches that were committed."""
        self.has_gaps |= self._check.last_offset + 1 < self._segment.end_offset
        self._check.finish(scanner)


def fetch_parts(store: ObjectStore, root: str, segment: ArchivedSegment) -> Mapping[PartName, bytes]:
    """The small parts of a segment, each checked against its commit and by what a broker demands of it.

    Raises CorruptFile, StoreError.
    """
    key = below(root, segment.indexes_key)
    try:
        parts = read_parts(store, root, segment)
    except ObjectDamaged as error:
        raise CorruptFile(str(error), file=key) from error
    for name, problem in unreadable_parts(parts, segment.base_offset):
        raise CorruptFile(f"part {name}: {problem}", file=key) from problem
    return parts


def archived_state(store: ObjectStore, root: str, segment: ArchivedSegment) -> ProducerTable:
    """The producers at a segment's end, as they were archived. Raises CorruptFile, StoreError."""
    content = fetch_parts(store, root, segment)[PartName.PRODUCER_SNAPSHOT]
    return ProducerTable.from_snapshot(segment.end_offset, content)
