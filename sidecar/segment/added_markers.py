"""Abort markers in the place of markers that the broker's cleaner took before they were archived.

The archive has a segment with an open transaction. Then the cleaner takes what is left of the transaction in the broker's log, and,
`delete.retention.ms` later, its marker. Replay would go on with the transaction, and its producer's next commit would show
its records, though they may have been aborted. So a segment is archived with an abort marker that ends it.

The producer's next batch in the log decides:

- If it is an abort marker, it hides the same records.
- If it is a commit marker and the data behind it has the next sequence number, the producer has written nothing in between.
  Then the marker is the transaction's own. With transaction version 2, the marker and the data have the next epoch.
- Any other commit marker, and one that the cleaner has emptied, becomes an abort marker at its own offset.
- Before data, the marker goes to a free offset. Where no offset is free, no marker is lost.

To hide the records is right, because the cleaner keeps a marker as long as it finds a batch of its transaction. It takes records
that are aborted, or that a later record with their key supersedes. Records that retention or DeleteRecords took may be
committed and the newest ones: they are hidden only if an offset is free in front of the producer's next batch. Decision 17
has the limits.

Source: CleanedTransactionMetadata.onControlBatchRead, Cleaner.cleanInto, TransactionMetadata.prepareAbortOrCommit.
"""

from __future__ import annotations

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
from sidecar.segment.open_transactions import batches_left, logs_behind


@dataclass(frozen=True, slots=True)
class AddedMarker:
    """An abort marker of ours in the archived segment.

    `position`: of the bytes of the segment before which it goes. `replaced_bytes`: size of the control batch there whose
    place it takes, 0 for none. `may_be_committed`: see the module.
    """

    producer_id: int
    first_offset: int
    offset: int
    position: int
    replaced_bytes: int
    batch: bytes
    may_be_committed: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a marker may go. `leader_epoch`: of the batch before it, or, at the segment's base, of the one behind it."""

    offset: int
    position: int
    leader_epoch: int
    replaced_bytes: int = 0


@dataclass(slots=True)
class _NextBatch:
    """A producer's first batch from the segment's base on. `place`: of a control batch within the segment."""

    offset: int = sys.maxsize
    epoch: int = 0
    is_control: bool = False
    outcome: int = NO_MARKER
    place: _Place | None = None
    is_own_marker: bool = False


def markers_may_be_gone(at_base: ProducerTable, archived: PartitionState, written_by_ms: int) -> ProducerTable:
    """Those of the producers in a transaction whose marker may have been written by a time.

    It was written after the archived file with the transaction's first batch. (Later files need not show it: a replica may have
    fetched them again, already cleaned.) Where the time of that file is not known, the marker may be of any age.
    """
    young: list[int] = []
    for entry in at_base.in_transaction().entries():
        number = bisect_right(archived.segments, _first_offset(entry), key=lambda segment: segment.end_offset)
        # The first batch may be in a segment that is not committed yet.
        mtime_ns = archived.segments[min(number, len(archived.segments) - 1)].source_mtime_ns
        if mtime_ns is not None and mtime_ns > written_by_ms * 1_000_000:
            young.append(entry.producer_id)
    return at_base.without_transactions(np.array(young, np.int64))


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
    first_offsets = {number: _first_offset(entry) for number, entry in entries.items()}
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
        batch = build_marker(
            place.offset,
            commit=False,
            producer_id=producer_id,
            producer_epoch=entry.producer_epoch,
            coordinator_epoch=max(entry.coordinator_epoch, 0),
            timestamp_ms=max(entry.last_timestamp_ms, 0),
            leader_epoch=place.leader_epoch if known_epoch is None else known_epoch,
        )
        first_offset, is_unknown = first_offsets[producer_id], producer_id in unknown
        added.append(
            AddedMarker(
                producer_id, first_offset, place.offset, place.position, place.replaced_bytes, batch, is_unknown
            )
        )
    return tuple(sorted(added, key=lambda marker: marker.offset))


def _first_offset(entry: ProducerEntry) -> int:
    return entry.current_txn_first_offset or 0


