"""Before and after rewriting: which segments are rewritten, how each split ends, and which outputs the results are joined to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from producer_state.replay import CompletedTransaction
from sidecar.compaction.rewrite import Ending, RewriteCounts, RewrittenSplit
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.scan import SplitScan
from sidecar.compaction.segments import SegmentInput, largest_index_bytes
from sidecar.compaction.verdicts import SplitVerdicts
from sidecar.errors import PartitionError
from sidecar.logformat.headers import LARGEST_POSITION


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """What a segment `[base_offset, end_offset)` adds to an output.

    `ending_bytes`: so many more if it is the last of the output. `index_bytes`: at most so many in the larger index.
    `is_empty`: it had no batch before compaction either, so it neither ends an output nor takes a place in an index.
    `is_settled`: it stays as it is, alone. `forgets_below`: see `SegmentInput`.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    ending_bytes: int = 0
    index_bytes: int = 0
    is_empty: bool = False
    is_settled: bool = False
    forgets_below: bool = False


def grouped(segments: Sequence[SegmentSize], rules: CompactionRules) -> tuple[int, ...]:
    """How many of the segments, in order, go into each output.

    Two or more go into one only up to `segment_bytes`, `segment_index_bytes` and 2^31 offsets. Offsets between two segments
    may be recorded as lost: an output over them would claim to hold them, so they always separate outputs.
    """
    groups: list[int] = []
    begin = 0
    while begin < len(segments):
        first, end = segments[begin], begin + 1
        size_bytes, index_bytes, ending_bytes = first.size_bytes, first.index_bytes, first.ending_bytes
        while rules.joins_segments and end < len(segments) and _may_join(segments[end - 1], segments[end]):
            following = segments[end]
            size_bytes += following.size_bytes
            index_bytes += following.index_bytes
            ending_bytes = ending_bytes if following.is_empty else following.ending_bytes
            spans = following.end_offset - 1 - first.base_offset
            too_wide = not following.is_empty and spans > LARGEST_POSITION
            too_large = size_bytes + ending_bytes > rules.segment_bytes or index_bytes > rules.segment_index_bytes
            if too_large or too_wide:
                break
            end += 1
        groups.append(end - begin)
        begin = end
    return tuple(groups)


def _may_join(before: SegmentSize, following: SegmentSize) -> bool:
    stays_apart = before.is_settled or following.is_settled or following.forgets_below
    return not stays_apart and following.base_offset == before.end_offset


