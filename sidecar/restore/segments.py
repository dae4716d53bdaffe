"""Fetches archived segments: every byte is checked, and they are cut to the wanted range and given flat epochs where asked."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import numpy as np
from pydantic import BaseModel, ConfigDict

from producer_state.snapshot import read_rows
from producer_state.table import ProducerTable
from producer_state.wire import ProducerStateError
from sidecar.archive.bundle import EMPTY_SNAPSHOT, log_size_bytes
from sidecar.archive.keys import below
from sidecar.errors import CorruptFile, ObjectMissing, SegmentChanged, SidecarError
from sidecar.logformat.batches import BatchColumns, SegmentScanner
from sidecar.logformat.files import PositionalFile, read_regular
from sidecar.logformat.headers import CURRENT_MAGIC
from sidecar.logformat.indexes.rebuild import IndexBuilder
from sidecar.logformat.indexes.transaction_index import read_transaction_index
from sidecar.logformat.names import Suffix, file_name
from sidecar.logformat.window import StreamedReads
from sidecar.model import ObjectKey, PartName
from sidecar.ports import MIB, ObjectStore
from sidecar.restore.decisions import Decisions
from sidecar.restore.gap_transactions import state_at_last_base
from sidecar.restore.plan import INDEX_SUFFIXES, PartitionPlan, SegmentPlan
from sidecar.restore.request import LeaderEpochMode, ProducerStateMode
from sidecar.restore.staging import NewFile, StagedPartition, is_own_file, translating
from sidecar.segment.archived_objects import note_damaged_answer
from sidecar.segment.dropped_producers import leaves_all_out
from sidecar.segment.log_check import WINDOW_BYTES, ExpectedLog, LogCheck, fetch_parts
from sidecar.segment.replaying import replayed
from sidecar.snapshots.gaps import rows_with_gaps

_CHUNK_BYTES = MIB
"""Of a log that is streamed. For larger writes the kernel looks for larger free memory."""
_COPY_BYTES = 4 * MIB


class Cut:
    """A fold over a segment's batches: which bytes of its file stay, and the offsets that these are named by.

    A batch that reaches over a border stays whole. `base_offset`: for the new file's name. `end_offset`: where the log ends.
    """

    def __init__(self, plan: SegmentPlan) -> None:
        self._plan = plan
        self._next_offset = plan.segment.base_offset
        self._first_kept: int | None = None
        self._last_kept = -1
        self._stopped_at: int | None = None
        self.start_position = 0
        self.end_position = 0

    def add(self, columns: BatchColumns) -> int:
        """Take the next batches in file order. Returns how many of them, from the first on, are not behind the end."""
        # Of a legacy wrapper the header does not tell the first offset: the lowest that it can have.
        after_previous = np.concatenate([[self._next_offset], columns.last_offset[:-1] + 1])
        first_offset = np.where(columns.magic >= CURRENT_MAGIC, columns.base_offset, after_previous)
        self._next_offset = int(columns.last_offset[-1]) + 1
        if self._stopped_at is not None:
            return 0
        leaving = first_offset >= self._plan.end_offset
        if self._plan.until_timestamp_ms is not None:
            is_wanted = columns.last_offset >= self._plan.kept_from_offset
            leaving |= is_wanted & (columns.max_timestamp_ms > self._plan.until_timestamp_ms)
        rows = np.flatnonzero(leaving)
        stop = int(rows[0]) if rows.size else len(columns)
        if rows.size:
            self._stopped_at = int(first_offset[stop])
        below = int(np.searchsorted(columns.last_offset[:stop], self._plan.kept_from_offset, side="left"))
        if self._first_kept is None:
            # The end of these batches where all of them are left out.
            positions = np.append(columns.position, columns.position[-1] + columns.size_bytes[-1])
            self.start_position = self.end_position = int(positions[below])
            if below < stop:
                self._first_kept = int(first_offset[below])
        if below < stop:
            self.end_position = int(columns.position[stop - 1]) + int(columns.size_bytes[stop - 1])
            self._last_kept = int(columns.last_offset[stop - 1])
        return stop

    @property
    def base_offset(self) -> int:
        if not self._plan.is_cut_at_start:
            return self._plan.segment.base_offset
        first = self._plan.first_offset
        return first if self._first_kept is None else min(first, self._first_kept)

    @property
    def batches_end_offset(self) -> int:
        """Behind the last batch that stays, 0 where none does."""
        return self._last_kept + 1

    @property
    def end_offset(self) -> int:
        if self._plan.until_timestamp_ms is not None and self._stopped_at is not None:
            return max(self._stopped_at, self._last_kept + 1, self.base_offset)
        return max(self._plan.end_offset, self._last_kept + 1, self.base_offset)


def keep_only(log: NewFile, start_position: int, end_position: int) -> None:
    """Make a file consist of these of its bytes. Raises as `NewFile.read_at` does."""
    for position in range(start_position, end_position if start_position else 0, _COPY_BYTES):
        data = log.read_at(position, min(_COPY_BYTES, end_position - position))
        log.write_at(position - start_position, data)
    with translating(log.path):
        os.ftruncate(log.descriptor, end_position - start_position)


FLAT_EPOCH = 0
EPOCH_POSITION = 12
"""Of the field in a batch of magic 2. Source: DefaultRecordBatch.PARTITION_LEADER_EPOCH_OFFSET."""
_EPOCH_BYTES = 4


def flatten_epochs(log: NewFile, columns: BatchColumns, *, keeps: bool) -> None:
    """Write epoch 0 into these batches of an open file. Raises as `NewFile.read_at` does.

    Batches lie close together as a rule, so whole windows are read and written back.

    Args:
        keeps: only into those without an epoch, which compaction makes of older formats: no follower takes these.
            Source: LeaderEpochFileCache.assign.
    """
    is_other = columns.leader_epoch < FLAT_EPOCH if keeps else columns.leader_epoch != FLAT_EPOCH
    rows = np.flatnonzero((columns.magic >= CURRENT_MAGIC) & is_other)
    fields = columns.position[rows] + EPOCH_POSITION
    begin = 0
    while begin < len(fields):
        first = int(fields[begin])
        end = int(np.searchsorted(fields, first + _COPY_BYTES - _EPOCH_BYTES, side="right"))
        data = log.read_at(first, int(fields[end - 1]) + _EPOCH_BYTES - first)
        window = np.frombuffer(data, dtype=np.uint8)
        window[(fields[begin:end, None] - first + np.arange(_EPOCH_BYTES)).reshape(-1)] = FLAT_EPOCH
        log.write_at(first, window.data)
        begin = end


class RestoreStopped(SidecarError):
    """The command was interrupted; what is complete stays."""


@dataclass(frozen=True, slots=True)
class RestoredSegment:
    """The range of a restored file. `has_gaps`: offsets are missing.

    `batches_end_offset`: behind its last batch, 0 where it has none. `producers`: the snapshot at its end where it is cut there.
    """

    base_offset: int
    end_offset: int
    batches_end_offset: int
    has_gaps: bool
    producers: bytes | None


class _Note(BaseModel):
    """A complete segment: what it is made of, and how. `files`: sizes in bytes by name."""

    model_config = ConfigDict(frozen=True, ser_json_bytes="base64", val_json_bytes="base64")

    made_of: str
    restored: RestoredSegment
    files: dict[str, int]


@dataclass(frozen=True, slots=True)
class PartitionRestore:
    """What the segments of one partition share. `beat` is called with the bytes of each chunk fetched.

    `restored`: what is complete in the staging directory, by the archived base.
    """

    store: ObjectStore
    plan: PartitionPlan
    decisions: Decisions
    staged: StagedPartition
    stop: Event = field(default_factory=Event)
    beat: Callable[[int], None] = lambda _size_bytes: None
    restored: dict[int, RestoredSegment] = field(default_factory=dict)

    @property
    def flattens(self) -> bool:
        return self.decisions.leader_epochs is LeaderEpochMode.FLATTEN

    @property
    def drops_producers(self) -> bool:
        return self.decisions.producer_state is ProducerStateMode.DROP

    def begin(self) -> list[SegmentPlan]:
        """Make the staging directory, or go on in it. Returns what is to be fetched. Raises StagingFull, PartitionError."""
        self.staged.hold()
        earlier = self._earlier(self.staged.sizes())
        self.staged.begin(_files_of(earlier), self.decisions.topic_id)
        for plan in self.plan.segments:
            if plan.note_name in earlier:
                self.restored[plan.segment.base_offset] = earlier[plan.note_name].restored
        return [plan for plan in self.plan.segments if plan.note_name not in earlier]

    def needed_bytes(self) -> int:
        """By how much the partition's directory grows, below 0 where more is cleared. Changes nothing. Raises PartitionError."""
        before = self.staged.sizes() if self.staged.directory.is_dir() else {}
        earlier = self._earlier(before)
        kept = _files_of(earlier)
        missing_bytes = sum(plan.size_bytes for plan in self.plan.segments if plan.note_name not in earlier)
        cleared_bytes = sum(size_bytes for name, size_bytes in before.items() if name not in kept and is_own_file(name))
        return missing_bytes - cleared_bytes

    def made_of(self, plan: SegmentPlan) -> str:
        """What a segment's files are made of, and by which decisions."""
        return f"{plan.identity} {self.decisions.leader_epochs} {self.decisions.producer_state}"

    def _earlier(self, present: Mapping[str, int]) -> dict[str, _Note]:
        """The notes, by name, of segments that an earlier run completed in the same way. `present`: sizes by name."""
        plans = {plan.note_name: plan for plan in self.plan.segments if plan.note_name in present}
        notes = {name: _read_note(self.staged.directory / name) for name in plans}
        return {
            name: note
            for name, note in notes.items()
            if note is not None
            and note.made_of == self.made_of(plans[name])
            and all(present.get(file) == size_bytes for file, size_bytes in note.files.items())
        }


