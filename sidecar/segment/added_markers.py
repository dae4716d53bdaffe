"""Abort markers in the place of markers that the broker's cleaner took before they were archived.

The archive has a segment with an open transaction. Then the cleaner takes what is left of the transaction in the broker's log, and,
`delete.retention.ms` later, its marker. Its producer's next commit would show the archived records, though they may have been
aborted. So a segment is archived with an abort marker. The producer's next batch in the log decides:

- An abort marker hides the same records. A commit marker that the data behind it proves to be the transaction's own is right.
- Any other commit marker, and one that the cleaner has emptied, becomes an abort marker at its own offset.
- Before data, the marker goes to a free offset. Where no offset is free, no marker is lost.

To hide the records is right: they are aborted, or later ones supersede them. Those that retention or DeleteRecords took may be
committed and the newest ones: they are hidden only if an offset is free in front of the next batch. Decision 17 says why, and
where the limits are.

Source: CleanedTransactionMetadata.onControlBatchRead, Cleaner.cleanInto, TransactionMetadata.prepareAbortOrCommit.
"""

import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from producer_state.facts import CONTROL, MARKER_ABORT, NO_MARKER
from producer_state.snapshot import ProducerEntry
from producer_state.table import ProducerTable
from sidecar.archive.state import PartitionState
from sidecar.errors import PartitionError, SegmentChanged
from sidecar.host.listed_files import ListedFile
from sidecar.logformat.batches import HEADERS_WINDOW_BYTES, BatchColumns, SegmentScanner, scan_file
from sidecar.logformat.bodies.building import build_marker
from sidecar.logformat.headers import NO_LEADER_EPOCH
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import PartitionFiles, SegmentFiles
from sidecar.ports import UploadSource
from sidecar.segment.open_transactions import logs_behind
from sidecar.segment.transaction_batches import batches_left


@dataclass(frozen=True, slots=True)
class Place:
    """Where a marker may go. `position`: of the bytes of the segment before which it goes.

    `leader_epoch`: of the batch before it, or, at the segment's base, of the one behind it. `replaced_bytes`: size of the control
    batch there whose place it takes, 0 for none. `newest`: producer epoch, coordinator epoch and timestamp of that batch.
    """

    offset: int
    position: int
    leader_epoch: int
    replaced_bytes: int = 0
    newest: tuple[int, ...] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class AddedMarker:
    """An abort marker of ours in the archived segment. `may_be_committed`: see the module."""

    producer_id: int
    first_offset: int
    place: Place
    batch: bytes
    may_be_committed: bool


def markers_may_be_gone(at_base: ProducerTable, archived: PartitionState, written_by_ms: int) -> ProducerTable:
    """Those of the producers in a transaction whose marker may have been written by a time.

    It was written after the archived file with the transaction's first batch. (Later files need not show it: a replica may have
    fetched them again, already cleaned.) Where the time of that file is not known, the marker may be of any age.
    """
    young: list[int] = []
    for producer_id, first_offset in at_base.open_transactions().items():
        number = bisect_right(archived.segments, first_offset, key=lambda segment: segment.end_offset)
        # The first batch may be in a segment that is not committed yet, in one below the known ones, or in a gap.
        segment = archived.segments[min(number, len(archived.segments) - 1)]
        mtime_ns = segment.source_mtime_ns if segment.base_offset <= first_offset else None
        if mtime_ns is not None and mtime_ns > written_by_ms * 1_000_000:
            young.append(producer_id)
    return at_base.without_transactions(young)


