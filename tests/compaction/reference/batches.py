"""A segment as plain batches with their records, rebuilt or emptied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from producer_state.facts import CONTROL, TRANSACTIONAL
from sidecar.compaction.rules import CompactionRules
from sidecar.errors import CorruptFile
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.building import build_batch, build_empty_batch
from sidecar.logformat.bodies.legacy import build_legacy_wrapper
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.columns import BatchColumns
from sidecar.logformat.headers import CODEC_MASK, CURRENT_MAGIC, NO_TIMESTAMP, BatchFlag


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """One batch, legacy message or wrapper, its header in plain numbers and its records decoded.

    `base_offset` of a wrapper is that of its first message. `delete_horizon_ms` is None where there is none.
    """

    data: bytes
    base_offset: int
    last_offset: int
    magic: int
    attributes: int
    leader_epoch: int
    delete_horizon_ms: int | None
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    marker_type: int
    records: tuple[Record, ...]

    @property
    def is_control(self) -> bool:
        return self.magic == CURRENT_MAGIC and bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return self.magic == CURRENT_MAGIC and bool(self.attributes & TRANSACTIONAL)

    @property
    def append_time_ms(self) -> int | None:
        """The time of all its records, where the broker gave it to them."""
        appended = self.attributes & BatchFlag.LOG_APPEND_TIME and self.magic > 0
        return self.max_timestamp_ms if appended else None

    def rebuilt(self, kept: Sequence[Record], delete_horizon_ms: int | None, *, convert_legacy: bool) -> bytes:
        """The batch with these records only. Raises CorruptFile if no broker would write it.

        Source: MemoryRecords.buildRetainedRecordsInto.
        """
        codec = self.attributes & CODEC_MASK
        if self.magic < CURRENT_MAGIC and not convert_legacy:
            return build_legacy_wrapper(kept, codec=codec, magic=self.magic, append_time_ms=self.append_time_ms)
        legacy = self.magic < CURRENT_MAGIC
        oldest = min(kept, key=lambda record: record.timestamp_ms)
        if oldest.timestamp_ms < NO_TIMESTAMP:
            what = f"a message with timestamp {oldest.timestamp_ms}, which no batch of magic 2 can have"
            raise CorruptFile(f"{what}; keep legacy message formats", offset=oldest.offset)
        return build_batch(
            kept,
            base_offset=kept[0].offset if legacy else self.base_offset,
            last_offset=kept[-1].offset if legacy else self.last_offset,
            codec=codec,
            leader_epoch=self.leader_epoch,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            transactional=self.is_transactional,
            control=self.is_control,
            append_time_ms=self.append_time_ms,
            delete_horizon_ms=delete_horizon_ms,
        )

    def emptied(self) -> bytes:
        """The header alone. A legacy message becomes an empty batch of magic 2 at its last offset.

        Source: DefaultRecordBatch.writeEmptyHeader, which refuses legacy batches.
        """
        legacy = self.magic < CURRENT_MAGIC
        return build_empty_batch(
            base_offset=self.last_offset if legacy else self.base_offset,
            last_offset=self.last_offset,
            max_timestamp_ms=self.max_timestamp_ms,
            leader_epoch=self.leader_epoch,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            transactional=self.is_transactional,
            control=self.is_control,
            append_time=not legacy and self.append_time_ms is not None,
        )

    def with_records(self, kept: Sequence[Record], rules: CompactionRules, *, idle_marker: bool = False) -> bytes:
        """The batch after records have gone, of which one at least stays: its own bytes if nothing changes.

        `idle_marker`: it is a marker on which no data depends any more. Source: MemoryRecords.filterTo.
        """
        legacy = self.magic < CURRENT_MAGIC
        convert = legacy and rules.converts_legacy
        has_tombstone = any(record.value is None for record in kept)
        horizon_ms = self.delete_horizon_ms
        is_deletable = (not legacy or convert) and (has_tombstone or idle_marker)
        sets_horizon = is_deletable and horizon_ms is None and not rules.spares_deletes
        unchanged = len(kept) == len(self.records) and all(record.magic == self.magic for record in self.records)
        if unchanged and not sets_horizon and not convert:
            return self.data
        return self.rebuilt(kept, rules.new_horizon_ms if sets_horizon else horizon_ms, convert_legacy=convert)


def decode_batch(data: bytes, columns: BatchColumns, row: int) -> DecodedBatch:
    """The batch of a row, given its bytes. Raises CorruptFile with its position."""
    position = int(columns.position[row])
    records = tuple(read_records(data, position))
    magic, attributes = int(columns.magic[row]), int(columns.attributes[row])
    flagged = magic == CURRENT_MAGIC and attributes & BatchFlag.DELETE_HORIZON
    return DecodedBatch(
        data=data,
        base_offset=int(columns.base_offset[row]) if magic == CURRENT_MAGIC else records[0].offset,
        last_offset=int(columns.last_offset[row]),
        magic=magic,
        attributes=attributes,
        leader_epoch=int(columns.leader_epoch[row]),
        delete_horizon_ms=int(columns.base_timestamp_ms[row]) if flagged else None,
        max_timestamp_ms=int(columns.max_timestamp_ms[row]),
        producer_id=int(columns.producer_id[row]),
        producer_epoch=int(columns.producer_epoch[row]),
        base_sequence=int(columns.base_sequence[row]),
        marker_type=int(columns.marker_type[row]),
        records=records,
    )


def decode_segment(log: bytes, base_offset: int | None = None) -> Iterator[DecodedBatch]:
    """All batches of a segment. Raises CorruptFile, also for bytes behind the last batch."""
    scan = scan_bytes(log, base_offset=base_offset)
    for columns in scan:
        for row in range(len(columns)):
            position = int(columns.position[row])
            yield decode_batch(log[position : position + int(columns.size_bytes[row])], columns, row)
    scan.require_exact()
