"""One round: what is covered (pass 1), and what is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from producer_state.facts import MARKER_ABORT
from producer_state.replay import CompletedTransaction
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.verdicts import still_marked
from tests.compaction.reference.batches import DecodedBatch, decode_segment
from tests.compaction.reference.rewriting import Rewriting
from tests.compaction.reference.transactions import TransactionTracker
from tests.compaction.reference.values import CleanedRange, ReferenceSegment, Winners


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
    max_keys: int | None = None,
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
        max_keys: a map of Kafka's size, which makes for partial rounds.
    """
    start = segments[0].base_offset
    first_dirty = start if first_dirty_offset is None else first_dirty_offset
    end = segments[-1].end_offset if first_uncleanable_offset is None else first_uncleanable_offset
    decoded = {
        segment.base_offset: tuple(_without_deleted(batch, log_start_offset) for batch in decode_segment(segment.log))
        for segment in segments
    }
    aborted = still_marked(aborted, _abort_markers(decoded.values()), start, segments[-1].end_offset)
    winners = Winners(rules, first_dirty - 1, max_keys)
    _cover(segments, decoded, winners, first_dirty, end, aborted)
    if raise_first:
        _raise_by_clean_part(segments, decoded, winners, first_dirty, aborted)
    legacy_horizon_ms = _legacy_horizon(segments, first_dirty if compacted_below is None else compacted_below, rules)
    taken = [
        segment for segment in segments if segment.base_offset <= winners.latest_offset and segment.base_offset < end
    ]
    tracker = TransactionTracker(aborted, start, spares_deletes=rules.spares_deletes)
    rewriting = Rewriting(rules, winners, first_dirty, end, last_batches or LastBatches(), legacy_horizon_ms, tracker)
    outputs = tuple(rewriting.group(sources, decoded) for sources in _grouped(taken, groups))
    return CleanedRange(outputs, winners.latest_offset + 1, rewriting.unkeyed_records)


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
    winners: Winners,
    first_dirty: int,
    end: int,
    aborted: Iterable[CompletedTransaction],
) -> None:
    """Pass 1. It ends before the first keyed record that finds the map full, even if the key is known."""
    covered = [segment for segment in segments if segment.end_offset > first_dirty and segment.base_offset < end]
    tracker = TransactionTracker(aborted, covered[0].base_offset if covered else 0)
    for segment in covered:
        for batch in decoded[segment.base_offset]:
            if _holds_keys(tracker, batch) and not _cover_batch(winners, batch, first_dirty):
                return
            if batch.last_offset >= first_dirty:
                winners.latest_offset = max(winners.latest_offset, batch.last_offset)
        winners.latest_offset = min(segment.end_offset, end) - 1


def _cover_batch(winners: Winners, batch: DecodedBatch, first_dirty: int) -> bool:
    for record in batch.records:
        if record.key is not None and record.offset >= first_dirty:
            if len(winners.best) == winners.max_keys:
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
    winners: Winners,
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