def added_markers(
    files: PartitionFiles,
    segment: SegmentFiles,
    descriptor: int,
    at_base: ProducerTable,
    checkpoint: LeaderEpochs | None,
) -> tuple[AddedMarker, ...]:
    """The markers that a cleaned segment lacks, ascending by offset. `at_base`: see `markers_may_be_gone`.

    Raises PartitionError where not all markers fit, SegmentChanged.
    """
    entries = {entry.producer_id: entry for entry in at_base.in_transaction().entries()}
    first_offsets = at_base.open_transactions()
    for producer_id in batches_left(files, first_offsets, segment.base_offset):
        del entries[producer_id]
    if not entries:
        return ()
    start_offset = segment.base_offset if files.first_offset is None else files.first_offset
    unknown = {number for number in entries if first_offsets[number] < start_offset}
    found = _Search(segment, entries)
    found.read(descriptor, files)
    added: list[AddedMarker] = []
    for producer_id, place in found.places(unknown):
        entry, known_epoch = entries[producer_id], checkpoint.epoch_for_offset(place.offset) if checkpoint else None
        archived = entry.producer_epoch, entry.coordinator_epoch, entry.last_timestamp_ms
        producer_epoch, coordinator_epoch, timestamp_ms = map(max, archived, place.newest)
        batch = build_marker(
            place.offset,
            commit=False,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=timestamp_ms,
            leader_epoch=place.leader_epoch if known_epoch is None else known_epoch,
        )
        added.append(AddedMarker(producer_id, first_offsets[producer_id], place, batch, producer_id in unknown))
    return tuple(sorted(added, key=lambda marker: marker.place.offset))


def _is_own(entry: ProducerEntry, marker: BatchColumns, data: BatchColumns) -> bool:
    """Whether a marker ends the transaction, as the batch behind it shows. Source: DefaultRecordBatch.incrementSequence."""
    epoch, sequence = entry.producer_epoch, (entry.last_sequence + 1) & 0x7FFFFFFF
    found = int(marker.producer_epoch[0]), int(data.producer_epoch[0]), int(data.base_sequence[0])
    return found in ((epoch, epoch, sequence), (epoch + 1, epoch + 1, 0))


