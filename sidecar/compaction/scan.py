"""Stage one: every record of a split enters the key table; what else the later stages must know is counted on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from producer_state.facts import CONTROL, MARKER_ABORT, MARKER_COMMIT, TRANSACTIONAL, Int32Column, Int64Column
from sidecar.compaction import library as kernels
from sidecar.compaction import scan_places as places
from sidecar.compaction.inflating import Body, Inflater, wrapped_stream
from sidecar.compaction.key_table import KeyTable
from sidecar.compaction.rules import malformed_version, unkeyed_record
from sidecar.compaction.segments import Chunk, SegmentInput, Split, chunks
from sidecar.errors import CorruptFile, PartitionError, SegmentChanged
from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.columns import BatchColumns
from sidecar.logformat.headers import BATCH_HEADER, CODEC_MASK, CURRENT_MAGIC, SMALLEST_RECORD_BYTES

NO_VERDICTS: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
MOST_RECORDS: Final = 2**32 - 2
"""Of a split: its records are numbered with 32 bits."""
DATA, ABORT, COMMIT, OTHER_CONTROL, EMPTY_CONTROL = range(5)


@dataclass(frozen=True, slots=True, eq=False)
class TransactionEvents:
    """The transactional and control batches of a split, one row each: its number within the split, its last offset, its
    producer, and which of `DATA`, `ABORT`, `COMMIT`, `OTHER_CONTROL`, `EMPTY_CONTROL` it is."""

    batch: Int32Column
    last_offset: Int64Column
    producer_id: Int64Column
    kind: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.batch)

    @classmethod
    def of(cls, columns: BatchColumns, first_batch: int) -> TransactionEvents:
        """Those of a chunk, whose first batch is number `first_batch` of its split."""
        current = columns.magic == CURRENT_MAGIC
        rows = np.flatnonzero(current & (columns.attributes & (TRANSACTIONAL | CONTROL) != 0))
        if not len(rows):
            return _NO_EVENTS
        control = columns.attributes[rows] & CONTROL != 0
        marker = columns.marker_type[rows]
        kind = np.full(len(rows), DATA, dtype=np.uint8)
        kind[control] = OTHER_CONTROL
        kind[control & (marker == MARKER_ABORT)] = ABORT
        kind[control & (marker == MARKER_COMMIT)] = COMMIT
        kind[control & (columns.record_count[rows] == 0)] = EMPTY_CONTROL
        # Control batches that end no transaction have no producer; one without transaction flag still ends one.
        return cls(
            (rows + first_batch).astype(np.int32),
            columns.last_offset[rows].copy(),
            columns.producer_id[rows].copy(),
            kind,
        )

    @classmethod
    def joined(cls, parts: list[TransactionEvents]) -> TransactionEvents:
        parts = [part for part in parts if len(part)]
        if len(parts) < 2:
            return parts[0] if parts else _NO_EVENTS
        return cls(
            np.concatenate([part.batch for part in parts]),
            np.concatenate([part.last_offset for part in parts]),
            np.concatenate([part.producer_id for part in parts]),
            np.concatenate([part.kind for part in parts]),
        )


_NO_EVENTS = TransactionEvents(
    np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8)
)


@dataclass(frozen=True, slots=True, eq=False)
class SplitScan:
    """What a scan found in a split in addition to keys. `record_count` counts all records, `competing` those with a key
    that may win.

    `first_offset` and `last_offset` are those of its batches, `last_position` is that of the last batch (-1: none).
    `emptied`: data batches without records. `deleted`: records below the start of the log. `crc32c`: of all bytes of the split,
    as they were read; `last_batch_crc32c`: of all bytes of its last batch.
    """

    split: Split
    batch_count: int
    record_count: int
    competing: int
    unkeyed: int
    tombstones: int
    deleted: int
    emptied: int
    legacy: int
    malformed_versions: int
    first_offset: int
    last_offset: int
    last_position: int
    events: TransactionEvents
    crc32c: int
    last_batch_crc32c: int

    def loses_nothing(self, winners: int) -> bool:
        """Whether all its bytes surely stay as they are, if so many of its records win."""
        plain = not (self.unkeyed or self.tombstones or self.deleted or self.emptied or len(self.events))
        # Old cleaners' wrappers are always rebuilt (KAFKA-4298), which only their content shows.
        return plain and winners == self.competing and not self.legacy


def scan_split(
    segment: SegmentInput,
    split: Split,
    table: KeyTable,
    inflater: Inflater,
    verdicts: npt.NDArray[np.uint8] = NO_VERDICTS,
    *,
    start_offset: int = 0,
) -> SplitScan:
    """Check every batch of a split and enter its records, but for those below `start_offset`.

    `verdicts`: by batch, not 0 for those of aborted transactions; may be left out where there are none.
    Raises CorruptFile with the position, and RecordRefused for a malformed version or a record without a key that the rules refuse.
    """
    task = table.task
    task[places.SPLIT] = split.number
    task[[places.ORDINAL, places.BATCH, places.COMPETING, places.UNKEYED]] = 0
    task[[places.TOMBSTONES, places.MALFORMED, places.EMPTIED, places.DELETED]] = 0
    task[places.START_OFFSET] = start_offset
    task[places.FIRST_MALFORMED] = -1
    events: list[TransactionEvents] = []
    legacy, first_offset, last_offset, last_position = 0, -1, -1, -1
    checksum = last_checksum = 0
    for chunk in chunks(segment, split):
        columns = chunk.columns()
        events.append(TransactionEvents.of(columns, int(task[places.BATCH])))
        legacy += int(np.count_nonzero(columns.magic < CURRENT_MAGIC))
        first_offset = int(columns.base_offset[0]) if first_offset < 0 else first_offset
        _scan_chunk(segment, chunk, max(last_offset, segment.base_offset - 1), table, inflater, verdicts)
        last_offset, last_position = int(columns.last_offset[-1]), int(columns.position[-1])
        checksum, last_checksum = chunk.split_crc32c, crc32c(chunk.batch(chunk.rows - 1))
        if task[places.ORDINAL] > MOST_RECORDS:
            raise PartitionError(
                f"{segment.file}: more than {MOST_RECORDS} records in {split.end - split.begin} bytes cannot be "
                "numbered; the partition stays as it is"
            )
    if table.rules.strict_headers and task[places.FIRST_MALFORMED] >= 0:
        raise malformed_version(int(task[places.FIRST_MALFORMED]), table.rules.header_name, segment.file)
    if table.rules.refuses_unkeyed and task[places.UNKEYED]:
        raise unkeyed_record(_first_unkeyed_offset(segment, split, verdicts, start_offset), segment.file)
    return SplitScan(
        split=split,
        batch_count=int(task[places.BATCH]),
        record_count=int(task[places.ORDINAL]),
        competing=int(task[places.COMPETING]),
        unkeyed=int(task[places.UNKEYED]),
        tombstones=int(task[places.TOMBSTONES]),
        deleted=int(task[places.DELETED]),
        emptied=int(task[places.EMPTIED]),
        legacy=legacy,
        malformed_versions=int(task[places.MALFORMED]),
        first_offset=first_offset,
        last_offset=last_offset,
        last_position=last_position,
        events=TransactionEvents.joined(events),
        crc32c=checksum,
        last_batch_crc32c=last_checksum,
    )


def _first_unkeyed_offset(
    segment: SegmentInput, split: Split, verdicts: npt.NDArray[np.uint8], start_offset: int
) -> int:
    """Of a split that has such a record. Slow: decodes in Python."""
    number = 0
    for chunk in chunks(segment, split):
        columns = chunk.columns()
        is_control = (columns.magic == CURRENT_MAGIC) & (columns.attributes & CONTROL != 0)
        for row in range(chunk.rows):
            is_aborted = number < len(verdicts) and verdicts[number] != 0
            number += 1
            if not is_aborted and not is_control[row]:
                for record in read_records(chunk.batch(row), int(columns.position[row])):
                    if record.key is None and record.offset >= start_offset:
                        return record.offset
    raise SegmentChanged(f"{segment.file}: its records without a key have disappeared since the scan")


def _scan_chunk(
    segment: SegmentInput,
    chunk: Chunk,
    before: int,
    table: KeyTable,
    inflater: Inflater,
    verdicts: npt.NDArray[np.uint8],
) -> None:
    row = 0
    wide, words, halves, bytes_ = chunk.blocks
    table.task[places.COUNTED_ROW] = -1
    while row < chunk.rows:
        row, stop = kernels.scan_rows(
            chunk.buffer, chunk.file_position, wide, words, halves, bytes_, row, chunk.rows, verdicts, table.task
        )
        if stop == places.BAD_RECORD:
            raise _bad_record(segment, chunk, row, table, "")
        if stop == places.TABLE_FULL:
            table.make_room(max(int(words[4, row]), 1), int(words[0, row]))
        if stop == places.DOUBTFUL_COUNT:
            _inflated(segment, chunk, row, inflater)
            table.task[places.COUNTED_ROW] = row
        if stop == places.NEEDS_BODY:
            _scan_compressed(segment, chunk, row, before, table, inflater)
            row += 1


def _scan_compressed(
    segment: SegmentInput, chunk: Chunk, row: int, before: int, table: KeyTable, inflater: Inflater
) -> None:
    """`before`: the last offset before the chunk."""
    wide, words, halves, bytes_ = chunk.blocks
    body, size_bytes = _inflated(segment, chunk, row, inflater)
    magic, count, shift = int(bytes_[0, row]), int(words[4, row]), 0
    if magic < CURRENT_MAGIC:
        count = int(kernels.count_messages(body, size_bytes))
        if count <= 0:
            table.task[places.BAD_AT] = -1 - count
            raise _bad_record(segment, chunk, row, table, " of the decompressed messages")
        before = int(wide[2, row - 1]) if row else before
        shift = _offset_shift(segment, chunk, row, before, *map(int, kernels.inner_offsets(body, size_bytes)))
    while True:
        if magic == CURRENT_MAGIC:
            stop = kernels.scan_body(body, size_bytes, wide, words, halves, row, table.task)
        else:
            stop = kernels.scan_messages(body, size_bytes, count, shift, wide, halves, row, table.task)
        if stop == places.ROWS_DONE:
            return
        if stop == places.BAD_RECORD:
            raise _bad_record(segment, chunk, row, table, " of the decompressed records")
        table.make_room(count, size_bytes)


def _offset_shift(
    segment: SegmentInput, chunk: Chunk, row: int, before: int, first: int, last: int, wrong_at: int
) -> int:
    """What to add to the offsets within a decompressed legacy set: those are `first` to `last`.

    Magic 0 has absolute ones, magic 1 counts back from the wrapper's; a wrapper at offset 0 comes from clients that left
    the base to the broker. Raises CorruptFile for offsets that do not ascend from above `before` up to the wrapper's.
    Source: AbstractLegacyRecordBatch.DeepRecordsIterator.
    """
    wide, _, _, bytes_ = chunk.blocks
    wrapper = int(wide[2, row])
    shift = 0 if int(bytes_[0, row]) == 0 or wrapper == 0 else wrapper - last
    if wrong_at >= 0 or first < 0 or shift < 0 or not before < first + shift <= last + shift <= wrapper:
        what = f"messages at offsets {first + shift} to {last + shift}, expected ascending ones from {before + 1} to {wrapper}"
        if shift < 0:
            what = f"a message stored at offset {last}, above its own offset {wrapper}"
        if wrong_at >= 0:
            what = f"offsets that do not ascend, at byte {wrong_at} of the decompressed messages"
        raise CorruptFile(
            f"a compressed message with {what}; the partition stays as it is",
            file=segment.file,
            position=int(wide[0, row]),
            offset=wrapper,
        )
    return shift


def _inflated(segment: SegmentInput, chunk: Chunk, row: int, inflater: Inflater) -> tuple[Body, int]:
    """The records of a batch, decompressed. Raises CorruptFile also for a count of records that cannot fit in them."""
    wide, words, halves, bytes_ = chunk.blocks
    magic, count = int(bytes_[0, row]), int(words[4, row])
    file, position, offset = segment.file, int(wide[0, row]), int(wide[1, row])
    try:
        batch = chunk.batch(row)
        stream = batch[BATCH_HEADER.size_bytes :] if magic == CURRENT_MAGIC else wrapped_stream(batch)
        body, size_bytes = inflater.inflate(int(halves[0, row]) & CODEC_MASK, stream, magic)
    except CorruptFile as error:
        raise CorruptFile(error.what, file=file, position=position, offset=offset) from error
    if count * SMALLEST_RECORD_BYTES > size_bytes:
        what = f"{count} records claimed in {size_bytes} bytes, each has at least {SMALLEST_RECORD_BYTES}"
        raise CorruptFile(f"{what}; the partition stays as it is", file=file, position=position, offset=offset)
    return body, size_bytes


def _bad_record(segment: SegmentInput, chunk: Chunk, row: int, table: KeyTable, where: str) -> CorruptFile:
    wide = chunk.blocks[0]
    at = int(table.task[places.BAD_AT])
    return CorruptFile(
        f"a record that does not decode, at byte {at}{where or ' of its batch'}; the partition stays as it is",
        file=segment.file,
        position=int(wide[0, row]),
        offset=int(wide[1, row]),
    )