def _files_of(notes: Mapping[str, _Note]) -> frozenset[str]:
    return frozenset(notes).union(*(note.files for note in notes.values()))


def fetch_segment(work: PartitionRestore, plan: SegmentPlan) -> None:
    """Fetch one segment, and enter it into `work.restored`. Its `.log` gets its name last.

    Raises CorruptFile where the archive is damaged, StoreError, StagingFull, PartitionError, RestoreStopped.
    """
    try:
        _fetch_segment(work, plan)
    except CorruptFile as error:
        _fetch_segment(work, plan)  # The object may be sound, and the answer was damaged.
        note_damaged_answer(error.file, error.what)


def _fetch_segment(work: PartitionRestore, plan: SegmentPlan) -> None:
    segment, staged = plan.segment, work.staged
    parts = fetch_parts(work.store, work.plan.state.lineage.root, segment)
    work.beat(sum(map(len, parts.values())))
    with staged.incoming(file_name(segment.base_offset, Suffix.LOG)) as log, translating(log.path):
        cut, producers, has_gaps = _fetch_log(work, plan, log, parts)
        base_offset, end_offset = cut.base_offset, cut.end_offset
        indexes = _indexes_of_cut(plan, cut, log, parts)
        contents = {file_name(base_offset, INDEX_SUFFIXES[name]): content for name, content in indexes.items()}
        if producers is None:
            snapshot = EMPTY_SNAPSHOT if work.drops_producers else parts[PartName.PRODUCER_SNAPSHOT]
            contents[file_name(end_offset, Suffix.SNAPSHOT)] = snapshot
        for name, content in contents.items():
            staged.place(name, content)
        log.path = staged.directory / file_name(base_offset, Suffix.LOG)
        sizes = {name: len(content) for name, content in contents.items()}
        sizes[log.path.name] = os.fstat(log.descriptor).st_size
        kept = None if producers is None else producers.to_snapshot()
        restored = RestoredSegment(base_offset, end_offset, cut.batches_end_offset, has_gaps, kept)
        note = _Note(made_of=work.made_of(plan), restored=restored, files=sizes)
        staged.place(plan.note_name, note.model_dump_json().encode())
    work.restored[segment.base_offset] = restored