class _Search:
    """The next batches of producers, and the free offsets of a segment, as many as are needed."""

    def __init__(self, segment: SegmentFiles, entries: Mapping[int, ProducerEntry]) -> None:
        self._segment, self._entries = segment, entries
        self._next: dict[int, BatchColumns] = {}
        self._undecided, self._own_marker = set(entries), set[int]()
        self._free: list[Place] = []

    def read(self, descriptor: int, files: PartitionFiles) -> None:
        """Read the segment, and the log behind it as far as it decides something."""
        segment, end, epoch = self._segment, self._segment.base_offset, NO_LEADER_EPOCH
        scanner = SegmentScanner(
            ListedFile(descriptor, segment.log, segment.start_position),
            segment.size_bytes,
            base_offset=end,
            file=segment.log_name,
            check_crc=False,
        )
        for columns in scanner:
            ends, epochs = np.append(end, columns.last_offset + 1), np.append(epoch, columns.leader_epoch)
            for row in np.flatnonzero((columns.magic == 2) & (columns.base_offset != ends[:-1])).tolist():
                near = int(epochs[row + 1] if epochs[row] == NO_LEADER_EPOCH else epochs[row])
                self._take(int(ends[row]), int(columns.base_offset[row]), int(columns.position[row]), near)
            self._add(columns)
            end, epoch = int(ends[-1]), int(epochs[-1])
        self._take(end, segment.end_offset, segment.size_bytes, epoch)
        for base_offset, log in logs_behind(files, segment.end_offset):
            if not self._undecided:
                break
            try:
                window_bytes = HEADERS_WINDOW_BYTES
                for columns in scan_file(log.path, base_offset=base_offset, check_crc=False, window_bytes=window_bytes):
                    self._add(columns)
            except SegmentChanged:  # Retention may have taken it, while it is pinned.
                break

    def _take(self, from_offset: int, to_offset: int, position: int, leader_epoch: int) -> None:
        missing = len(self._entries) - len(self._free)
        offsets = range(from_offset, min(to_offset, from_offset + missing))
        self._free += [Place(offset, position, leader_epoch) for offset in offsets]

    def _add(self, columns: BatchColumns) -> None:
        for row in np.flatnonzero(np.isin(columns.producer_id, list(self._undecided))).tolist():
            batch, producer_id = columns[row : row + 1], int(columns.producer_id[row])
            first = self._next.setdefault(producer_id, batch)
            if producer_id not in self._undecided or (first is batch and batch.marker_type[0] != NO_MARKER):
                continue
            self._undecided.remove(producer_id)
            if first is not batch and _is_own(self._entries[producer_id], first, batch):
                self._own_marker.add(producer_id)

    def places(self, unknown: Set[int]) -> Iterator[tuple[int, Place]]:
        """A place for each producer that needs a marker in this segment. Raises PartitionError.

        `unknown`: those whose transactions retention took. Producers that go on with data are served first.
        """
        first = self._free[0].offset if self._free else sys.maxsize
        rest = self._entries.keys() - self._own_marker
        for is_control, due, producer_id in sorted((*self._due(number), number) for number in rest):
            batch = self._next.get(producer_id)
            outcome = NO_MARKER if batch is None else int(batch.marker_type[0])
            may_be_lost = first < due or outcome == NO_MARKER
            if not (may_be_lost if producer_id in unknown else outcome != MARKER_ABORT):
                continue
            if batch is not None and is_control and due < self._segment.end_offset:
                at, leader_epoch, size_bytes = batch.position[0], batch.leader_epoch[0], batch.size_bytes[0]
                newest = batch.producer_epoch[0], batch.coordinator_epoch[0], batch.max_timestamp_ms[0]
                yield producer_id, Place(due, int(at), int(leader_epoch), int(size_bytes), tuple(map(int, newest)))
            elif self._free and self._free[0].offset < due:
                yield producer_id, self._free.pop(0)
            elif first < due and not is_control:
                raise PartitionError(
                    f"{self._segment}: the broker's cleaner took markers of transactions that are open where the archive ends, "
                    f"and abort markers for all of them do not fit below offset {due}. Without them, aborted records may "
                    f"become readable. Move the leadership to a replica whose cleaner has done less, or archive the "
                    f"topic from its beginning under another store.url"
                )

    def _due(self, producer_id: int) -> tuple[bool, int]:
        """Whether a producer's next batch is a control batch, and its offset."""
        batch = self._next.get(producer_id)
        if batch is None:
            return False, sys.maxsize
        return bool(batch.attributes[0] & CONTROL), int(batch.base_offset[0])


def stretches(added: Sequence[AddedMarker], size_bytes: int) -> Iterator[range | bytes]:
    """What the archived `.log` consists of, in order: positions in the broker's bytes, and batches of ours."""
    position = 0
    for marker in added:
        if position < marker.place.position:
            yield range(position, marker.place.position)
        yield marker.batch
        position = marker.place.position + marker.place.replaced_bytes
    if position < size_bytes:
        yield range(position, size_bytes)


class SplicedSource:
    """An `UploadSource`: the broker's bytes with markers of ours in between."""

    def __init__(self, source: UploadSource, added: Sequence[AddedMarker]) -> None:
        self.name = source.name
        self._source = source
        self._stretches = tuple(stretches(added, source.size_bytes))
        self._ends = tuple(accumulate(map(len, self._stretches)))
        self.size_bytes = self._ends[-1]

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """See `UploadSource`."""
        content = bytearray()
        while len(content) < size_bytes:
            at = position + len(content)
            number = bisect_right(self._ends, at)
            stretch, begin = self._stretches[number], at - self._ends[number] + len(self._stretches[number])
            count = min(size_bytes - len(content), len(stretch) - begin)
            if isinstance(stretch, bytes):
                content += stretch[begin : begin + count]
            else:
                content += self._source.read_at(stretch.start + begin, count)
        return bytes(content)