class _Search:
    """The next batches of producers, and the free offsets of a segment, as many as are needed."""

    def __init__(self, segment: SegmentFiles, entries: Mapping[int, ProducerEntry]) -> None:
        self._segment, self._entries = segment, entries
        self._next = {producer_id: _NextBatch() for producer_id in entries}
        self._undecided = set(entries)
        self._free: list[_Place] = []

    def read(self, descriptor: int, files: PartitionFiles) -> None:
        """Read the segment, and the log behind it as far as it decides something."""
        segment = self._segment
        follows, epoch = segment.base_offset, NO_LEADER_EPOCH
        scanner = SegmentScanner(
            ListedFile(descriptor, segment.log, segment.start_position),
            segment.size_bytes,
            base_offset=segment.base_offset,
            file=segment.log_name,
            check_crc=False,
        )
        for columns in scanner:
            self._add_free(columns, follows, epoch)
            self._add(columns, is_here=True)
            follows, epoch = int(columns.last_offset[-1]) + 1, int(columns.leader_epoch[-1])
        self._take(follows, segment.end_offset, segment.size_bytes, epoch)
        for base_offset, log in logs_behind(files, segment.end_offset):
            if not self._undecided:
                break
            path, options = log.path, {"check_crc": False, "window_bytes": HEADERS_WINDOW_BYTES}
            try:
                for columns in scan_file(path, base_offset=base_offset, **options):
                    self._add(columns, is_here=False)
            except SegmentChanged:  # Retention may have taken it, while it is pinned.
                break

    def _add_free(self, columns: BatchColumns, expected_offset: int, last_epoch: int) -> None:
        follows = np.concatenate([[expected_offset], columns.last_offset[:-1] + 1])
        for row in np.flatnonzero((columns.magic == 2) & (columns.base_offset != follows)).tolist():
            epoch = int(columns.leader_epoch[row - 1]) if row else last_epoch
            epoch = int(columns.leader_epoch[row]) if epoch == NO_LEADER_EPOCH else epoch
            self._take(int(follows[row]), int(columns.base_offset[row]), int(columns.position[row]), epoch)

    def _take(self, from_offset: int, to_offset: int, position: int, leader_epoch: int) -> None:
        offsets = range(from_offset, min(to_offset, from_offset + len(self._entries)))
        self._free += [_Place(offset, position, leader_epoch) for offset in offsets]
        del self._free[len(self._entries) :]

    def _add(self, columns: BatchColumns, *, is_here: bool) -> None:
        for row in np.flatnonzero(np.isin(columns.producer_id, list(self._undecided))).tolist():
            producer_id, epoch = int(columns.producer_id[row]), int(columns.producer_epoch[row])
            found, entry = self._next[producer_id], self._entries[producer_id]
            if producer_id not in self._undecided:
                continue
            if found.offset < sys.maxsize:
                # Source: DefaultRecordBatch.incrementSequence.
                epochs, sequence = (found.epoch - entry.producer_epoch, epoch - found.epoch), columns.base_sequence[row]
                own = ((0, 0), (entry.last_sequence + 1) & 0x7FFFFFFF), ((1, 0), 0)
                found.is_own_marker = (epochs, int(sequence)) in own
                self._undecided.remove(producer_id)
                continue
            found.offset, found.epoch = int(columns.base_offset[row]), epoch
            found.is_control, found.outcome = bool(columns.attributes[row] & CONTROL), int(columns.marker_type[row])
            if found.is_control and is_here:
                position, size_bytes = int(columns.position[row]), int(columns.size_bytes[row])
                found.place = _Place(found.offset, position, int(columns.leader_epoch[row]), size_bytes)
            if found.outcome == NO_MARKER:
                self._undecided.remove(producer_id)

    def places(self, unknown: Set[int]) -> Iterator[tuple[int, _Place]]:
        """A place for each producer that needs a marker in this segment. Raises PartitionError.

        `unknown`: those whose transactions retention took.
        """
        free = list(self._free)
        first = free[0].offset if free else sys.maxsize
        for producer_id, found in sorted(self._next.items(), key=lambda item: (item[1].offset, item[0])):
            is_unknown, is_emptied = producer_id in unknown, found.is_control and found.outcome == NO_MARKER
            is_right = found.is_own_marker or (found.outcome == MARKER_ABORT and not is_unknown)
            may_be_lost = is_emptied or first < found.offset
            if is_right or (is_unknown and not may_be_lost):
                continue
            if found.place is not None:
                yield producer_id, found.place
            elif free and free[0].offset < found.offset:
                yield producer_id, free.pop(0)
            elif may_be_lost and (is_unknown or not found.is_control):
                raise PartitionError(
                    f"{self._segment}: the broker's cleaner took markers of transactions that are open where the archive ends, "
                    f"and abort markers for all of them do not fit below offset {found.offset}. Without them, aborted records "
                    f"may become readable. Move the leadership to a replica whose cleaner has done less, or archive the "
                    f"topic from its beginning under another store.url"
                )


def stretches(added: Sequence[AddedMarker], size_bytes: int) -> Iterator[range | bytes]:
    """What the archived `.log` consists of, in order: positions in the broker's bytes, and batches of ours."""
    position = 0
    for marker in added:
        if position < marker.position:
            yield range(position, marker.position)
        yield marker.batch
        position = marker.position + marker.replaced_bytes
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
