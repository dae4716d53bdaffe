"""Compaction in plain Python, written from the rules: slow, for tests and for comparing. The engine must give its bytes.

`clean` runs one round as Kafka's cleaner does, partial map and all; over a whole range with an unlimited map it is what the
engine does. Source: Cleaner.doClean, Cleaner.cleanInto, MemoryRecords.filterTo.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from producer_state.facts import MARKER_ABORT
from producer_state.replay import CompletedTransaction
from sidecar.compaction.decoded import DecodedBatch, decode_segment
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rules import CompactionRules, SortKey, sort_key
from sidecar.compaction.transactions import TransactionTracker, still_marked
from sidecar.logformat.headers import CURRENT_MAGIC
from sidecar.logformat.records import Record


@dataclass(frozen=True, slots=True)
class ReferenceSegment:
    """The batches `[base_offset, end_offset)`; `end_offset` is the base of the next segment."""

    base_offset: int
    end_offset: int
    log: bytes
    last_modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """One output segment, made of `sources`; `transactions` are the aborted ones whose marker it still holds."""

    sources: tuple[ReferenceSegment, ...]
    log: bytes
    transactions: tuple[CompletedTransaction, ...]

    @property
    def segment(self) -> ReferenceSegment:
        """The output as input of a next round; its time is that of the last source."""
        first, last = self.sources[0], self.sources[-1]
        return ReferenceSegment(first.base_offset, last.end_offset, self.log, last.last_modified_ms)


@dataclass(frozen=True, slots=True)
class CleanedRange:
    """`end_offset`: where the next round's dirty part begins."""

    groups: tuple[CleanedGroup, ...]
    end_offset: int
    unkeyed_records: int
    legacy_losers_kept: int


@dataclass(slots=True)
class _Winners:
    """The best sort key per key of the offsets `[first dirty, latest_offset]`, raised by better ones below."""

    rules: CompactionRules
    latest_offset: int
    best: dict[bytes, SortKey] = field(default_factory=dict)

    def put(self, record: Record, key: bytes) -> None:
        rank = sort_key(record, self.rules)
        self.best[key] = max(rank, self.best.get(key, rank))

    def raised_by(self, record: Record, key: bytes) -> None:
        if key in self.best:
            self.put(record, key)

    def keep(self, record: Record, key: bytes) -> bool:
        return key not in self.best or sort_key(record, self.rules) >= self.best[key]


def clean(
    segments: Sequence[ReferenceSegment],
    rules: CompactionRules,
    *,
    groups: Sequence[int] | None = None,
    last_batches: LastBatches | None = None,
    aborted: Iterable[CompletedTransaction] = (),
    first_dirty_offset: int | None = None,
    first_uncleanable_offset: int | None = None,
    raise_first: bool = True,
    log_start_offset: int = 0,
    compacted_below: int | None = None,
) -> CleanedRange:
    """One round over the segments of a partition, in order and from the log start on.

    Args:
        groups: how many segments each output takes; by default every segment stays on its own.
        first_dirty_offset: below it records are clean; default: nothing is.
        first_uncleanable_offset: base of the first segment that is not touched; default: the end.
        raise_first: whether the clean part is read for better records before anything is written (needed where it may
            hold a key twice); otherwise while it is written.
        log_start_offset: records below it were deleted: they neither compete nor stay.
        compacted_below: decides on legacy tombstones where all is covered anew; default: first_dirty_offset.
    """
    start = segments[0].base_offset
    first_dirty = start if first_dirty_offset is None else first_dirty_offset
    end = segments[-1].end_offset if first_uncleanable_offset is None else first_uncleanable_offset
    decoded = {
        segment.base_offset: tuple(_without_deleted(batch, log_start_offset) for batch in decode_segment(segment.log))
        for segment in segments
    }
    aborted = still_marked(aborted, _abort_markers(decoded.values()), start, segments[-1].end_offset)
    winners = _cover(segments, decoded, rules, first_dirty, end, aborted)
    if raise_first:
        _raise_by_clean_part(segments, decoded, winners, first_dirty, aborted)
    legacy_horizon_ms = _legacy_horizon(segments, first_dirty if compacted_below is None else compacted_below, rules)
    taken = [
        segment for segment in segments if segment.base_offset <= winners.latest_offset and segment.base_offset < end
    ]
    tracker = TransactionTracker(aborted, start, spares_deletes=rules.spares_deletes)
    rewriting = _Rewriting(rules, winners, first_dirty, end, last_batches or LastBatches(), legacy_horizon_ms, tracker)
    outputs = tuple(rewriting.group(sources, decoded) for sources in _grouped(taken, groups))
    return CleanedRange(outputs, winners.latest_offset + 1, rewriting.unkeyed_records, rewriting.legacy_losers_kept)


