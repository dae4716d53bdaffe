"""Legacy messages and wrappers after records have gone: rare enough to be made slowly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sidecar.compaction.rules import CompactionRules
from sidecar.errors import CorruptFile
from sidecar.logformat.bodies.building import build_batch, build_empty_batch
from sidecar.logformat.bodies.legacy import build_legacy_wrapper
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.columns import BatchColumns
from sidecar.logformat.headers import CODEC_MASK, NO_TIMESTAMP, BatchFlag


@dataclass(frozen=True, slots=True)
class LegacyBatch:
    """One legacy message or wrapper: of its header what is needed, and its records decoded."""

    data: bytes
    last_offset: int
    magic: int
    attributes: int
    max_timestamp_ms: int
    records: tuple[Record, ...]

    @classmethod
    def of(cls, data: bytes, columns: BatchColumns, row: int) -> LegacyBatch:
        """That of a row, given its bytes. Raises CorruptFile with its position."""
        return cls(
            data,
            int(columns.last_offset[row]),
            int(columns.magic[row]),
            int(columns.attributes[row]),
            int(columns.max_timestamp_ms[row]),
            tuple(read_records(data, int(columns.position[row]))),
        )

    def with_records(self, kept: Sequence[Record], rules: CompactionRules) -> bytes:
        """What is left of it with these records, at least one: its own bytes if nothing changes.

        Raises CorruptFile if no broker would write it. Source: MemoryRecords.filterTo, MemoryRecords.buildRetainedRecordsInto.
        """
        codec = self.attributes & CODEC_MASK
        is_appended = self.magic > 0 and self.attributes & BatchFlag.LOG_APPEND_TIME
        append_time_ms = self.max_timestamp_ms if is_appended else None
        if not rules.converts_legacy:
            if len(kept) == len(self.records) and all(record.magic == self.magic for record in kept):
                return self.data
            return build_legacy_wrapper(kept, codec=codec, magic=self.magic, append_time_ms=append_time_ms)
        oldest = min(kept, key=lambda record: record.timestamp_ms)
        if oldest.timestamp_ms < NO_TIMESTAMP:
            what = f"a message with timestamp {oldest.timestamp_ms}, which no batch of magic 2 can have"
            raise CorruptFile(f"{what}; keep legacy message formats", offset=oldest.offset)
        sets_horizon = not rules.spares_deletes and any(record.value is None for record in kept)
        horizon_ms = rules.new_horizon_ms if sets_horizon else None
        return build_batch(kept, codec=codec, append_time_ms=append_time_ms, delete_horizon_ms=horizon_ms)

    def emptied(self) -> bytes:
        """An empty batch of magic 2 at its last offset: a legacy message cannot be empty.

        Source: DefaultRecordBatch.writeEmptyHeader, which refuses legacy batches.
        """
        return build_empty_batch(
            base_offset=self.last_offset, last_offset=self.last_offset, max_timestamp_ms=self.max_timestamp_ms
        )
