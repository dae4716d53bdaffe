"""All stages of the compaction of one partition, one after the other in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from producer_state.replay import CompletedTransaction
from sidecar.compaction.exchange import Exchange, MemoryExchange
from sidecar.compaction.inflating import Inflater
from sidecar.compaction.key_table import DEFAULT_SLOTS, SMALLEST_SLOTS, KeyTable, reduce_blobs
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.outputs import (
    CompactedSegment,
    PlannedOutput,
    SegmentOutput,
    WriteOutput,
    compacted_segment,
    legacy_tombstones_kept,
    plan_outputs,
)
from sidecar.compaction.rewrite import RewriteCounts, Sink, rewrite_split
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.scan import NO_VERDICTS, SplitScan, read_events, scan_split
from sidecar.compaction.segments import SPLIT_BYTES, SegmentInput, Split, splits_of
from sidecar.compaction.verdicts import SplitVerdicts, judge_splits
from sidecar.logformat.rebuild import INDEX_INTERVAL_BYTES

_BYTES_PER_BUCKET: Final = 64 * 1024**2
_BYTES_PER_KEY: Final = 48
_MOST_BUCKET_BITS: Final = 12


def bucket_bits(size_bytes: int) -> int:
    """How many buckets (as a power of two) keep a reduction of so many log bytes at some 200 MB, even if every key is new."""
    return min((max(size_bytes - 1, 0) // _BYTES_PER_BUCKET).bit_length(), _MOST_BUCKET_BITS)


def table_slots(size_bytes: int, largest: int = DEFAULT_SLOTS) -> int:
    """Slots for a task that scans so many bytes: small partitions take small tables; a full one is emitted, so any will do."""
    return min(max(SMALLEST_SLOTS, 1 << (size_bytes // _BYTES_PER_KEY).bit_length()), largest)


def compact_partition(
    segments: Sequence[SegmentInput],
    rules: CompactionRules,
    *,
    write: WriteOutput,
    hash_key: bytes,
    aborted: Sequence[CompletedTransaction] = (),
    last_batches: LastBatches | None = None,
    first_dirty_offset: int | None = None,
    exchange: Exchange | None = None,
    split_bytes: int = SPLIT_BYTES,
    slots: int | None = None,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
) -> list[CompactedSegment]:
    """Compact these segments, ascending and without a hole, as one range; `write` gets the batches of every output in order.

    Args:
        hash_key: 16 random bytes.
        aborted: every aborted transaction that overlaps the range, also where its marker lies behind it.
        last_batches: of the producers known at the end of the range.
        first_dirty_offset: decides on legacy tombstones only; all that is given is covered.
        exchange: where keys wait between the stages; by default in memory.
    Memory: a table, a window, a byte for each record of a split, and what the exchange keeps.
    Raises CorruptFile, SegmentChanged: then what was written must be thrown away.
    """
    exchange = MemoryExchange() if exchange is None else exchange
    inflater = Inflater()
    size_bytes = sum(segment.size_bytes for segment in segments)
    bits = bucket_bits(size_bytes)
    splits = splits_of(segments, split_bytes)
    table = KeyTable(rules, hash_key, exchange.put_blob, slots=slots or table_slots(size_bytes), bucket_bits=bits)
    scans, verdicts = _scan(segments, splits, table, inflater, tuple(aborted))
    table.emit()
    del table
    winner_counts = np.zeros(len(splits), dtype=np.int64)
    for bucket in range(1 << bits):
        for found in reduce_blobs(exchange.take_blobs(bucket), rules, len(splits), bits):
            exchange.put_ordinals(found.split, found.ordinals)
            winner_counts[found.split] += len(found.ordinals) // 4
    outputs = plan_outputs(segments, scans, verdicts, winner_counts.tolist(), rules)
    producers = last_batches or LastBatches()
    start = segments[0].base_offset if segments else 0
    protected = legacy_tombstones_kept(segments, rules, start if first_dirty_offset is None else first_dirty_offset)
    results = []
    for output in outputs:
        transactions = tuple(
            transaction for held in verdicts[output.first_split : output.end_split] for transaction in held.kept
        )
        counts, written = RewriteCounts(), None
        if not output.unchanged:
            written = SegmentOutput(
                segments[output.first_segment].base_offset, _numbered(write, output), index_interval_bytes
            )
            for number in range(output.first_split, output.end_split):
                scan = scans[number]
                counts += rewrite_split(
                    segments[scan.split.segment],
                    scan,
                    exchange.take_ordinals(number),
                    rules,
                    written.append,
                    ending=output.endings[number - output.first_split],
                    inflater=inflater,
                    verdicts=verdicts[number].by_batch,
                    last_batches=producers,
                    keeps_legacy_tombstones=protected[scan.split.segment],
                )
        indexes = None if written is None else written.finish(transactions)
        size = 0 if written is None else written.size_bytes
        results.append(compacted_segment(output, segments, counts, transactions, indexes, size))
    return results


def _numbered(write: WriteOutput, output: PlannedOutput) -> Sink:
    return lambda batches: write(output.number, batches)


def _scan(
    segments: Sequence[SegmentInput],
    splits: Sequence[Split],
    table: KeyTable,
    inflater: Inflater,
    aborted: tuple[CompletedTransaction, ...],
) -> tuple[list[SplitScan], list[SplitVerdicts]]:
    """Aborted data must be known before it is scanned, markers only afterwards: without aborts one reading is enough."""
    if not segments:
        return [], []
    start, end = segments[0].base_offset, segments[-1].end_offset
    beforehand: list[SplitVerdicts] | None = None
    if any(found.aborted and found.last_offset >= start for found in aborted):
        read = [read_events(segments[split.segment], split) for split in splits]
        beforehand = judge_splits([events for events, _ in read], [count for _, count in read], aborted, start, end)
    scans = [
        scan_split(
            segments[split.segment],
            split,
            table,
            inflater,
            NO_VERDICTS if beforehand is None else beforehand[split.number].by_batch,
        )
        for split in splits
    ]
    if beforehand is None:
        beforehand = judge_splits([scan.events for scan in scans], [scan.batch_count for scan in scans], (), start, end)
    return scans, beforehand
