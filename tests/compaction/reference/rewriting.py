"""Pass 2: what stays of each batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rules import CompactionRules
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.headers import CURRENT_MAGIC
from tests.compaction.reference.batches import DecodedBatch
from tests.compaction.reference.transactions import TransactionTracker
from tests.compaction.reference.values import CleanedGroup, ReferenceSegment, Winners


@dataclass(slots=True)
class Rewriting:
    """The tracker goes on from group to group."""

    rules: CompactionRules
    winners: Winners
    first_dirty: int
    end: int
    last_batches: LastBatches
    legacy_horizon_ms: int
    tracker: TransactionTracker
    unkeyed_records: int = 0

    def group(
        self, sources: tuple[ReferenceSegment, ...], decoded: dict[int, tuple[DecodedBatch, ...]]
    ) -> CleanedGroup:
        held = [(segment, batch) for segment in sources for batch in decoded[segment.base_offset]]
        self.tracker.kept = []
        pieces = []
        for number, (segment, batch) in enumerate(held):
            ends_output = number + 1 == len(held)
            if self.rules.kafka_4_3:
                ends_output = batch.last_offset + 1 == self.end
            pieces.append(self._batch(segment, batch, ends_output=ends_output))
        return CleanedGroup(sources, b"".join(pieces), tuple(self.tracker.kept))

    def _batch(self, segment: ReferenceSegment, batch: DecodedBatch, *, ends_output: bool) -> bytes:
        idle_marker, discard = False, False
        if batch.is_control:
            idle_marker = self.tracker.marker_is_idle(
                batch.last_offset, batch.producer_id, batch.marker_type, len(batch.records)
            )
            horizon_ms = batch.delete_horizon_ms
            discard = idle_marker and horizon_ms is not None and horizon_ms <= self.rules.horizons_passed_ms
        else:
            transactional = batch.is_transactional
            discard = self.tracker.data_is_aborted(batch.last_offset, batch.producer_id, transactional=transactional)
        keep_empty = ends_output or self._is_last(batch)
        kept = [] if discard else [record for record in batch.records if self._stays(segment, batch, record)]
        if kept:
            return batch.with_records(kept, self.rules, idle_marker=idle_marker)
        return batch.emptied() if keep_empty else b""

    def _is_last(self, batch: DecodedBatch) -> bool:
        """Whether a batch is its producer's last. Source: Cleaner.cleanInto, checkBatchRetention."""
        known = self.last_batches
        rows = np.flatnonzero(known.producer_id == batch.producer_id)
        if batch.producer_id < 0 or not len(rows):
            return False
        (row,) = rows
        if known.last_offset[row] >= 0:
            return bool(known.last_offset[row] == batch.last_offset)
        return batch.is_control and bool(known.producer_epoch[row] == batch.producer_epoch)

    def _stays(self, segment: ReferenceSegment, batch: DecodedBatch, record: Record) -> bool:
        if batch.is_control or record.offset > self.winners.latest_offset:
            return True
        if record.key is None:
            self.unkeyed_records += 1
            return False
        if record.offset < self.first_dirty:
            self.winners.raised_by(record, record.key)
        if not self.winners.keep(record, record.key):
            return False
        return record.value is not None or self._protects_tombstones(segment, batch)

    def _protects_tombstones(self, segment: ReferenceSegment, batch: DecodedBatch) -> bool:
        if batch.magic < CURRENT_MAGIC:
            return segment.last_modified_ms > self.legacy_horizon_ms
        return batch.delete_horizon_ms is None or self.rules.horizons_passed_ms < batch.delete_horizon_ms
