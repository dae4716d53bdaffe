"""Abort markers in the place of markers that the broker's cleaner took before they were archived.

The archive has a segment with an open transaction. Then the cleaner takes what is left of the transaction in the broker's log, and,
`delete.retention.ms` later, its marker. Replay would go on with the transaction, and its producer's next commit would show
its records, though they may have been aborted. So the next segment is archived with an abort marker at an offset that the
cleaner has left free.

What the cleaner shows decides:

- It keeps a marker as long as it finds a batch of its transaction, also an empty one. A transaction with a batch left in the
  local log has its marker, too.
- It takes records that are aborted, or that a later record with their key supersedes. Either way no reader of the archive
  misses them. Only where retention or DeleteRecords took them, they may be committed and the newest ones.
- It keeps a marker for `delete.retention.ms` after its last batch went, so for that long after the batches were written.
- The marker lay below the producer's next batch, and its offset is free now, or has an empty control batch. If that batch is an
  abort marker, it hides the same records.

Source: CleanedTransactionMetadata.onControlBatchRead, Cleaner.cleanInto, ProducerAppendInfo.append.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from producer_state.facts import CONTROL, MARKER_ABORT
from producer_state.snapshot import ProducerEntry
from producer_state.table import ProducerTable
from sidecar.archive.state import PartitionState
from sidecar.errors import PartitionError
from sidecar.host.listed_files import ListedFile
from sidecar.logformat.batches import BatchColumns, SegmentScanner
from sidecar.logformat.bodies.building import build_marker
from sidecar.logformat.headers import NO_LEADER_EPOCH
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import PartitionFiles, SegmentFiles
from sidecar.ports import UploadSource
from sidecar.segment.open_transactions import batches_left


@dataclass(frozen=True, slots=True)
class AddedMarker:
    """An abort marker that the archived segment has in addition to the broker's batches.

    `position`: of the bytes of the segment before which it goes. `replaced_bytes`: size of the empty control batch there whose
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
    """A free offset. `leader_epoch`: of the batch before it, or, at the segment's base, of the one behind it."""

    offset: int
    position: int
    leader_epoch: int
    replaced_bytes: int = 0


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
    found = _Free(segment.base_offset, entries)
    scanner = SegmentScanner(
        ListedFile(descriptor, segment.log, segment.start_position),
        segment.size_bytes,
        base_offset=segment.base_offset,
        file=segment.log_name,
        check_crc=False,
    )
    for columns in scanner:
        found.add(columns)
    found.end(segment.end_offset, segment.size_bytes)
    added: list[AddedMarker] = []
    # An abort marker that is left is right, too, whichever transaction it ended. Where retention took records, it is reported.
    unknown_aborts = {number for number in found.aborted if first_offsets[number] < start_offset}
    wanted = entries.keys() - found.own_marker - (found.aborted - unknown_aborts)
    for producer_id, place in found.places(segment, wanted):
        entry, epoch = entries[producer_id], place.leader_epoch
        known_epoch = checkpoint.epoch_for_offset(place.offset) if checkpoint else None
        batch = build_marker(
            place.offset,
            commit=False,
            producer_id=producer_id,
            producer_epoch=entry.producer_epoch,
            coordinator_epoch=max(entry.coordinator_epoch, 0),
            timestamp_ms=max(entry.last_timestamp_ms, 0),
            leader_epoch=epoch if known_epoch is None else known_epoch,
        )
        first_offset, at = _first_offset(entry), place.position
        unknown = first_offset < start_offset
        added.append(AddedMarker(producer_id, first_offset, place.offset, at, place.replaced_bytes, batch, unknown))
    return tuple(sorted(added, key=lambda marker: marker.offset))


def _first_offset(entry: ProducerEntry) -> int:
    return entry.current_txn_first_offset or 0


