"""Between reduction and rewriting: which segments go into which output, which need no rewriting, and what is written of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from producer_state.replay import CompletedTransaction
from sidecar.compaction.plan import SegmentSummary, grouped
from sidecar.compaction.rewrite import Ending, Sink
from sidecar.compaction.rewrite_counts import RewriteCounts
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.scan import SplitScan
from sidecar.compaction.segments import SegmentInput
from sidecar.compaction.verdicts import SplitVerdicts
from sidecar.logformat.columns import allocate, columns_of
from sidecar.logformat.headers import BATCH_HEADER
from sidecar.logformat.kernels import walk_batches
from sidecar.logformat.rebuild import INDEX_INTERVAL_BYTES, BuiltIndexes, IndexBuilder
from sidecar.logformat.walk_stop import Stop


@dataclass(frozen=True, slots=True)
class PlannedOutput:
    """One output segment, made of segments `[first_segment, end_segment)`, which are made of splits `[first_split, end_split)`.

    `unchanged`: it is one segment of which nothing is lost, so it is not written at all. `endings`: by split.
    """

    number: int
    first_segment: int
    end_segment: int
    first_split: int
    end_split: int
    unchanged: bool
    endings: tuple[Ending, ...]


def plan_outputs(
    segments: Sequence[SegmentInput],
    scans: Sequence[SplitScan],
    verdicts: Sequence[SplitVerdicts],
    winner_counts: Sequence[int],
    rules: CompactionRules,
) -> tuple[PlannedOutput, ...]:
    """Group segments by the sizes that are to be expected (with `kafka_4_3`, by those they have).

    Args: scans, verdicts, winner_counts: by split, in log order; the last is how many records win.
    """
    of_segment: list[list[int]] = [[] for _ in segments]
    for number, scan in enumerate(scans):
        of_segment[scan.split.segment].append(number)
    untouched = [
        all(scans[number].loses_nothing(winner_counts[number]) and verdicts[number].drops_nothing for number in splits)
        for splits in of_segment
    ]
    summaries = [
        SegmentSummary(segment.base_offset, segment.end_offset, segment.size_bytes, index_bytes=segment.index_bytes)
        if rules.kafka_4_3 or whole
        else _expected(segment, [scans[number] for number in splits], [winner_counts[number] for number in splits])
        for segment, splits, whole in zip(segments, of_segment, untouched, strict=True)
    ]
    outputs: list[PlannedOutput] = []
    begin, first_split = 0, 0
    for size in _group_sizes(summaries, untouched, rules):
        splits = [number for held in of_segment[begin : begin + size] for number in held]
        end_split = first_split + len(splits)
        unchanged = size == 1 and untouched[begin]
        endings = _endings(scans[first_split:end_split], segments[-1].end_offset, rules)
        outputs.append(PlannedOutput(len(outputs), begin, begin + size, first_split, end_split, unchanged, endings))
        begin, first_split = begin + size, end_split
    return tuple(outputs)


def _expected(segment: SegmentInput, scans: Sequence[SplitScan], winners: Sequence[int]) -> SegmentSummary:
    """The segment as it will be, if its records are of one size."""
    size_bytes, index_bytes = BATCH_HEADER.size_bytes, 0
    for scan, winner_count in zip(scans, winners, strict=True):
        size_bytes += (scan.split.end - scan.split.begin) * winner_count // max(scan.record_count, 1)
    size_bytes = min(size_bytes, segment.size_bytes)
    if segment.size_bytes:
        index_bytes = segment.index_bytes * size_bytes // segment.size_bytes
    return SegmentSummary(segment.base_offset, segment.end_offset, size_bytes, index_bytes=index_bytes)


def _group_sizes(
    summaries: Sequence[SegmentSummary], untouched: Sequence[bool], rules: CompactionRules
) -> tuple[int, ...]:
    """A segment of which nothing is lost stays alone if it fills half an output: merging would rewrite it for little."""
    if rules.kafka_4_3:
        return grouped(summaries, rules)
    settled = [
        whole and 2 * summary.size_bytes >= rules.segment_bytes
        for whole, summary in zip(untouched, summaries, strict=True)
    ]
    sizes: list[int] = []
    begin = 0
    for end in range(1, len(summaries) + 1):
        # Offsets that are recorded as lost lie between segments: an output over them would claim to hold them.
        hole = end < len(summaries) and summaries[end].base_offset != summaries[end - 1].end_offset
        if end == len(summaries) or hole or settled[end] or settled[begin]:
            sizes += grouped(summaries[begin:end], rules)
            begin = end
    return tuple(sizes)


def _endings(scans: Sequence[SplitScan], range_end: int, rules: CompactionRules) -> tuple[Ending, ...]:
    if rules.kafka_4_3:
        return tuple(Ending(next_offset=range_end) for _ in scans)
    last = max((number for number, scan in enumerate(scans) if scan.last_position >= 0), default=-1)
    return tuple(
        Ending(position=scan.last_position) if number == last else Ending() for number, scan in enumerate(scans)
    )


class SegmentOutput:
    """Follows the batches of one output segment on their way to its sink, and builds its indexes."""

    def __init__(self, base_offset: int, write: Sink, index_interval_bytes: int = INDEX_INTERVAL_BYTES) -> None:
        self._base_offset = base_offset
        self._write = write
        self._builder = IndexBuilder(base_offset, index_interval_bytes)
        self._blocks = allocate(4096)
        self._smallest_offset = base_offset
        self.size_bytes = 0

    def append(self, batches: memoryview) -> None:
        """Take whole batches, which are void after the call. Raises CorruptFile if their offsets do not fit the segment."""
        buffer = np.frombuffer(batches, dtype=np.uint8)
        at = 0
        while at < len(buffer):
            at, rows, self._smallest_offset, code, detail = walk_batches(
                buffer, at, len(buffer), self.size_bytes + at, *self._blocks, 0, self._smallest_offset, 2**63 - 2, False, 2**31, -1
            )  # fmt: skip
            if rows:
                columns = columns_of(self._blocks, int(rows))
                self._builder.add(columns)
            if code != Stop.COLUMNS_FULL and at < len(buffer):
                raise ValueError(f"no batch at byte {at} of {len(buffer)}: {Stop(code).name}, {detail}")
        self.size_bytes += len(buffer)
        self._write(batches)

    def finish(self, transactions: Sequence[CompletedTransaction]) -> BuiltIndexes:
        """The indexes, after the last batch. `transactions`: the aborted ones of which something is left in this segment."""
        return self._builder.finish(transactions)


@dataclass(frozen=True, slots=True)
class CompactedSegment:
    """What came of segments `[first_segment, end_segment)`: the batches of `[base_offset, end_offset)`.

    `unchanged`: nothing was written, or what was written equals the one source byte by byte: that one stays. Else
    `indexes` belong to the written bytes, and `transactions` are the aborted ones whose marker is still there.
    """

    first_segment: int
    end_segment: int
    base_offset: int
    end_offset: int
    unchanged: bool
    size_bytes: int
    counts: RewriteCounts
    transactions: tuple[CompletedTransaction, ...]
    indexes: BuiltIndexes | None


WriteOutput = Callable[[int, memoryview], None]
"""Takes (number of the output, whole batches); the bytes are void after the call."""


def compacted_segment(
    output: PlannedOutput,
    segments: Sequence[SegmentInput],
    counts: RewriteCounts,
    transactions: tuple[CompletedTransaction, ...],
    indexes: BuiltIndexes | None,
    size_bytes: int,
) -> CompactedSegment:
    """The result for one output; `indexes` is None where nothing was written."""
    first, last = segments[output.first_segment], segments[output.end_segment - 1]
    single = output.end_segment - output.first_segment == 1
    return CompactedSegment(
        output.first_segment,
        output.end_segment,
        first.base_offset,
        last.end_offset,
        output.unchanged or (single and counts.identical),
        first.size_bytes if output.unchanged else size_bytes,
        counts,
        transactions,
        indexes,
    )


def legacy_tombstones_kept(
    segments: Sequence[SegmentInput], rules: CompactionRules, first_dirty_offset: int
) -> list[bool]:
    """By segment, whether legacy tombstones stay in it. Source: Cleaner.doClean, legacyDeleteHorizonMs."""
    clean = [segment for segment in segments if segment.end_offset <= first_dirty_offset]
    horizon_ms = clean[-1].last_modified_ms - rules.delete_retention_ms if clean else 0
    return [segment.last_modified_ms > horizon_ms for segment in segments]
