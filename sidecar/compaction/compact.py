"""All stages of the compaction of one partition, one after the other in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from producer_state.replay import CompletedTransaction
from sidecar.compaction.exchange import Exchange, MemoryExchange
from sidecar.compaction.inflating import Inflater
from sidecar.compaction.key_table import DEFAULT_SLOTS, ORDINAL_BYTES, SMALLEST_SLOTS, KeyTable, reduce_blobs
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
from sidecar.compaction.rewrite import Ending, Sink, rewrite_split
from sidecar.compaction.rewrite_counts import RewriteCounts
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


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Which records of a partition win: their ordinals wait in `exchange`, by split. The other fields are by split as well."""

    splits: list[Split]
    scans: list[SplitScan]
    verdicts: list[SplitVerdicts]
    winner_counts: list[int]
    exchange: Exchange


def decide_winners(
    segments: Sequence[SegmentInput],
    rules: CompactionRules,
    *,
    hash_key: bytes,
    aborted: Sequence[CompletedTransaction] = (),
    exchange: Exchange | None = None,
    split_bytes: int = SPLIT_BYTES,
    slots: int | None = None,
) -> Decision:
    """Scan and reduce; arguments, memory and errors as of `compact_partition`."""
    exchange = MemoryExchange() if exchange is None else exchange
    size_bytes = sum(segment.size_bytes for segment in segments)
    bits = bucket_bits(size_bytes)
    splits = splits_of(segments, split_bytes)
    table = KeyTable(rules, hash_key, exchange.put_blob, slots=slots or table_slots(size_bytes), bucket_bits=bits)
    scans, verdicts = _scan(segments, splits, table, tuple(aborted))
    table.emit()
    del table  # before the reduction makes its own
    winner_counts = [0] * len(splits)
    for bucket in range(1 << bits):
        for found in reduce_blobs(exchange.take_blobs(bucket), rules, len(splits), bits):
            exchange.put_ordinals(found.split, found.ordinals)
            winner_counts[found.split] += len(found.ordinals) // ORDINAL_BYTES
    return Decision(splits, scans, verdicts, winner_counts, exchange)


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
    decision = decide_winners(
        segments, rules, hash_key=hash_key, aborted=aborted, exchange=exchange, split_bytes=split_bytes, slots=slots
    )
    start = segments[0].base_offset if segments else 0
    writing = _Writing(
        segments,
        rules,
        decision,
        last_batches or LastBatches(),
        legacy_tombstones_kept(segments, rules, start if first_dirty_offset is None else first_dirty_offset),
        Inflater(),
        index_interval_bytes,
    )
    outputs = plan_outputs(segments, decision.scans, decision.verdicts, decision.winner_counts, rules)
    return [writing.output(output, _numbered(write, output)) for output in outputs]


@dataclass(frozen=True, slots=True, eq=False)
class _Writing:
    segments: Sequence[SegmentInput]
    rules: CompactionRules
    decision: Decision
    last_batches: LastBatches
    keeps_legacy_tombstones: list[bool]
    inflater: Inflater
    index_interval_bytes: int

    def output(self, output: PlannedOutput, write: Sink) -> CompactedSegment:
        verdicts = self.decision.verdicts[output.first_split : output.end_split]
        transactions = tuple(transaction for held in verdicts for transaction in held.kept)
        if output.unchanged:
            return compacted_segment(output, self.segments, RewriteCounts(), transactions, None, 0)
        base_offset = self.segments[output.first_segment].base_offset
        written = SegmentOutput(base_offset, write, self.index_interval_bytes)
        counts = RewriteCounts()
        for number, ending in zip(range(output.first_split, output.end_split), output.endings, strict=True):
            counts += self._split(number, ending, written)
        indexes = written.finish(transactions)
        return compacted_segment(output, self.segments, counts, transactions, indexes, written.size_bytes)

    def _split(self, number: int, ending: Ending, written: SegmentOutput) -> RewriteCounts:
        scan = self.decision.scans[number]
        return rewrite_split(
            self.segments[scan.split.segment],
            scan,
            self.decision.exchange.take_ordinals(number),
            self.rules,
            written.append,
            ending=ending,
            inflater=self.inflater,
            verdicts=self.decision.verdicts[number].by_batch,
            last_batches=self.last_batches,
            keeps_legacy_tombstones=self.keeps_legacy_tombstones[scan.split.segment],
        )


def _numbered(write: WriteOutput, output: PlannedOutput) -> Sink:
    return lambda batches: write(output.number, batches)


def _scan(
    segments: Sequence[SegmentInput],
    splits: Sequence[Split],
    table: KeyTable,
    aborted: tuple[CompletedTransaction, ...],
) -> tuple[list[SplitScan], list[SplitVerdicts]]:
    """Aborted data must be known before it is scanned, markers only afterwards: without aborts one reading is enough."""
    if not segments:
        return [], []
    inflater, spares = Inflater(), table.rules.spares_deletes
    start, end = segments[0].base_offset, segments[-1].end_offset
    beforehand: list[SplitVerdicts] | None = None
    if any(found.aborted and found.last_offset >= start for found in aborted):
        read = [read_events(segments[split.segment], split) for split in splits]
        events, counts = [found for found, _ in read], [count for _, count in read]
        beforehand = judge_splits(events, counts, aborted, start, end, spares_deletes=spares)
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
        events, counts = [scan.events for scan in scans], [scan.batch_count for scan in scans]
        beforehand = judge_splits(events, counts, (), start, end, spares_deletes=spares)
    return scans, beforehand
