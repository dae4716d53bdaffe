"""Is what was fetched the segment that was committed?"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from producer_state.snapshot import read_snapshot
from producer_state.wire import ProducerStateError
from sidecar.archive.bundle import INDEXES_BYTES_MAX, cut_parts, indexes_size_bytes
from sidecar.archive.keys import below
from sidecar.errors import CorruptFile, ObjectDamaged, ObjectMissing
from sidecar.logformat import offset_index, time_index, transaction_index
from sidecar.logformat.batches import BatchColumns, SegmentScanner
from sidecar.logformat.leader_epochs import read_leader_epochs
from sidecar.model import ArchivedSegment, PartName
from sidecar.pipeline.snapshots.gaps import rows_with_gaps
from sidecar.ports import ObjectStore


class BatchCheck:
    """A fold over a segment's batches, in file order. `has_gaps`: offsets are missing, as compaction leaves it."""

    def __init__(self, segment: ArchivedSegment, key: str) -> None:
        self._segment = segment
        self._key = key
        self._first_crc: int | None = None
        self._last_crc: int | None = None
        self._last_offset = segment.base_offset - 1
        self._highest_epoch = -1
        self.has_gaps = False

    def add(self, columns: BatchColumns) -> None:
        """Take the next batches."""
        self._first_crc = int(columns.crc[0]) if self._first_crc is None else self._first_crc
        self.has_gaps |= len(rows_with_gaps(columns, self._last_offset + 1)) > 0
        self._last_crc, self._last_offset = int(columns.crc[-1]), int(columns.last_offset[-1])
        self._highest_epoch = max(self._highest_epoch, int(columns.leader_epoch.max()))

    def finish(self, scanner: SegmentScanner) -> None:
        """Raise CorruptFile unless these were the batches that were committed."""
        scanner.require_exact()
        segment = self._segment
        self.has_gaps |= self._last_offset + 1 < segment.end_offset
        found = (scanner.batch_count, self._highest_epoch, self._first_crc, self._last_crc)
        expected = (
            segment.batch_count,
            segment.highest_batch_leader_epoch,
            self._first_crc if segment.first_batch_crc is None else segment.first_batch_crc,
            self._last_crc if segment.last_batch_crc is None else segment.last_batch_crc,
        )
        if found != expected or self._last_offset >= segment.end_offset:
            raise CorruptFile(
                f"its batches end at offset {self._last_offset}, and their number, highest leader epoch, first and last "
                f"checksum are {found}; committed were an end below {segment.end_offset} and {expected}",
                file=self._key,
            )


def fetch_parts(store: ObjectStore, root: str, segment: ArchivedSegment) -> Mapping[PartName, bytes]:
    """The small parts of a segment, each checked against its commit and by what a broker demands of it.

    Raises CorruptFile, StoreError.
    """
    key = below(root, segment.indexes_key)
    size_bytes = indexes_size_bytes(segment)
    if size_bytes > INDEXES_BYTES_MAX:
        raise CorruptFile(f"{size_bytes} bytes by its commit; no writer of ours exceeds {INDEXES_BYTES_MAX}", file=key)
    try:
        data = store.read(key, 0, size_bytes + 1)
    except ObjectMissing as error:
        raise CorruptFile("committed, but not in the store", file=key) from error
    except ObjectDamaged as error:
        raise CorruptFile(str(error), file=key) from error
    if len(data) != size_bytes:
        found = "more" if len(data) > size_bytes else str(len(data))
        raise CorruptFile(
            f"has {found} bytes, committed were {size_bytes}", file=key, position=min(len(data), size_bytes)
        )
    parts = cut_parts(data, segment, key)
    _require_readable(parts, segment.base_offset, key)
    return parts


def _require_readable(parts: Mapping[PartName, bytes], base_offset: int, key: str) -> None:
    readers: dict[PartName, Callable[[bytes], object]] = {
        PartName.OFFSET_INDEX: lambda data: offset_index.check_as_broker(data, base_offset),
        PartName.TIME_INDEX: lambda data: time_index.check_as_broker(data, base_offset),
        PartName.TRANSACTION_INDEX: lambda data: transaction_index.check_as_broker(data, base_offset),
        PartName.PRODUCER_SNAPSHOT: read_snapshot,
        PartName.LEADER_EPOCHS: read_leader_epochs,
    }
    for name, read in readers.items():
        if name not in parts:
            if name is PartName.TRANSACTION_INDEX:
                continue
            raise CorruptFile(f"the commit names no part {name}", file=key)
        try:
            read(parts[name])
        except (CorruptFile, ProducerStateError) as error:
            raise CorruptFile(f"part {name}: {error}", file=key) from error