def _without_deleted(batch: DecodedBatch, log_start_offset: int) -> DecodedBatch:
    """The batch with records below the log start made to lose: they have no key."""
    if batch.is_control or not any(record.offset < log_start_offset for record in batch.records):
        return batch
    records = tuple(
        replace(record, key=None) if record.offset < log_start_offset else record for record in batch.records
    )
    return replace(batch, records=records)


def _abort_markers(segments: Iterable[Iterable[DecodedBatch]]) -> set[tuple[int, int]]:
    return {
        (batch.producer_id, batch.last_offset)
        for batches in segments
        for batch in batches
        if batch.is_control and batch.marker_type == MARKER_ABORT
    }


def _grouped(taken: Sequence[ReferenceSegment], groups: Sequence[int] | None) -> list[tuple[ReferenceSegment, ...]]:
    sizes = [1] * len(taken) if groups is None else groups
    found, at = [], 0
    for size in sizes:
        found.append(tuple(taken[at : at + size]))
        at += size
    if at != len(taken):
        raise ValueError(f"groups of {at} segments in all, expected {len(taken)}")
    return found


def _cover(
    segments: Sequence[ReferenceSegment],
    decoded: dict[int, tuple[DecodedBatch, ...]],
    rules: CompactionRules,
    first_dirty: int,
    end: int,
    aborted: Iterable[CompletedTransaction],
) -> _Winners:
    """Pass 1. It ends before the first keyed record that finds the map full, even if the key is known."""
    winners = _Winners(rules, first_dirty - 1)
    covered = [segment for segment in segments if segment.end_offset > first_dirty and segment.base_offset < end]
    tracker = TransactionTracker(aborted, covered[0].base_offset if covered else 0)
    for segment in covered:
        for batch in decoded[segment.base_offset]:
            if _holds_keys(tracker, batch) and not _cover_batch(winners, batch, first_dirty):
                return winners
            if batch.last_offset >= first_dirty:
                winners.latest_offset = max(winners.latest_offset, batch.last_offset)
        winners.latest_offset = min(segment.end_offset, end) - 1
    return winners


def _cover_batch(winners: _Winners, batch: DecodedBatch, first_dirty: int) -> bool:
    for record in batch.records:
        if record.key is not None and record.offset >= first_dirty:
            if len(winners.best) >= winners.rules.max_map_keys:
                return False
            winners.put(record, record.key)
            winners.latest_offset = record.offset
    return True


def _holds_keys(tracker: TransactionTracker, batch: DecodedBatch) -> bool:
    """Take a batch; whether its records compete: markers and aborted data do not."""
    if batch.is_control:
        tracker.marker_is_idle(batch.last_offset, batch.producer_id, batch.marker_type, len(batch.records))
        return False
    return not tracker.data_is_aborted(batch.last_offset, batch.producer_id, transactional=batch.is_transactional)


def _raise_by_clean_part(
    segments: Sequence[ReferenceSegment],
    decoded: dict[int, tuple[DecodedBatch, ...]],
    winners: _Winners,
    first_dirty: int,
    aborted: Iterable[CompletedTransaction],
) -> None:
    tracker = TransactionTracker(aborted, segments[0].base_offset)
    for segment in segments:
        for batch in decoded[segment.base_offset]:
            if batch.base_offset >= first_dirty:
                return
            if _holds_keys(tracker, batch):
                for record in batch.records:
                    if record.key is not None and record.offset < first_dirty:
                        winners.raised_by(record, record.key)


def _legacy_horizon(segments: Sequence[ReferenceSegment], first_dirty: int, rules: CompactionRules) -> int:
    """Legacy tombstones stay in segments modified after this. Source: Cleaner.doClean, legacyDeleteHorizonMs."""
    below = [segment for segment in segments if segment.base_offset < first_dirty and segment.end_offset <= first_dirty]
    return below[-1].last_modified_ms - rules.delete_retention_ms if below else 0


@dataclass(slots=True)
class _Rewriting:
    """Pass 2; the tracker goes on from group to group."""

    rules: CompactionRules
    winners: _Winners
    first_dirty: int
    end: int
    last_batches: LastBatches
    legacy_horizon_ms: int
    tracker: TransactionTracker
    unkeyed_records: int = 0
    legacy_losers_kept: int = 0

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
        keep_empty = ends_output or self.last_batches.holds(
            batch.producer_id, batch.last_offset, batch.producer_epoch, control=batch.is_control
        )
        kept = [] if discard else [record for record in batch.records if self._stays(segment, batch, record)]
        if kept:
            return batch.with_records(kept, self.rules, idle_marker=idle_marker)
        if not keep_empty:
            return b""
        data, loser_kept = batch.without_records(self.rules)
        self.legacy_losers_kept += loser_kept
        return data

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
