"""What a strategy would do to a partition before it is asked to: sizes, and the keys that do not end with their latest record.

Those keys are what a reader in offset order gets wrong today.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from producer_state.replay import CompletedTransaction
from sidecar.compaction.compact import Decision, decide_winners
from sidecar.compaction.kernels_table import mark
from sidecar.compaction.rules import CompactionRules, Strategy
from sidecar.compaction.scan import SplitScan
from sidecar.compaction.segments import SegmentInput, chunks
from sidecar.logformat.headers import CURRENT_MAGIC
from sidecar.logformat.records import Record, read_records


@dataclass(frozen=True, slots=True)
class Savings:
    """What would stay of a partition, before tombstones and markers expire. `expected_bytes` takes records for equal in size.

    `unkeyed_records` go whatever the strategy; `malformed_versions` count as none.
    `different_winners`: keys whose record is not the one with the highest offset.
    """

    size_bytes: int
    expected_bytes: int
    record_count: int
    surviving_records: int
    unkeyed_records: int
    malformed_versions: int
    different_winners: int


@dataclass(frozen=True, slots=True)
class DifferentRecord:
    """A record on which the strategy and the offset disagree. Every key with such a record has two: one wins, one is latest."""

    key: bytes
    offset: int
    wins: bool


class WhatIf:
    """Compares a strategy with offset order on one partition. Memory: as of a compaction, and a byte for each record of a split."""

    def __init__(
        self,
        segments: Sequence[SegmentInput],
        rules: CompactionRules,
        *,
        hash_key: bytes,
        aborted: Sequence[CompletedTransaction] = (),
    ) -> None:
        self._segments = segments
        by_offset = replace(rules, strategy=Strategy.OFFSET)
        ours = decide_winners(segments, rules, hash_key=hash_key, aborted=aborted)
        latest = decide_winners(segments, by_offset, hash_key=hash_key, aborted=aborted)
        self._marks = [
            (scan, _marked(scan, ours), _marked(scan, latest))
            for scan in ours.scans
            if rules.effective_strategy is not Strategy.OFFSET
        ]
        self.savings = _savings(segments, ours, sum(_count(wins & ~last) for _, wins, last in self._marks))

    def different(self) -> Iterator[DifferentRecord]:
        """All of them, in log order. Raises CorruptFile, SegmentChanged."""
        for scan, wins, last in self._marks:
            differing = np.unpackbits(wins ^ last, count=scan.record_count)
            if not differing.any():
                continue
            winning = np.unpackbits(wins, count=scan.record_count)
            for ordinal, record in _numbered_records(self._segments[scan.split.segment], scan, differing):
                yield DifferentRecord(record.key or b"", record.offset, bool(winning[ordinal]))


def _count(bits: npt.NDArray[np.uint8]) -> int:
    return int(np.bitwise_count(bits).sum())


def _marked(scan: SplitScan, decision: Decision) -> npt.NDArray[np.uint8]:
    """A bit for each record of the split: whether it wins."""
    kept = np.zeros(scan.record_count, dtype=np.uint8)
    for piece in decision.exchange.take_ordinals(scan.split.number):
        mark(kept, np.frombuffer(piece, dtype=np.uint32))
    return np.packbits(kept)


def _savings(segments: Sequence[SegmentInput], decision: Decision, different_winners: int) -> Savings:
    expected_bytes = sum(
        (scan.split.end - scan.split.begin) * winners // max(scan.record_count, 1)
        for scan, winners in zip(decision.scans, decision.winner_counts, strict=True)
    )
    return Savings(
        size_bytes=sum(segment.size_bytes for segment in segments),
        expected_bytes=expected_bytes,
        record_count=sum(scan.record_count for scan in decision.scans),
        surviving_records=sum(decision.winner_counts),
        unkeyed_records=sum(scan.unkeyed for scan in decision.scans),
        malformed_versions=sum(scan.malformed_versions for scan in decision.scans),
        different_winners=different_winners,
    )


def _numbered_records(
    segment: SegmentInput, scan: SplitScan, wanted: npt.NDArray[np.uint8]
) -> Iterable[tuple[int, Record]]:
    """The wanted records with their ordinals; only the batches that hold some are decoded."""
    first = 0
    for chunk in chunks(segment, scan.split):
        columns = chunk.columns()
        for row in range(chunk.rows):
            legacy = columns.magic[row] < CURRENT_MAGIC
            records = list(read_records(chunk.batch(row), int(columns.position[row]))) if legacy else []
            count = len(records) if legacy else int(columns.record_count[row])
            found = np.flatnonzero(wanted[first : first + count])
            if len(found) and not legacy:
                records = list(read_records(chunk.batch(row), int(columns.position[row])))
            for index in found.tolist():
                yield first + index, records[index]
            first += count