def _fetch_log(
    work: PartitionRestore, plan: SegmentPlan, log: NewFile, parts: Mapping[PartName, bytes]
) -> tuple[Cut, ProducerTable | None, bool]:
    """The `.log` object into the file, every byte and every batch checked; the epochs made flat where that is asked for.

    Returns where it is to be cut, the producers there if it is cut at its end, and whether offsets are missing in it.
    """
    segment = plan.segment
    key, size_bytes = below(work.plan.state.lineage.root, segment.log_key), log_size_bytes(segment)
    check, cut, has_gaps = LogCheck(ExpectedLog.of_commit(segment), key), Cut(plan), False
    producers = state_at_last_base(work.store, work.plan, parts) if plan.is_cut_at_end else None
    with closing(StreamedReads(_written(work, key, log), PositionalFile(log.descriptor))) as reads:
        scanner = SegmentScanner(
            reads, size_bytes, base_offset=segment.base_offset, file=key, window_bytes=WINDOW_BYTES
        )
        try:
            for columns in scanner:
                has_gaps |= len(rows_with_gaps(columns, check.last_offset + 1)) > 0
                check.add(columns)
                before_end = columns[: cut.add(columns)]
                # What lies below a cut at its beginning counts, too: a marker there has ended a transaction that began earlier.
                if producers is not None and len(before_end):
                    producers, _ = replayed(producers, before_end, key)
                flatten_epochs(log, columns, keeps=not work.flattens)
        except SegmentChanged as error:
            what = f"ends there, but the commit says {size_bytes} bytes"
            raise CorruptFile(what, file=key, position=reads.received_bytes) from error
        scanner.require_exact()
        if reads(size_bytes, memoryview(bytearray(1))):
            raise CorruptFile(f"has more than the {size_bytes} bytes committed", file=key, position=size_bytes)
    if scanner.crc32c != (committed := segment.parts[0].crc32c):
        what = f"has CRC-32C {scanner.crc32c:08x}, but the commit says {committed:08x}"
        raise CorruptFile(
            f"{what}: the batches' own checksums are right: a leader epoch or an offset was changed", file=key
        )
    check.finish(scanner)
    if producers is not None and leaves_all_out(segment):
        producers = producers.in_transaction()
    return cut, producers, has_gaps or check.last_offset + 1 < segment.end_offset