def _continues(entry: ProducerEntry, columns: BatchColumns, row: int) -> bool:
    """Whether a batch has the sequence number behind the producer's last one. Source: DefaultRecordBatch.incrementSequence."""
    sequence = (entry.last_sequence + 1) & 0x7FFFFFFF
    return bool(columns.producer_epoch[row] == entry.producer_epoch and columns.base_sequence[row] == sequence)


class _Free:
    """The free offsets of a segment, as many as are needed, and up to where each producer's marker may have been.

    `aborted`: producers whose next batch is an abort marker. `own_marker`: those whose next batch is the marker of the transaction:
    the next data continues its sequence numbers, so that the producer has written nothing in between.
    """

    def __init__(self, base_offset: int, entries: Mapping[int, ProducerEntry]) -> None:
        self._expected_offset, self._epoch = base_offset, NO_LEADER_EPOCH
        self._free: list[_Place] = []
        self._own: dict[int, _Place] = {}
        self._entries = entries
        self._due = dict.fromkeys(entries, sys.maxsize)
        self.aborted: set[int] = set()
        self.own_marker: set[int] = set()

    def add(self, columns: BatchColumns) -> None:
        follows = np.concatenate([[self._expected_offset], columns.last_offset[:-1] + 1])
        for row in np.flatnonzero((columns.magic == 2) & (columns.base_offset != follows)).tolist():
            epoch = int(columns.leader_epoch[row - 1]) if row else self._epoch
            epoch = int(columns.leader_epoch[row]) if epoch == NO_LEADER_EPOCH else epoch
            self._take(int(follows[row]), int(columns.base_offset[row]), int(columns.position[row]), epoch)
        for row in np.flatnonzero(np.isin(columns.producer_id, list(self._due))).tolist():
            producer_id, offset = int(columns.producer_id[row]), int(columns.base_offset[row])
            if columns.attributes[row] & CONTROL and columns.record_count[row] == 0:
                place = _Place(
                    offset,
                    int(columns.position[row]),
                    int(columns.leader_epoch[row]),
                    int(columns.size_bytes[row]),
                )
                if self._due[producer_id] == sys.maxsize:
                    self._own.setdefault(producer_id, place)
            elif self._due[producer_id] == sys.maxsize:
                self._due[producer_id] = offset
                if columns.marker_type[row] == MARKER_ABORT:
                    self.aborted.add(producer_id)
            elif _continues(self._entries[producer_id], columns, row):
                self.own_marker.add(producer_id)
        self._expected_offset, self._epoch = int(columns.last_offset[-1]) + 1, int(columns.leader_epoch[-1])

    def end(self, end_offset: int, size_bytes: int) -> None:
        self._take(self._expected_offset, end_offset, size_bytes, self._epoch)

    def _take(self, from_offset: int, to_offset: int, position: int, leader_epoch: int) -> None:
        wanted = len(self._due) - len(self._free)
        offsets = range(from_offset, min(to_offset, from_offset + wanted))
        self._free += [_Place(offset, position, leader_epoch) for offset in offsets]

    def places(self, segment: SegmentFiles, wanted: Set[int]) -> Iterator[tuple[int, _Place]]:
        """A place for each of these producers that may have lost its marker here, the most urgent first. Raises PartitionError."""
        left = iter(self._free)
        first = self._free[0].offset if self._free else sys.maxsize
        for producer_id in sorted(wanted, key=lambda number: (self._due[number], number)):
            due = self._due[producer_id]
            if own := self._own.get(producer_id):
                yield producer_id, own
            elif first < due:
                place = next(left, None)
                if place is None or place.offset >= due:
                    raise PartitionError(
                        f"{segment}: the broker's cleaner took markers of transactions that are open where the archive ends, "
                        f"and abort markers for all of them do not fit below offset {due}. Without them, aborted records may "
                        f"become readable. Move the leadership to a replica whose cleaner has done less, or archive the "
                        f"topic from its beginning under another store.url"
                    )
                yield producer_id, place


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
