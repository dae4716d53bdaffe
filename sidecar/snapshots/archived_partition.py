"""A partition in an archive: its segments are read out of the store, wherever a task runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Self

from producer_state.table import ProducerTable
from producer_state.window import Segment
from sidecar.archive.bundle import log_size_bytes
from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.host import process_store
from sidecar.logformat.window import ReadAt
from sidecar.model import ArchivedSegment, ObjectKey, PartName, TopicPartition
from sidecar.segment.archived_objects import read_part, reader
from sidecar.segment.dropped_producers import begins_anew, leaves_all_out
from sidecar.snapshots.tasks import SegmentTask
from sidecar.store_settings import StoreSettings

if TYPE_CHECKING:
    from sidecar.logformat.batches import SegmentScanner


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """A `.log` object."""

    store: StoreSettings
    name: ObjectKey
    size_bytes: int

    remedy: ClassVar = "restore the object from a replica of the bucket or an earlier version"
    """See `LocalSegment`."""

    def opened(self) -> AbstractContextManager[ReadAt]:
        """See `LocalSegment`. Reading raises StoreError."""
        return nullcontext(reader(process_store.store_of(self.store), self.name, self.size_bytes))


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """A range of live segments without a gap in it, as a `PartitionLog`: what its attributes mean, see `DiskPartition`."""

    settings: StoreSettings
    root: str
    topic_partition: TopicPartition
    segments: tuple[ArchivedSegment, ...]
    by_end: dict[int, ArchivedSegment] = field(default_factory=dict)
    searched: dict[tuple[int, int], int] = field(default_factory=dict, compare=False)
    """Below which offset no batch is left of a transaction, by its producer and first offset."""

    compacted: ClassVar = True
    """The commits tell of every segment, so that none can be missing unnoticed."""
    strays: ClassVar[frozenset[int]] = frozenset()
    keeps_undecided: ClassVar = True
    """Compaction goes by them."""

    @classmethod
    def stretches(cls, settings: StoreSettings, state: PartitionState) -> list[Self]:
        """The ranges of a lineage; recorded gaps are between them."""
        found: list[list[ArchivedSegment]] = [[*state.segments[:1]]] if state.segments else []
        for before, after in pairwise(state.segments):
            if before.end_offset != after.base_offset:
                found.append([])
            found[-1].append(after)
        lineage = state.lineage
        return [
            cls(settings, lineage.root, lineage.topic_partition, tuple(run), {each.end_offset: each for each in run})
            for run in found
        ]

    @property
    def place(self) -> str:
        return self.root

    @property
    def first_offset(self) -> int:
        return self.segments[0].base_offset

    log_start_offset = first_offset
    """An archive keeps no other."""

    @property
    def bases(self) -> tuple[int, ...]:
        return tuple(self.by_end)

    snapshot_offsets = bases

    @property
    def dropped_below(self) -> int:
        """Such a snapshot begins at its own offset."""
        return max((end for end, segment in self.by_end.items() if leaves_all_out(segment)), default=0)

    @property
    def begins_anew(self) -> frozenset[int]:
        """An archive that goes on with a log that was restored from it without producers has them below."""
        return frozenset(upper.base_offset for lower, upper in pairwise(self.segments) if begins_anew(lower, upper))

    def snapshot(self, offset: int) -> tuple[bytes, int]:
        """The time is that of the upload. Raises StoreError besides."""
        segment = self.by_end[offset]
        key = below(self.root, segment.indexes_key)
        store = process_store.store_of(self.settings)
        snapshot, facts = read_part(store, self.root, segment, PartName.PRODUCER_SNAPSHOT), store.head(key)
        # Without a time of the store the log's own decides: it is a lower bound.
        return snapshot, (facts and facts.modified_ms) or 0

    def without_decided(self, table: ProducerTable) -> ProducerTable:
        """See `DiskPartition`: compaction stops below transactions whose end is not archived. Raises StoreError, CorruptFile."""
        from sidecar.segment.transaction_batches import batches_in  # loads numba

        # Of what began in the last segment, the replay has just seen a batch; what began below the first may have some there.
        begun = table.open_transactions(self.by_end[table.end_offset].base_offset)
        begun = {number: offset for number, offset in begun.items() if offset >= self.first_offset}
        scans = ((each.base_offset, each.end_offset, partial(self._scanner, each)) for each in self.segments)
        # Each state that is rebuilt above names it again: what was read for one below is not read again.
        unread = {number: max(offset, self.searched.get((number, offset), 0)) for number, offset in begun.items()}
        emptied = begun.keys() - batches_in(scans, unread, table.end_offset)
        self.searched.update({(number, begun[number]): table.end_offset for number in emptied})
        return table.without_transactions(emptied)

    def _scanner(self, segment: ArchivedSegment) -> SegmentScanner:
        from sidecar.logformat.batches import SegmentScanner  # loads numba

        name, size_bytes = below(self.root, segment.log_key), log_size_bytes(segment)
        read_at = reader(process_store.store_of(self.settings), name, size_bytes)
        return SegmentScanner(read_at, size_bytes, base_offset=segment.base_offset, file=name)

    def recorded_exact(self, offset: int) -> bool:
        """The commits record it."""
        return self.by_end[offset].snapshot.exact

    def spans(self) -> Sequence[Segment]:
        """The commits name the newest timestamps."""
        return [Segment(each.base_offset, each.max_timestamp_ms) for each in self.segments]

    def tasks(self, last_offset: int, cuts: Sequence[int]) -> tuple[SegmentTask, ...]:
        return tuple(
            SegmentTask(
                ArchivedLog(self.settings, below(self.root, segment.log_key), log_size_bytes(segment)),
                segment.base_offset,
                segment.end_offset,
            )
            for segment in self.segments
            if segment.base_offset < last_offset
        )