def _written(work: PartitionRestore, key: ObjectKey, log: NewFile) -> Iterator[bytes]:
    """The chunks of an object, each after it was written to the file. Raises as `fetch_segment`."""
    try:
        for chunk in work.store.stream(key, _CHUNK_BYTES, checked=False):
            if work.stop.is_set():
                raise RestoreStopped(f"{key}: the restore stopped")
            log.write(chunk)
            work.beat(len(chunk))
            yield chunk
    except ObjectMissing as error:
        raise CorruptFile("committed, but not in the store", file=key) from error


def _indexes_of_cut(
    plan: SegmentPlan, cut: Cut, log: NewFile, parts: Mapping[PartName, bytes]
) -> dict[PartName, bytes]:
    """Cut the file where that is planned; the indexes of what stays. Raises CorruptFile, and as `keep_only` does."""
    indexes = {name: parts[name] for name in INDEX_SUFFIXES if name in parts}
    if not plan.is_cut:
        return indexes
    base, end = cut.base_offset, cut.end_offset
    keep_only(log, cut.start_position, cut.end_position)
    # As a broker's recovery would build them.
    builder, size_bytes = IndexBuilder(base), cut.end_position - cut.start_position
    scanner = SegmentScanner(PositionalFile(log.descriptor), size_bytes, base_offset=base, file=str(log.path))
    for columns in scanner:
        builder.add(columns)
    scanner.require_exact()
    built = builder.finish()
    indexes[PartName.OFFSET_INDEX], indexes[PartName.TIME_INDEX] = built.offset_index, built.time_index
    if PartName.TRANSACTION_INDEX in indexes:
        found = read_transaction_index(indexes[PartName.TRANSACTION_INDEX])
        kept = found[(found.last_offset >= base) & (found.last_offset < end)]
        indexes[PartName.TRANSACTION_INDEX] = kept.to_bytes()
    return indexes


def _read_note(path: Path) -> _Note | None:
    try:
        note = _Note.model_validate_json(read_regular(path))
        read_rows(note.restored.producers or EMPTY_SNAPSHOT)
    except (OSError, ValueError, ProducerStateError):
        return None  # It is fetched again.
    return note