@dataclass(frozen=True, slots=True)
class OutputPart:
    """`size_bytes` bytes of an output: the first ones that were written of a split, or a whole segment (`split` is None)."""

    segment: int
    split: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedOutput:
    """One output segment, made of segments `[first_segment, end_segment)`. Its bytes are those of its parts, in order.

    `unchanged`: it is its only source, byte by byte, which stays. `transactions`: the aborted ones whose marker it holds.
    """

    first_segment: int
    end_segment: int
    unchanged: bool
    parts: tuple[OutputPart, ...]
    counts: RewriteCounts
    transactions: tuple[CompletedTransaction, ...]

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class DecidedSplits:
    """A partition whose winners are decided. `segments` in log order; the other fields by split, in log order."""

    segments: Sequence[SegmentInput]
    scans: Sequence[SplitScan]
    verdicts: Sequence[SplitVerdicts]
    winner_counts: Sequence[int]
    rules: CompactionRules

    def endings(self) -> dict[int, Ending]:
        """The splits that must be rewritten, and how each ends. Segments that lose nothing are not among them."""
        found: dict[int, Ending] = {}
        for splits in self._of_segment():
            last = max((number for number in splits if self.scans[number].last_position >= 0), default=None)
            loses_nothing = all(
                self.scans[number].loses_nothing(self.winner_counts[number]) and self.verdicts[number].drops_nothing
                for number in splits
            )
            for number in () if loses_nothing else splits:
                if self.rules.kafka_4_3:
                    found[number] = Ending(kept_next_offset=self.segments[-1].end_offset)
                else:
                    found[number] = Ending(ends_segment=number == last)
        return found

    def outputs(
        self, rewritten: Mapping[int, RewrittenSplit], chosen: range | None = None
    ) -> tuple[PlannedOutput, ...]:
        """Join segments to outputs, by the sizes that they have (with `kafka_4_3`, had).

        `rewritten`: what came of the splits that `endings` has. `chosen`: only these segments, None for all. Raises
        PartitionError if one segment is too large for a file.
        """
        of_segment = self._of_segment()
        chosen = range(len(of_segment)) if chosen is None else chosen
        segments = [self._rewritten(number, of_segment[number], rewritten) for number in chosen]
        outputs: list[PlannedOutput] = []
        begin = 0
        sizes = [self._size(number, found) for number, found in zip(chosen, segments, strict=True)]
        for count in grouped(sizes, self.rules):
            outputs.append(self._output(chosen.start + begin, segments[begin : begin + count]))
            begin += count
        return tuple(outputs)

    def _of_segment(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.segments]
        for number, scan in enumerate(self.scans):
            found[scan.split.segment].append(number)
        return found

    def _rewritten(
        self, segment: int, splits: Sequence[int], rewritten: Mapping[int, RewrittenSplit]
    ) -> _RewrittenSegment:
        transactions = tuple(transaction for number in splits for transaction in self.verdicts[number].kept)
        if not all(number in rewritten for number in splits):
            size_bytes = self.segments[segment].size_bytes
            counts = RewriteCounts(
                verbatim=sum(self.scans[number].batch_count for number in splits),
                kept_records=sum(self.winner_counts[number] for number in splits),
            )
            return _RewrittenSegment((OutputPart(segment, None, size_bytes),), counts, None, transactions)
        found = [(number, rewritten[number]) for number in splits]
        return _RewrittenSegment(
            tuple(OutputPart(segment, number, split.size_bytes) for number, split in found),
            sum((split.counts for _, split in found), RewriteCounts()),
            next(((number, split) for number, split in reversed(found) if split.ending_bytes), None),
            transactions,
        )

    def _size(self, segment: int, found: _RewrittenSegment) -> SegmentSize:
        source = self.segments[segment]
        if self.rules.kafka_4_3:
            size_bytes, ending_bytes, index_bytes = source.size_bytes, 0, source.index_bytes
        else:
            size_bytes, ending_bytes = found.size_bytes, found.ending_bytes
            index_bytes = largest_index_bytes(size_bytes + ending_bytes)
        # Merging a whole segment that fills half an output would copy it for little.
        half_full = 2 * source.size_bytes >= self.rules.segment_bytes
        settled = found.ended().is_source and half_full and not self.rules.kafka_4_3
        return SegmentSize(
            source.base_offset,
            source.end_offset,
            size_bytes,
            ending_bytes,
            index_bytes,
            is_empty=source.size_bytes == 0,
            is_settled=settled,
            forgets_below=source.forgets_below,
        )

    def _output(self, begin: int, found: Sequence[_RewrittenSegment]) -> PlannedOutput:
        end = begin + len(found)
        last = max((at for at in range(begin, end) if self.segments[at].size_bytes), default=None)
        pieces = [segment.ended() if at == last else segment for at, segment in enumerate(found, start=begin)]
        output = PlannedOutput(
            begin,
            end,
            len(pieces) == 1 and pieces[0].is_source,
            tuple(part for piece in pieces for part in piece.parts if part.size_bytes),
            sum((piece.counts for piece in pieces), RewriteCounts()),
            tuple(transaction for piece in pieces for transaction in piece.transactions),
        )
        if output.size_bytes > LARGEST_POSITION:
            first, end_offset = self.segments[begin], self.segments[end - 1].end_offset
            raise PartitionError(
                f"{first.file}: compacting offsets {first.base_offset} to {end_offset} would write a segment of "
                f"{output.size_bytes} bytes; a segment holds at most {LARGEST_POSITION}. The partition stays as it is; "
                f"keep legacy message formats, or exclude the topic from compaction"
            )
        return output


@dataclass(frozen=True, slots=True)
class _RewrittenSegment:
    """`last`: the split that has an ending, and what was written of it."""

    parts: tuple[OutputPart, ...]
    counts: RewriteCounts
    last: tuple[int, RewrittenSplit] | None
    transactions: tuple[CompletedTransaction, ...]

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    @property
    def ending_bytes(self) -> int:
        return 0 if self.last is None else self.last[1].ending_bytes

    @property
    def is_source(self) -> bool:
        return self.counts.identical

    def ended(self) -> _RewrittenSegment:
        """The same as the last of an output."""
        if self.last is None:
            return self
        number, split = self.last
        parts = tuple(
            replace(part, size_bytes=part.size_bytes + split.ending_bytes) if part.split == number else part
            for part in self.parts
        )
        return _RewrittenSegment(parts, self.counts + split.ending_counts, None, self.transactions)


def legacy_tombstones_kept(
    segments: Sequence[SegmentInput], rules: CompactionRules, first_dirty_offset: int
) -> list[bool]:
    """By segment, whether legacy tombstones stay in it. Source: Cleaner.doClean, legacyDeleteHorizonMs.

    They stay in a segment whose time is unknown (-1): it may be the newest.
    """
    clean = [segment for segment in segments if segment.end_offset <= first_dirty_offset]
    horizon_ms = clean[-1].last_modified_ms - rules.delete_retention_ms if clean else 0
    times_ms = (segment.last_modified_ms for segment in segments)
    return [rules.spares_deletes or time_ms < 0 or time_ms > horizon_ms for time_ms in times_ms]
